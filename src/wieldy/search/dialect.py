"""Patterns written for `rg` (Rust's regular expressions), turned into Python's so that both match the same text.

What Rust refuses is refused here too, so that an answer never depends on which engine ran.
"""

from __future__ import annotations

import re

from msgspec import Struct
from msgspec.structs import replace

_SPACE = " \\t\\n\\x0b\\f\\r\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
_PERL = {"d": "\\d", "w": "\\w", "s": _SPACE}
# Bytes that are not UTF-8 are read as lone surrogates. No pattern matches them.
_NOT_TEXT = "\\udc80-\\udcff"
_POSIX = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": "\\x00-\\x7f", "blank": "\\t ", "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~", "punct": "!-/:-@\\[-`{-~",
    "space": "\\t\\n\\x0b\\f\\r ", "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_CONTROL = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_WORD_EDGES = {
    "b": "\\b", "B": "\\B", "<": "\\b(?=\\w)", ">": "\\b(?<=\\w)",
    "b{start}": "\\b(?=\\w)", "b{end}": "\\b(?<=\\w)", "b{start-half}": "(?<!\\w)", "b{end-half}": "(?!\\w)",
}  # fmt: skip
_EDGE = re.compile(r"\\(b\{(?:start|end)(?:-half)?\}|[bB<>])")
_CODE_POINT = re.compile(r"\\(?:[xuU]\{([0-9a-fA-F]+)\}|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))")
_GROUP = re.compile(r"\(\?(?:P?<([A-Za-z_][\w.\[\]]*)>|([a-zA-Z-]*)([:)]))")
_REPEAT = re.compile(r"([*+?]|\{\s*(\d+)\s*(?:(,)\s*(\d*)\s*)?\})(\??)")
_ESCAPABLE = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ ")


class BadPattern(ValueError):
    """A pattern that cannot be read; the message says why."""


class LineBreakInPattern(BadPattern):
    """A pattern that asks for a line break where lines are searched one by one."""


class Flags(Struct, frozen=True):
    """What is switched on at one place of a pattern."""

    ignore_case: bool = False
    dot_all: bool = False
    lines: bool = True
    ungreedy: bool = False
    verbose: bool = False


_LETTERS = {"i": "ignore_case", "s": "dot_all", "m": "lines", "U": "ungreedy", "x": "verbose"}


def translate(pattern: str, *, ignore_case: bool = False, multiline: bool = False, returns: bool = True) -> str:
    """The Python form of a pattern. `returns` says whether the text has carriage returns, which costs speed."""
    return _Translation(pattern, Flags(ignore_case, dot_all=multiline), multiline, returns).whole()


class _Translation:
    """One pass over a pattern."""

    def __init__(self, pattern: str, flags: Flags, multiline: bool, returns: bool) -> None:
        self.pattern = pattern
        self.at = 0
        self.multiline = multiline
        self.returns = returns
        self.flags = flags
        never = "" if multiline else "\\n\\r"
        self.never = f"(?![{never}{_NOT_TEXT}])"

    def whole(self) -> str:
        out = self.alternatives()
        if self.at < len(self.pattern):
            raise BadPattern("unopened group")
        return out

    def alternatives(self) -> str:
        """Everything up to the end of the group that is open."""
        outside = self.flags
        options, current = [], ""
        while self.at < len(self.pattern) and self.pattern[self.at] != ")":
            if self.pattern[self.at] == "|":
                self.at += 1
                options.append(current)
                current = ""
            else:
                current += self.piece()
        self.flags = outside
        return "|".join((*options, current))

    def piece(self) -> str:
        """One thing and how often it may come."""
        if self.flags.verbose and self.skip_comment():
            return ""
        if self.pattern[self.at] in "*+?{":
            raise BadPattern("repetition operator missing expression")
        before = self.at
        atom = self.atom()
        while self.at < len(self.pattern) and self.pattern[self.at] in "*+?{":
            if not atom:
                raise BadPattern("repetition operator missing expression")
            atom = f"(?:{atom}){self.repetition()}"
        if self.at == before:
            raise BadPattern("empty")
        return atom

    def atom(self) -> str:
        char = self.pattern[self.at]
        if char == "(":
            return self.group()
        if char == "[":
            return self.folded(self.character_class())
        if char == "\\":
            return self.escape()
        self.at += 1
        if char == ".":
            return self.dot()
        if char == "^":
            return self.line_start() if self.flags.lines else "\\A"
        if char == "$":
            return self.line_end() if self.flags.lines else "\\Z"
        return self.literal(char)

    def repetition(self) -> str:
        found = _REPEAT.match(self.pattern, self.at)
        if not found:
            raise BadPattern(
                "unclosed counted repetition"
                if re.match(r"\{\s*\d[\d,\s]*$", self.pattern[self.at :])
                else "repetition quantifier expects a valid decimal"
            )
        self.at = found.end()
        operator, low, comma, high, lazy = found.groups()
        if high and int(high) < int(low):
            raise BadPattern("invalid repetition count range, the start must be <= the end")
        if low is not None:
            operator = f"{{{low}{comma or ''}{high or ''}}}"
        return operator + ("?" if bool(lazy) != self.flags.ungreedy else "")

    def group(self) -> str:
        if not self.pattern.startswith("(?", self.at):
            self.at += 1
            return self.closed(self.alternatives())
        if re.compile(r"\(\?(?:<?[=!])").match(self.pattern, self.at):
            raise BadPattern("look-around, including look-ahead and look-behind, is not supported")
        found = _GROUP.match(self.pattern, self.at)
        if not found:
            raise BadPattern("unrecognized flag" if ")" in self.pattern[self.at :] else "unclosed group")
        self.at = found.end()
        name, letters, ending = found.groups()
        if name is not None:
            return self.closed(self.alternatives())
        changed = self.changed_flags(letters)
        if ending == ")":
            if not letters:
                raise BadPattern("repetition operator missing expression")
            self.flags = changed
            return ""
        outside, self.flags = self.flags, changed
        inner = self.alternatives()
        self.flags = outside
        return self.closed(inner)

    def closed(self, inner: str) -> str:
        if self.at == len(self.pattern):
            raise BadPattern("unclosed group")
        self.at += 1
        return f"(?:{inner})"

    def changed_flags(self, letters: str) -> Flags:
        on, _, off = letters.partition("-")
        changes: dict[str, bool] = {}
        for letter in on + off:
            if letter in "uR" and letter in on:
                continue
            if letter not in _LETTERS:
                raise BadPattern("unrecognized flag" if letter not in "uR" else _unknown_here(f"(?-{letter})"))
            changes[_LETTERS[letter]] = letter in on
        if changes.get("lines") is False and not self.multiline:
            raise BadPattern(_unknown_here("(?-m) in a search line by line"))
        return replace(self.flags, **changes)

    def escape(self) -> str:
        if edge := _EDGE.match(self.pattern, self.at):
            self.at = edge.end()
            return f"(?:{_WORD_EDGES[edge[1]]})"
        char = self.pattern[self.at + 1 : self.at + 2]
        if char and char in "Az":
            self.at += 2
            if not self.multiline:
                raise BadPattern(_unknown_here(f"\\{char} in a search line by line"))
            return "\\A" if char == "A" else "\\Z"
        if char and char in "dswDSW":
            self.at += 2
            inside = _PERL[char.lower()]
            return f"(?:{self.never}[{'^' if char.isupper() else ''}{inside}])"
        return self.literal(self.escaped_character())

    def escaped_character(self) -> str:
        """The character an escape stands for."""
        if point := _CODE_POINT.match(self.pattern, self.at):
            self.at = point.end()
            value = int(next(filter(None, point.groups())), 16)
            if value > 0x10FFFF or 0xD800 <= value <= 0xDFFF:
                raise BadPattern("hexadecimal literal is not a Unicode scalar value")
            return chr(value)
        char = self.pattern[self.at + 1 : self.at + 2]
        if not char:
            raise BadPattern("incomplete escape sequence, reached end of pattern prematurely")
        self.at += 2
        if char in _CONTROL:
            return _CONTROL[char]
        if char in "pP":
            raise BadPattern(_unknown_here(f"\\{char}"))
        if char.isdigit():
            raise BadPattern("backreferences are not supported")
        if char not in _ESCAPABLE:
            raise BadPattern("unrecognized escape sequence")
        return char

    def literal(self, char: str) -> str:
        if char in "\n\r" and not self.multiline:
            name = "\\n" if char == "\n" else "\\r"
            raise LineBreakInPattern(f'the literal "{name}" is not allowed in a regex')
        return self.folded(re.escape(char))

    def folded(self, regex: str) -> str:
        return f"(?i:{regex})" if self.flags.ignore_case else regex

    def dot(self) -> str:
        if self.flags.dot_all:
            return f"(?:{self.never}[\\s\\S])"
        return f"[^\\n\\r{_NOT_TEXT}]"

    def line_start(self) -> str:
        return "(?:(?<![^\\r\\n])(?<!\\r(?=\\n)))" if self.returns else "(?:^)"

    def line_end(self) -> str:
        return "(?:(?=[\\r\\n]|\\Z)(?<!\\r(?=\\n)))" if self.returns else "(?:$)"

    def skip_comment(self) -> bool:
        found = re.compile(r"\s+|#[^\n]*\n?").match(self.pattern, self.at)
        if found:
            self.at = found.end()
        return bool(found)

    def character_class(self) -> str:
        self.at += 1
        negated = self.pattern.startswith("^", self.at)
        self.at += negated
        members: list[str] = []
        while not members or not self.pattern.startswith("]", self.at):
            if self.at >= len(self.pattern):
                raise BadPattern("unclosed character class")
            members.append(self.class_member())
        self.at += 1
        return f"(?:{self.never}[{'^' if negated else ''}{''.join(members)}])"

    def class_member(self) -> str:
        if posix := re.compile(r"\[:(\^?)([a-z]+):\]").match(self.pattern, self.at):
            if posix[2] not in _POSIX or posix[1]:
                raise BadPattern(_unknown_here(posix[0]))
            self.at = posix.end()
            return _POSIX[posix[2]]
        if self.pattern[self.at] == "[" or self.pattern[self.at : self.at + 2] in ("&&", "--", "~~"):
            raise BadPattern(_unknown_here("a class inside a class, or a set operation"))
        perl = re.compile(r"\\([dswDSW])").match(self.pattern, self.at)
        if perl:
            self.at = perl.end()
            if perl[1] == "S":
                raise BadPattern(_unknown_here("\\S inside a class"))
            return _PERL.get(perl[1], f"\\{perl[1]}")
        low = self.class_character()
        if not re.compile(r"-[^\]-]").match(self.pattern, self.at):
            return re.escape(low)
        self.at += 1
        high = self.class_character()
        if high < low:
            raise BadPattern("invalid character class range, the start must be <= the end")
        return f"{re.escape(low)}-{re.escape(high)}"

    def class_character(self) -> str:
        if self.pattern[self.at] == "\\":
            return self.escaped_character()
        self.at += 1
        return self.pattern[self.at - 1]


def _unknown_here(what: str) -> str:
    return f"{what} is not known to the built-in search engine; write it differently, or install ripgrep"
