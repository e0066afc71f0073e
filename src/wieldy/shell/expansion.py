"""What a `$` or a backtick begins: variables, `${…}`, substitutions and arithmetic."""

from __future__ import annotations

import re

from wieldy.schema.pattern import pattern
from wieldy.shell.cursor import MAX_DEPTH, Cursor
from wieldy.shell.syntax import Arithmetic, Expansion, LiteralText, Piece, Substitution, Unparsable, Variable

_BODY_TEXT = pattern(r"[^\\$`]+")
_PARAMETER = pattern(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-]")
_BARE_PARAMETER = pattern(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")
_OPERATOR = pattern(r":?[-=?+]|##?|%%?|//|/[#%]?|\^\^?|,,?")
_NUMBERS = pattern(r":\s*-?\s*[0-9]+\s*(?::\s*-?[0-9]+\s*)?")
_SAFE_ARITHMETIC = pattern(r"[\s0-9+\-*/%<>=!&|^~?:,()]*")


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
