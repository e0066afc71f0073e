"""Reading one word of bash: quotes, escapes and what is expanded in it."""

from __future__ import annotations

import re

from wieldy.shell.parsing.syntax import (
    Arithmetic,
    Expansion,
    LiteralText,
    Piece,
    RawWord,
    Redirect,
    Script,
    Substitution,
    Unparsable,
    Variable,
)

MAX_DEPTH = 24


class Cursor:
    """Where a parser stands in a text, and the limit it must not pass."""

    def __init__(self, text: str, start: int, limit: int, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise Unparsable("nested too deeply")
        self.text = text
        self.at = start
        self.limit = limit
        self.depth = depth

    def nested(self, text: str, start: int, limit: int) -> Script:
        """The script between two positions, read to its end."""
        raise NotImplementedError

    def enclosed(self) -> Script:
        """The script up to the closing parenthesis, which is consumed."""
        raise NotImplementedError

    def peek(self, ahead: int = 0) -> str:
        """The character ahead, or nothing at the limit."""
        index = self.at + ahead
        return self.text[index] if index < self.limit else ""

    def startswith(self, text: str | tuple[str, ...]) -> bool:
        """Whether `text` comes next, within the limit."""
        return self.text.startswith(text, self.at, self.limit)

    def _find(self, text: str, start: int) -> int:
        end = self.text.find(text, start, self.limit)
        if end < 0:
            raise Unparsable(f"`{text}` is missing")
        return end

    def _literal(self, pieces: list[Piece], text: str) -> None:
        self._take(pieces, text, len(text), quoted=False)

    def _take(self, pieces: list[Piece], text: str, length: int, *, quoted: bool) -> None:
        self.at += length
        last = pieces[-1] if pieces else None
        if isinstance(last, LiteralText) and last.quoted == quoted:
            pieces[-1] = LiteralText(last.text + text, quoted)
        else:
            pieces.append(LiteralText(text, quoted))

    def _here(self) -> str:
        return repr(self.text[self.at : min(self.at + 12, self.limit)] or "the end")


_BODY_TEXT = re.compile(r"[^\\$`]+")
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-]")
_BARE_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")
_OPERATOR = re.compile(r":?[-=?+]|##?|%%?|//|/[#%]?|\^\^?|,,?")
_NUMBERS = re.compile(r":\s*-?\s*[0-9]+\s*(?::\s*-?[0-9]+\s*)?")
_SAFE_ARITHMETIC = re.compile(r"[\s0-9+\-*/%<>=!&|^~?:,()]*")


