"""The head of a Markdown file: the part of YAML that such heads use, read strictly, with the line of every fault.

Read are plain, quoted and block scalars, lists in both spellings and mappings one level deep. Anchors, tags, and deeper
nesting are faults; a scalar is text except for `true` and `false`.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeAlias

from msgspec import Struct

Scalar: TypeAlias = str | bool
Value: TypeAlias = Scalar | list[Scalar] | dict[str, Scalar]

_KEY = re.compile(r"([A-Za-z_][\w.-]*)\s*:(?:\s+(.*)|)$")
_BLOCK = re.compile(r"([|>])[+-]?$")
_FENCE = "---"
# Possessive throughout: a file that was made to be slow is not.
_QUOTED = r"(?>\"(?:[^\"\\]|\\.)*+\"|'(?:[^']|'')*+')"
_WHOLE = re.compile(rf"({_QUOTED}|\[(?:{_QUOTED}|[^\]\"'])*+\])\s+#")
_ITEM = re.compile(rf"{_QUOTED}|[^\s,][^,]*")


class FrontMatterError(ValueError):
    """The head cannot be read; the message has the line."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line}: {why}")


class MarkdownFile(Struct, frozen=True):
    """A Markdown file: the fields of its head and the text below."""

    fields: dict[str, Value]
    body: str


def parse_markdown(text: str) -> MarkdownFile:
    """The head and the body of a file; a file without a head is all body. Raises `BadHead`."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != _FENCE:
        return MarkdownFile({}, "\n".join(lines))
    end = next((n for n, line in enumerate(lines[1:], start=1) if line.rstrip() in (_FENCE, "...")), None)
    if end is None:
        raise FrontMatterError(1, "the head is never closed: a line `---` is missing")
    return MarkdownFile(_Head(lines[1:end]).read(), "\n".join(lines[end + 1 :]).strip("\n"))


class _Head:
    """The lines of a head, read from top to bottom. The first has number 2: above it is the fence."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = self._line = 0

    def read(self) -> dict[str, Value]:
        fields: dict[str, Value] = {}
        while (line := self._next()) is not None:
            if line[0] in " \t":
                raise self._fault("an indented line that belongs to nothing")
            name, rest = self._key(line)
            if name in fields:
                raise self._fault(f"`{name}` is there twice")
            self._at += 1
            fields[name] = self._value(rest)
        return fields

    def _next(self) -> str | None:
        """The next line that is neither empty nor a comment."""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.strip() and not line.lstrip().startswith("#"):
                self._line = self._at
                return line
            self._at += 1
        return None

    def _key(self, line: str) -> tuple[str, str]:
        match = _KEY.match(line.strip())
        if match is None:
            raise self._fault("`name: value` was expected")
        return match[1], _uncommented(match[2] or "")

    def _value(self, rest: str) -> Value:
        if block := _BLOCK.match(rest):
            return self._block(folded=block[1] == ">")
        if rest.startswith("["):
            return self._flow(rest)
        if rest:
            return self._scalar(" ".join([rest, *self._continuation()]) if rest[0] not in "\"'" else rest)
        line = self._next()
        if line is None:
            return ""
        if re.match(r"\s*-(\s|$)", line):
            return self._items()
        return self._nested() if line[0] in " \t" else ""

    def _block(self, *, folded: bool) -> str:
        taken: list[str] = []
        while self._at < len(self._lines) and (not (line := self._lines[self._at]).strip() or line[0] == " "):
            taken.append(line)
            self._at += 1
        indent = min((len(line) - len(line.lstrip()) for line in taken if line.strip()), default=0)
        lines = [line[indent:].rstrip() for line in taken]
        text = "\n".join(lines).strip("\n")
        return re.sub(r"(?<!\n)\n(?!\n)", " ", text).replace("\n\n", "\n") if folded else text

    def _continuation(self) -> list[str]:
        """Further lines of a plain scalar: those that are indented."""
        taken: list[str] = []
        while self._at < len(self._lines) and self._lines[self._at][:1] == " " and self._lines[self._at].strip():
            taken.append(_uncommented(self._lines[self._at].strip()))
            self._at += 1
        return taken

    def _items(self) -> list[Scalar]:
        found: list[Scalar] = []
        while (line := self._next()) is not None and (match := re.match(r"\s*-(?:\s+(.*)|)$", line)):
            found.append(self._scalar(_uncommented(match[1] or "")))
            self._at += 1
        return found

    def _nested(self) -> dict[str, Scalar]:
        found: dict[str, Scalar] = {}
        indent: int | None = None
        while (line := self._next()) is not None and line[0] in " \t":
            depth = len(line) - len(line.lstrip(" "))
            indent = depth if indent is None else indent
            if depth != indent or "\t" in line[: len(line) - len(line.lstrip())]:
                raise self._fault("only one level of indentation, by spaces, is read here")
            name, rest = self._key(line)
            found[name] = self._scalar(rest)
            self._at += 1
        return found

    def _flow(self, text: str) -> list[Scalar]:
        if not text.endswith("]"):
            raise self._fault("a list in brackets must end on its line")
        items = _ITEM.findall(text[1:-1])
        return [self._scalar(item.strip()) for item in items if item.strip()]

    def _scalar(self, text: str) -> Scalar:
        if text in ("true", "false"):
            return text == "true"
        if text.startswith('"'):
            try:
                found: Any = json.loads(text, strict=False)
            except ValueError:
                raise self._fault("a text in double quotes does not end, or holds a wrong escape") from None
            return str(found)
        if text.startswith("'"):
            if len(text) < 2 or not text.endswith("'"):
                raise self._fault("a text in single quotes does not end")
            return text[1:-1].replace("''", "'")
        if text[:1] in "&*!{%@`" and text:
            raise self._fault(f"`{text[0]}` at the start of a value is not read here: put the value in quotes")
        return text

    def _fault(self, why: str) -> FrontMatterError:
        return FrontMatterError(self._line + 2, why)


def _uncommented(text: str) -> str:
    """A value without the comment behind it; a `#` in quotes begins none."""
    if text[:1] in ('"', "'", "["):
        match = _WHOLE.match(text)
        return match[1] if match else text.strip()
    return re.split(r"(?:^|\s)#", text, maxsplit=1)[0].strip()
