"""JSON with a memory: every value knows where in its file it stands. Comments and trailing commas are tolerated."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from typing import Any, TypeAlias

from msgspec import Struct, field

MAX_DEPTH = 64

_BLANK = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_WORDS = {"true": True, "false": False, "null": None}
_WORD = re.compile(r"[A-Za-z_]+")

Path: TypeAlias = tuple[str | int, ...]


class DocumentError(ValueError):
    """Text that is not JSON: what is wrong, and at which line and column."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {message}")
        self.message = message
        self.line = line
        self.column = column


class Node(Struct, frozen=True):
    """A value, from its first character to behind its last; members of objects and lists are nodes themselves."""

    value: Any
    start: int
    end: int
    members: Mapping[str, Node] = field(default_factory=dict)
    items: tuple[Node, ...] = ()


class Document(Struct, frozen=True):
    """A file's text, read."""

    text: str
    root: Node
    duplicates: tuple[tuple[str, int], ...] = ()
    breaks: tuple[int, ...] = ()

    @property
    def value(self) -> Any:
        """The plain value."""
        return self.root.value

    def node(self, path: Path) -> Node | None:
        """The node at a path of keys and positions."""
        here: Node | None = self.root
        for step in path:
            if here is None:
                return None
            if isinstance(step, int):
                here = here.items[step] if 0 <= step < len(here.items) else None
            else:
                here = here.members.get(step)
        return here

    def line(self, path: Path) -> int | None:
        """The line a value begins on, counted from 1."""
        found = self.node(path)
        return None if found is None else bisect_right(self.breaks, found.start) + 1


def line_and_column(text: str, position: int) -> tuple[int, int]:
    """Line and column of a position, both counted from 1."""
    before = text[:position]
    return before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1