class ExpansionScanner(Cursor):
    """Reads expansions; quotes inside them are left to the scanner of words."""

    def _quote_or_dollar(self, pieces: list[Piece]) -> None:
        raise NotImplementedError

    def dollar(self, *, quoted: bool, heredoc: bool = False) -> Piece:
        """What a `$` begins: a variable, an expansion, a substitution, or just a dollar sign."""
        if self.startswith("$((") and (end := self.arithmetic_end(self.at + 3)) is not None:
            self.at += 3
            found = self.arithmetic(end, quoted=quoted)
            self.at = end + 2
            return found
        if self.startswith("$("):
            self.at += 2
            return Substitution(self.enclosed(), quoted)
        if self.startswith("$["):
            raise Unparsable("old-style arithmetic $[…]")
        if self.startswith("${"):
            return self._braced(quoted, heredoc)
        found_name = _BARE_PARAMETER.match(self.text, self.at + 1, self.limit)
        if found_name is None:
            self.at += 1
            return LiteralText("$", True)
        self.at = found_name.end()
        return Variable(found_name.group(), quoted)

    def backticks(self, *, quoted: bool) -> Substitution:
        """An old-style substitution; what it escapes is unescaped before it is read."""
        start = end = self.at + 1
        while end < self.limit and self.text[end] != "`":
            end += 2 if self.text[end] == "\\" else 1
        if end >= self.limit:
            raise Unparsable("a backtick that is not closed")
        body = self.text[start:end]
        if "\\" in body:
            plain = re.sub(r'\\([$`\\"])' if quoted else r"\\([$`\\])", r"\1", body)
            script = self.nested(plain, 0, len(plain))
        else:
            script = self.nested(self.text, start, end)
        self.at = end + 1
        return Substitution(script, quoted)

    def expansions(self, limit: int) -> tuple[Piece, ...]:
        """The body of a here-document: text in which `$` and backticks still work and quotes do not."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unparsable("nested too deeply")
        pieces: list[Piece] = []
        outer, self.limit = self.limit, limit
        while self.at < limit:
            char = self.text[self.at]
            if char == "\\" and self.peek(1) in ("$", "`", "\\", "\n"):
                self._take(pieces, "" if self.peek(1) == "\n" else self.peek(1), 2, quoted=True)
            elif char == "$":
                pieces.append(self.dollar(quoted=True, heredoc=True))
            elif char == "`":
                pieces.append(self.backticks(quoted=True))
            else:
                run = _BODY_TEXT.match(self.text, self.at, limit)
                self._take(pieces, run.group() if run else char, run.end() - run.start() if run else 1, quoted=True)
        self.limit = outer
        self.depth -= 1
        return tuple(pieces)

    def arithmetic(self, end: int, *, quoted: bool) -> Arithmetic:
        """The expression from here to `end`; the position moves to `end`."""
        start = self.at
        inner = self.expansions(end)
        plain = _SAFE_ARITHMETIC.fullmatch(self.text, start, end)
        return Arithmetic(inner, quoted, "" if plain else "arithmetic on names can run code held in their values")

    def arithmetic_end(self, start: int) -> int | None:
        """Where the `))` that closes an arithmetic expression begins, or None if this is no arithmetic."""
        depth, index = 0, start
        while index < self.limit:
            char = self.text[index]
            if char in "'\"`\\":
                raise Unparsable("quotes inside arithmetic")
            if char == "(":
                depth += 1
            elif char == ")":
                if depth == 0:
                    return index if self.text.startswith("))", index, self.limit) else None
                depth -= 1
            index += 1
        raise Unparsable("an arithmetic expression that is not closed")

    def _braced(self, quoted: bool, heredoc: bool) -> Piece:
        self.at += 2
        length = self.peek() == "#" and self.peek(1) not in ("}", "")
        indirect = self.peek() == "!" and self.peek(1) not in ("}", "")
        self.at += length or indirect
        found = _PARAMETER.match(self.text, self.at, self.limit)
        if found is None:
            raise Unparsable("an expansion without a name")
        name, self.at = found.group(), found.end()
        inner: list[Piece] = []
        hazard = "an indirect expansion can run code held in a variable" if indirect else ""
        if self.peek() == "[":
            hazard = self._subscript(inner) or hazard
        if self.peek() == "}" and not (length or indirect or inner):
            self.at += 1
            return Variable(name, quoted)
        operator = "#" if length else ""
        if self.peek() != "}":
            operator, hazard = self._operation(name, inner, quoted, heredoc, hazard)
        if self.peek() != "}":
            raise Unparsable("an expansion that is not closed")
        self.at += 1
        return Expansion(name, operator or "[]", tuple(inner), quoted, hazard)

    def _operation(self, name: str, inner: list[Piece], quoted: bool, heredoc: bool, hazard: str) -> tuple[str, str]:
        if self.peek() == "@":
            self.at += 2
            return "@", "a transformed expansion such as ${x@P} can run code held in a variable"
        numbers = _NUMBERS.match(self.text, self.at, self.limit)
        if numbers and self.text.startswith("}", numbers.end(), self.limit):
            self.at = numbers.end()
            return ":", hazard
        operator = _OPERATOR.match(self.text, self.at, self.limit)
        if operator is None:
            raise Unparsable("an expansion with an unknown operator")
        self.at = operator.end()
        self._operand(inner, quoted or heredoc)
        if operator.group().endswith("=") and not name.islower():
            hazard = hazard or f"it sets `{name}`, which programs may listen to"
        return operator.group(), hazard

    def _operand(self, inner: list[Piece], quoted: bool) -> None:
        while (char := self.peek()) != "}":
            if not char:
                raise Unparsable("an expansion that is not closed")
            if char == "'" and quoted:
                raise Unparsable("a single quote inside a quoted expansion")
            if char == "\\":
                self._take(inner, self.peek(1), 2, quoted=True)
            elif char == "$" and quoted:
                inner.append(self.dollar(quoted=True))
            elif char in "\"'$`":
                self._quote_or_dollar(inner)
            else:
                self._take(inner, char, 1, quoted=quoted)

    def _subscript(self, inner: list[Piece]) -> str:
        start = self.at + 1
        end = self._find("]", start)
        content = self.text[start:end]
        self.at = start
        inner.extend(self.expansions(end))
        self.at = end + 1
        if content in ("@", "*") or content.isdecimal():
            return ""
        return "an array subscript can run code held in a variable"


METACHARACTERS = frozenset(" \t\n;&|()<>")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Most words are one run of ordinary characters or one pair of quotes; the slow way below reads the rest.
_SIMPLE_WORD = r"""(?:([A-Za-z0-9_./:@%,+=-]+)|'([^']*)'|"([^"\\$`]*)")"""
_WHOLE_WORD = re.compile(rf"{_SIMPLE_WORD}(?=[ \t\n;&|)]|[<>](?!\()|\Z)")
# A number right before `<` or `>` is no word.
_NEXT_WORD = re.compile(rf"[ \t]+({_SIMPLE_WORD})(?=[ \t\n;&|)]|\Z)")
_PLAIN = re.compile(r"(?:[^\s;&|()<>\\'\"$`?*+@!]|[?*+@!](?!\())+")
_QUOTED_TEXT = re.compile(r"[^\"\\$`]+")


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


ENDINGS = frozenset({"then", "do", "done", "fi", "elif", "else", "esac", "}"})
REDIRECT_STARTS = frozenset("<>&{0123456789")
_RAW = re.compile(r"[^\s;&|()<>]+")
_REDIRECT = re.compile(r"([0-9]*)(<<<|<<-|<<|<&|<>|>>|>&|>\||<|>)|(&>>|&>)")
_DESCRIPTOR = re.compile(r"(?:[0-9]+|\{[A-Za-z_]\w*\})[<>]")
_NAMED_DESCRIPTOR = re.compile(r"\{[A-Za-z_]\w*\}[<>]")
_BLANK = frozenset(" \t\\")
_BLANKS = re.compile(r"(?:[ \t]|\\\n)+")


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


_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|(c.)|(.))", re.DOTALL
)
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}


def decode(body: str) -> str:
    """The characters that `$'body'` stands for."""
    return _ESCAPE.sub(_character, body)


def _character(match: re.Match[str]) -> str:
    byte, short, long, octal, control, other = match.groups()
    if control:
        raise Unparsable("a control escape in $'…'")
    if other:
        return _NAMED.get(other) or (other if other in "\\'\"?" else "\\" + other)
    code = int(octal, 8) if octal else int(byte or short or long, 16)
    # Bytes above ASCII depend on the locale, and a NUL cuts the string short.
    if code == 0 or code > 0x10FFFF or 0xD800 <= code < 0xE000 or ((byte or octal) and code > 0x7F):
        raise Unparsable("an escape in $'…' that depends on the locale")
    return chr(code)
