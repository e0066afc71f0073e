"""Reading one word of bash: quotes, escapes and what is expanded in it."""

from __future__ import annotations

from wieldy.schema.pattern import pattern
from wieldy.shell.expansion import ExpansionScanner
from wieldy.shell.syntax import LiteralText, Piece, RawWord, Substitution, Unparsable

METACHARACTERS = frozenset(" \t\n;&|()<>")
NAME = pattern(r"[A-Za-z_][A-Za-z0-9_]*")
# Most words are one run of ordinary characters or one pair of quotes; the slow way below reads the rest.
_SIMPLE_WORD = r"""(?:([A-Za-z0-9_./:@%,+=-]+)|'([^']*)'|"([^"\\$`]*)")"""
_WHOLE_WORD = pattern(rf"{_SIMPLE_WORD}(?=[ \t\n;&|)]|[<>](?!\()|\Z)")
# A number right before `<` or `>` is no word.
_NEXT_WORD = pattern(rf"[ \t]+({_SIMPLE_WORD})(?=[ \t\n;&|)]|\Z)")
_PLAIN = pattern(r"(?:[^\s;&|()<>\\'\"$`?*+@!]|[?*+@!](?!\())+")
_QUOTED_TEXT = pattern(r"[^\"\\$`]+")


class Scanner(ExpansionScanner):
    """A cursor that reads words."""

    def word(self, *, regex: bool = False) -> RawWord:
        """The word that starts here; in a `regex` parentheses and bars belong to it."""
        start = self.at
        if not regex and (whole := _WHOLE_WORD.match(self.text, start, self.limit)):
            self.at = whole.end()
            return RawWord((_only_piece(*whole.groups()),), whole.group(), start, self.at)
        pieces: list[Piece] = []
        depth = 0
        while self.at < self.limit:
            char = self.text[self.at]
            if (char in "<>" and self.peek(1) == "(") and not regex:
                pieces.append(self._process_substitution())
            elif char in METACHARACTERS:
                if not regex or _ends_regex(char, depth):
                    break
                depth += (char == "(") - (char == ")")
                self._literal(pieces, char)
            elif char == "\\":
                self._backslash(pieces)
            elif char in "\"'$`":
                self._quote_or_dollar(pieces)
            else:
                self._unquoted(pieces, char, regex)
        if self.at == start:
            raise Unparsable(f"expected a word at {self._here()}")
        return RawWord(tuple(pieces), self.text[start : self.at], start, self.at)

    def whole_words(self, words: list[RawWord]) -> bool:
        """Take the words that follow as long as each is one literal; whether there was any."""
        before = self.at
        while found := _NEXT_WORD.match(self.text, self.at, self.limit):
            source, bare, single, double = found.groups()
            start, self.at = found.span(1)
            words.append(RawWord((_only_piece(bare, single, double),), source, start, self.at))
        return self.at > before

    def _unquoted(self, pieces: list[Piece], char: str, regex: bool) -> None:
        if char in "?*+@!" and self.peek(1) == "(" and not regex:
            raise Unparsable("an extended pattern such as @(a|b)")
        run = _PLAIN.match(self.text, self.at, self.limit)
        self._literal(pieces, run.group() if run else char)

    def _backslash(self, pieces: list[Piece]) -> None:
        following = self.peek(1)
        if following in ("", "\n"):
            raise Unparsable("a line continuation inside a word")
        self._take(pieces, following, 2, quoted=True)

    def _quote_or_dollar(self, pieces: list[Piece]) -> None:
        char = self.text[self.at]
        if char == "'":
            end = self._find("'", self.at + 1)
            self._take(pieces, self.text[self.at + 1 : end], end + 1 - self.at, quoted=True)
        elif char == '"':
            self._double_quoted(pieces)
        elif char == "`":
            pieces.append(self.backticks(quoted=False))
        elif self.startswith("$'"):
            from wieldy.shell.ansi_quote import decode

            end = self._ansi_end(self.at + 2)
            self._take(pieces, decode(self.text[self.at + 2 : end]), end + 1 - self.at, quoted=True)
        elif self.startswith('$"'):
            raise Unparsable('a translated string $"…"')
        else:
            pieces.append(self.dollar(quoted=False))

    def _double_quoted(self, pieces: list[Piece]) -> None:
        self.at += 1
        pieces.append(LiteralText("", True))
        while (char := self.peek()) != '"':
            if not char:
                raise Unparsable("a double quote that is not closed")
            if char == "\\":
                following = self.peek(1)
                if following == "\n":
                    self.at += 2
                elif following and following in '$`"\\':
                    self._take(pieces, following, 2, quoted=True)
                else:
                    self._take(pieces, "\\", 1, quoted=True)
            elif char == "$":
                pieces.append(self.dollar(quoted=True))
            elif char == "`":
                pieces.append(self.backticks(quoted=True))
            else:
                run = _QUOTED_TEXT.match(self.text, self.at, self.limit)
                self._take(pieces, run.group() if run else char, len(run.group()) if run else 1, quoted=True)
        self.at += 1

    def _process_substitution(self) -> Substitution:
        self.at += 2
        return Substitution(self.enclosed(), quoted=False, process=True)

    def _ansi_end(self, index: int) -> int:
        while index < self.limit and self.text[index] != "'":
            index += 2 if self.text[index] == "\\" else 1
        if index >= self.limit:
            raise Unparsable("a quote that is not closed")
        return index


def _only_piece(bare: str | None, single: str | None, double: str | None) -> LiteralText:
    if bare is not None:
        return LiteralText(bare, False)
    return LiteralText(single if single is not None else double or "", True)


def _ends_regex(char: str, depth: int) -> bool:
    if char in " \t":
        return depth == 0
    return char not in "(|<>)" or (char == ")" and depth == 0)
