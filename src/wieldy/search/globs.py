"""File patterns as `rg` and `.gitignore` read them: `*`, `**`, `?`, `[…]`, `{a,b}`, turned into regular expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeAlias

from wieldy.schema.pattern import pattern

Matches: TypeAlias = Callable[[str], object]

_MAGIC = frozenset("*?[{\\")
_NOT_A_SEPARATOR = "[^/\0]"
_PLAIN_ENDING = pattern(r"\*\*/\*([\w.+-]+)")


class BadGlob(ValueError):
    """A pattern that cannot be read; the message says why."""


def compile_glob(glob: str) -> Matches:
    """A test of whole relative paths. A pattern without a slash means a name in any folder."""
    anchored = anchor(glob)
    if ending := _PLAIN_ENDING.fullmatch(anchored):
        suffix = ending[1]
        return lambda path: path.endswith(suffix)
    return re.compile(translate(anchored), re.DOTALL).fullmatch


def anchor(glob: str) -> str:
    """The pattern with its folders spelt out: a bare name is found anywhere, `/` or `./` in front means the top."""
    bare = glob
    while bare.startswith("./"):
        bare = bare[2:]
    if bare != glob or bare.startswith("/"):
        return bare.lstrip("/")
    return bare if "/" in bare.rstrip("/") else f"**/{bare}"


def compile_any(globs: Iterable[str]) -> Matches | None:
    """A test that holds when one of the patterns does; None when there are none."""
    tests = [compile_glob(glob) for glob in globs]
    if len(tests) < 2:
        return tests[0] if tests else None
    return lambda path: any(test(path) for test in tests)


def translate(glob: str) -> str:
    """The regular expression of a pattern, for whole paths relative to where the pattern belongs."""
    if glob == "**":
        return ".*"
    if glob.endswith("/**"):
        glob += "/*"
    return _Translation(glob).whole()


def split_globs(text: str) -> list[str]:
    """The patterns of a list separated by commas or blanks; these do not separate in braces or after a backslash."""
    found, current, depth, escaped = [], "", 0, False
    for char in text:
        if depth == 0 and not escaped and char in ", \t\n":
            found.append(current)
            current = ""
            continue
        depth += (char == "{") - (char == "}") if not escaped else 0
        escaped = char == "\\" and not escaped
        current += char
    return [glob for glob in (*found, current) if glob]


def literal_prefix(glob: str) -> tuple[str, str]:
    """The leading folders without wildcards, and the rest of the pattern."""
    parts = glob.split("/")
    plain = 0
    while plain < len(parts) - 1 and not _MAGIC & set(parts[plain]):
        plain += 1
    return "/".join(parts[:plain]), "/".join(parts[plain:])


class _Translation:
    """One pass over a pattern."""

    def __init__(self, glob: str) -> None:
        self.glob = glob
        self.at = 0

    def whole(self) -> str:
        regex = self.until(frozenset())
        if self.at < len(self.glob):
            raise BadGlob("a `}` without its `{`; write `\\}` for the character")
        return regex

    def until(self, stops: frozenset[str]) -> str:
        out = []
        while self.at < len(self.glob) and self.glob[self.at] not in (stops or "}"):
            out.append(self.token())
        return "".join(out)

    def token(self) -> str:
        char = self.glob[self.at]
        self.at += 1
        if char == "*":
            return self.stars()
        if char == "?":
            return _NOT_A_SEPARATOR
        if char == "[":
            return self.character_class()
        if char == "{":
            return self.alternatives()
        if char == "\\":
            if self.at == len(self.glob):
                raise BadGlob("a `\\` at the end escapes nothing; write `\\\\` for the character")
            char = self.glob[self.at]
            self.at += 1
        return re.escape(char)

    def stars(self) -> str:
        start = self.at - 1
        while self.glob.startswith("*", self.at):
            self.at += 1
        own_folder = self.at - start == 2 and (start == 0 or self.glob[start - 1] == "/")
        if own_folder and self.glob.startswith("/", self.at):
            self.at += 1
            return "(?:.*/)?"
        if own_folder and self.at == len(self.glob):
            return ".*"
        return _NOT_A_SEPARATOR + "*"

    def alternatives(self) -> str:
        options = [self.until(frozenset(",}"))]
        while self.at < len(self.glob) and self.glob[self.at] == ",":
            self.at += 1
            options.append(self.until(frozenset(",}")))
        if self.at == len(self.glob):
            raise BadGlob("a `{` without its `}`; write `\\{` for the character")
        self.at += 1
        return f"(?:{'|'.join(options)})"

    def character_class(self) -> str:
        start = self.at
        negated = self.glob[start : start + 1] in ("!", "^")
        body = start + negated
        end = self.glob.find("]", body + 1)
        if end < 0:
            raise BadGlob("a `[` without its `]`; write `\\[` for the character")
        self.at = end + 1
        members = "".join(_member(part) for part in re.findall(r".-.|.", self.glob[body:end], re.DOTALL))
        return f"(?!/)[{'^' if negated else ''}{members}]"


def _member(part: str) -> str:
    if len(part) == 3:
        if part[0] > part[2]:
            raise BadGlob(f"the range `{part}` runs backwards")
        return f"{re.escape(part[0])}-{re.escape(part[2])}"
    return re.escape(part)
