"""Where words end and lines break: blanks, comments, reserved words, redirections and here-documents."""

from __future__ import annotations

from wieldy.schema.pattern import pattern
from wieldy.shell.scan import Scanner
from wieldy.shell.syntax import LiteralText, RawWord, Redirect, Unparsable

ENDINGS = frozenset({"then", "do", "done", "fi", "elif", "else", "esac", "}"})
REDIRECT_STARTS = frozenset("<>&{0123456789")
_RAW = pattern(r"[^\s;&|()<>]+")
_REDIRECT = pattern(r"([0-9]*)(<<<|<<-|<<|<&|<>|>>|>&|>\||<|>)|(&>>|&>)")
_DESCRIPTOR = pattern(r"(?:[0-9]+|\{[A-Za-z_]\w*\})[<>]")
_NAMED_DESCRIPTOR = pattern(r"\{[A-Za-z_]\w*\}[<>]")
_BLANK = frozenset(" \t\\")
_BLANKS = pattern(r"(?:[ \t]|\\\n)+")


class LineScanner(Scanner):
    """A scanner that knows lines. Here-documents are read at the line break after their operator."""

    def __init__(self, text: str, start: int, limit: int, depth: int) -> None:
        super().__init__(text, start, limit, depth)
        self._waiting: list[Redirect] = []
        self._raw_at = -1
        self._raw_text = ""

    def _raw(self) -> str:
        """The run of ordinary characters that starts here. Several rules ask at the same place, one after the other."""
        if self._raw_at != self.at:
            found = _RAW.match(self.text, self.at, self.limit)
            self._raw_at, self._raw_text = self.at, found.group() if found else ""
        return self._raw_text

    def _expect(self, word: str) -> None:
        if self._raw() != word:
            raise Unparsable(f"`{word}` is missing")
        self.at += len(word)

    def _expect_text(self, text: str) -> None:
        if not self.startswith(text):
            raise Unparsable(f"`{text}` is missing")
        self.at += len(text)

    def _step(self, length: int) -> None:
        """Pass an operator. Bash joins operators across a line continuation; that is left to a person."""
        self.at += length
        self._no_split()

    def _no_split(self) -> None:
        if self.startswith("\\\n"):
            raise Unparsable("a line continuation after an operator")

    def _blanks(self) -> None:
        char = self.peek()
        if char in _BLANK and (found := _BLANKS.match(self.text, self.at, self.limit)):
            self.at = found.end()
            char = self.peek()
        if char == "#":
            end = self.text.find("\n", self.at, self.limit)
            self.at = self.limit if end < 0 else end

    def _line_breaks(self) -> None:
        while True:
            self._blanks()
            if self.peek() != "\n":
                return
            self.at += 1
            waiting, self._waiting = self._waiting, []
            for redirect in waiting:
                self._heredoc(redirect)

    def _heredoc(self, redirect: Redirect) -> None:
        mark = redirect.target
        quoted = any(char in mark.source for char in "'\"\\")
        if any(not isinstance(piece, LiteralText) for piece in mark.pieces):
            raise Unparsable("a here-document whose end mark is expanded")
        wanted = "".join(piece.text for piece in mark.pieces if isinstance(piece, LiteralText))
        start = line = self.at
        while line < self.limit:
            stop = self.text.find("\n", line, self.limit)
            stop = self.limit if stop < 0 else stop
            content = self.text[line:stop]
            if (content.lstrip("\t") if redirect.operator == "<<-" else content) == wanted:
                body = self.text[start:line]
                pieces = (LiteralText(body, True),) if quoted else self.expansions(line)
                redirect.target = RawWord(pieces, body, start, line)
                self.at = min(stop + 1, self.limit) if stop < self.limit else self.limit
                return
            line = stop + 1
        raise Unparsable("a here-document without its end")

    def _redirect(self, redirects: list[Redirect]) -> bool:
        if self.peek() == "{" and _NAMED_DESCRIPTOR.match(self.text, self.at, self.limit):
            raise Unparsable("a redirection to a named descriptor")
        found = _REDIRECT.match(self.text, self.at, self.limit)
        if found is None:
            return False
        operator = found.group(2) or found.group(3)
        if operator in ("<", ">") and self.text.startswith("(", found.end(), self.limit):
            if found.group(1):
                raise Unparsable("a number before a process substitution")
            return False
        self.at = found.end()
        self._no_split()
        self._blanks()
        if _DESCRIPTOR.match(self.text, self.at, self.limit):
            raise Unparsable("a descriptor in place of a file")
        if operator in ("<<", "<<-"):
            redirects.append(Redirect(operator, found.group(1), self.word()))
            self._waiting.append(redirects[-1])
        else:
            redirects.append(Redirect(operator, found.group(1) or "", self.word()))
        return True

    def _redirects(self) -> tuple[Redirect, ...]:
        found: list[Redirect] = []
        self._blanks()
        while self._redirect(found):
            self._blanks()
        char = self.peek()
        if char and char not in "\n;&|)" and self._raw() not in ENDINGS:
            raise Unparsable(f"unexpected {self._here()}")
        return tuple(found)