def read(text: str) -> Document:
    """Read a text. Raises `DocumentError` with the place of the first thing that is wrong."""
    reader = _Reader(text.removeprefix("\ufeff"))
    root = reader.document()
    breaks = tuple(found.start() for found in re.finditer("\n", reader.text))
    return Document(reader.text, root, tuple(reader.duplicates), breaks)


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.duplicates: list[tuple[str, int]] = []

    def document(self) -> Node:
        start = self.skip(0)
        if start == len(self.text):
            raise self.error("the file is empty: write at least {}", 0)
        node = self.value(start, 0)
        end = self.skip(node.end)
        if end != len(self.text):
            raise self.error("there is something behind the end of the value", end)
        return node

    def skip(self, position: int) -> int:
        found = _BLANK.match(self.text, position)
        return found.end() if found else position

    def error(self, message: str, position: int) -> DocumentError:
        return DocumentError(message, *line_and_column(self.text, position))

    def value(self, position: int, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise self.error(f"nested more than {MAX_DEPTH} deep", position)
        letter = self.text[position : position + 1]
        if letter == '"':
            value, end = self.string(position)
            return Node(value, position, end)
        if letter == "{":
            return self.object(position, depth)
        if letter == "[":
            return self.array(position, depth)
        return self.plain(position)

    def plain(self, position: int) -> Node:
        if found := _NUMBER.match(self.text, position):
            digits = found[0]
            try:
                return Node(float(digits) if found[1] or found[2] else int(digits), position, found.end())
            except ValueError:
                raise self.error("the number is too long", position) from None
        word = _WORD.match(self.text, position)
        if word and word[0] in _WORDS:
            return Node(_WORDS[word[0]], position, word.end())
        if position >= len(self.text):
            raise self.error("the file ends too early", position)
        seen = word[0] if word else self.text[position]
        raise self.error(f"expected a value, found `{seen}`", position)

    def string(self, position: int) -> tuple[str, int]:
        try:
            value, end = scanstring(self.text, position + 1, True)
        except JSONDecodeError as problem:
            raise self.error(_plain_words(problem.msg), min(problem.pos, len(self.text))) from None
        return value, end

    def object(self, start: int, depth: int) -> Node:
        members: dict[str, Node] = {}
        position = self.skip(start + 1)
        while self.text[position : position + 1] != "}":
            if self.text[position : position + 1] != '"':
                raise self.error("expected a key in double quotes, or `}`", position)
            name, end = self.string(position)
            if name in members:
                self.duplicates.append((name, line_and_column(self.text, position)[0]))
            colon = self.skip(end)
            if self.text[colon : colon + 1] != ":":
                raise self.error(f'expected `:` after "{name}"', colon)
            members[name] = self.value(self.skip(colon + 1), depth + 1)
            position = self.separator(members[name].end, "}")
        return Node({name: node.value for name, node in members.items()}, start, position + 1, members)

    def array(self, start: int, depth: int) -> Node:
        items: list[Node] = []
        position = self.skip(start + 1)
        while self.text[position : position + 1] != "]":
            items.append(self.value(position, depth + 1))
            position = self.separator(items[-1].end, "]")
        return Node([node.value for node in items], start, position + 1, items=tuple(items))

    def separator(self, position: int, closing: str) -> int:
        position = self.skip(position)
        letter = self.text[position : position + 1]
        if letter == ",":
            return self.skip(position + 1)
        if letter != closing:
            raise self.error(f"expected `,` or `{closing}`", position)
        return position


def _plain_words(message: str) -> str:
    return "the string is not closed" if "Unterminated" in message else message[0].lower() + message[1:]


UNIT = "  "


class ShapeError(ValueError):
    """The text holds something else where the change belongs."""


def with_items(text: str | None, path: Sequence[str], items: Sequence[Any]) -> str:
    """The text with items added at the end of a list; what is in the list already is not added again."""
    for item in items:
        document = read(_or_empty(text))
        held = document.node(tuple(path))
        if held is None:
            text = _with_member(document, path, [item])
        elif not isinstance(held.value, list):
            raise ShapeError(f"`{'.'.join(path)}` is not a list")
        elif item not in held.value:
            text = _inserted(document.text, held, list(held.items), _dumped(item))
    return _or_empty(text)


def with_value(text: str | None, path: Sequence[str], value: Any) -> str:
    """The text with one value set."""
    document = read(_or_empty(text))
    held = document.node(tuple(path))
    if held is None:
        return _with_member(document, path, value)
    return document.text[: held.start] + _dumped(value) + document.text[held.end :]


def _or_empty(text: str | None) -> str:
    return text if text is not None and text.strip() else "{}\n"


def _with_member(document: Document, path: Sequence[str], value: Any) -> str:
    known = len(path)
    while (section := document.node(tuple(path[:known]))) is None:
        known -= 1
    if not isinstance(section.value, dict):
        raise ShapeError(f"`{'.'.join(path[:known])}` is not an object" if known else "the file is not an object")
    for name in reversed(path[known + 1 :]):
        value = {name: value}
    depth = _indent(document.text, section.start) + UNIT
    member = f"{_dumped(path[known])}: {_dumped(value, depth)}"
    return _inserted(document.text, section, list(section.members.values()), member)


def _inserted(text: str, container: Node, members: list[Node], new: str) -> str:
    if members:
        last = max(members, key=lambda node: node.end)
        first = min(members, key=lambda node: node.start)
        own_line = "\n" in text[container.start : first.start]
        between = ",\n" + _indent(text, last.start) if own_line else ", "
        return text[: last.end] + between + new + text[last.end :]
    outer = _indent(text, container.start)
    rest = text[container.start + 1 :]
    closing = "\n" + outer if rest.lstrip(" \t\n")[:1] in "]}" else ""
    return f"{text[: container.start + 1]}\n{outer}{UNIT}{new}{closing}{rest.lstrip() if closing else rest}"


def _indent(text: str, position: int) -> str:
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _dumped(value: Any, indent: str = "") -> str:
    if not isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False, indent=UNIT).replace("\n", "\n" + indent)
