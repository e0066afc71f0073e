"""Parse JSON into nodes that know where they stand in the text, so that single values can be replaced in place."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from functools import cached_property
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from typing import Any, TypeAlias

from msgspec import Struct

MAX_DEPTH = 64
MAX_DUPLICATES = 50

JsonPath: TypeAlias = tuple[str | int, ...]

_SPACE = re.compile(r"[ \t\r\n]*")
_SPACE_OR_COMMENT = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_WORD = re.compile(r"[A-Za-z_]+")
_CONSTANTS = {"true": True, "false": False, "null": None}
_decode = json.JSONDecoder().raw_decode


def comma_after(text: str, position: int) -> int | None:
    """The position of the comma that follows, with only blanks and comments before it; None where another token does."""
    end = _SPACE_OR_COMMENT.match(text, position).end()  # type: ignore[union-attr]
    return end if text[end : end + 1] == "," else None


class JsonSyntaxError(ValueError):
    """The text is not JSON: what is wrong, at which line and column (counted from 1)."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {message}")
        self.message = message
        self.line = line
        self.column = column


class JsonNode(Struct, frozen=True, dict=True):
    """A value and the range of text it stands in. Objects have `members`, arrays `items`, as far as positions were asked
    for."""

    value: Any
    start: int
    end: int
    members: tuple[JsonMember, ...] = ()
    items: tuple[JsonNode, ...] = ()

    def member(self, name: str) -> JsonMember | None:
        """The member of this name; of several the last, which is the one that counts."""
        return self._by_name.get(name)

    @cached_property
    def _by_name(self) -> dict[str, JsonMember]:
        return {member.name: member for member in self.members}


class JsonMember(Struct, frozen=True):
    """One `"name": value` of an object; the quoted name stands from `start` to `name_end`."""

    name: str
    start: int
    name_end: int
    node: JsonNode


class JsonDocument(Struct, frozen=True, dict=True):
    """A parsed text. `duplicates` are the names that occur again in the same object, each with its line."""

    text: str
    root: JsonNode
    duplicates: tuple[tuple[str, int], ...] = ()

    @property
    def value(self) -> Any:
        """The plain value."""
        return self.root.value

    def node(self, path: JsonPath) -> JsonNode | None:
        """The node at a path of names and indices."""
        node = self.root
        for step in path:
            if isinstance(step, int):
                if not 0 <= step < len(node.items):
                    return None
                node = node.items[step]
            elif member := node.member(step):
                node = member.node
            else:
                return None
        return node

    def line(self, path: JsonPath) -> int | None:
        """The line a value begins on, counted from 1."""
        node = self.node(path)
        return None if node is None else bisect_left(self._newlines, node.start) + 1

    @cached_property
    def _newlines(self) -> list[int]:
        """Where the lines end: a file with thousands of rules is asked for as many lines."""
        return [match.start() for match in re.finditer("\n", self.text)]


def parse_json(text: str, *, relaxed: bool = False, depth: int = MAX_DEPTH) -> JsonDocument:
    """Parse a text; raises `JsonSyntaxError`.

    `relaxed` tolerates comments, trailing commas and a byte order mark. Without it, values nested deeper than `depth` get
    no nodes of their own, which makes large documents cheap.
    """
    parser = _Parser(text.removeprefix("\ufeff") if relaxed else text, relaxed, depth)
    root = parser.document()
    return JsonDocument(parser.text, root, tuple(parser.duplicates))


def parse_json_value(text: str, start: int, depth: int = MAX_DEPTH) -> JsonNode:
    """Parse the value that begins at `start`, with nodes down to `depth`."""
    return _Parser(text, False, depth).value(start, 0)


def line_and_column(text: str, position: int) -> tuple[int, int]:
    """Line and column of a position, both counted from 1."""
    return text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)


class _Parser:
    def __init__(self, text: str, relaxed: bool, depth: int) -> None:
        self.text = text
        self.relaxed = relaxed
        self.depth = depth
        self.duplicates: list[tuple[str, int]] = []

    def document(self) -> JsonNode:
        start = self.skip_space(0)
        if start == len(self.text):
            raise self.error("the file is empty: write at least {}", 0)
        node = self.value(start, 0)
        end = self.skip_space(node.end)
        if end != len(self.text):
            raise self.error("there is something behind the end of the value", end)
        return node

    def value(self, position: int, depth: int) -> JsonNode:
        if depth > MAX_DEPTH:
            raise self.error(f"nested more than {MAX_DEPTH} deep", position)
        opening = self.text[position : position + 1]
        if opening == '"':
            string, end = self.string(position)
            return JsonNode(string, position, end)
        if not self.relaxed and (depth >= self.depth or opening not in ("{", "[")):
            return self.decoded(position)
        if opening == "{":
            return self.object(position, depth)
        if opening == "[":
            return self.array(position, depth)
        return self.scalar(position)

    def decoded(self, position: int) -> JsonNode:
        """A value without nodes for its parts, parsed by the standard library."""
        try:
            value, end = _decode(self.text, position)
        except JSONDecodeError as error:
            raise self.error(_plain_message(error.msg), min(error.pos, len(self.text))) from None
        except (ValueError, RecursionError) as error:
            raise self.error(str(error), position) from None
        return JsonNode(value, position, end)

    def scalar(self, position: int) -> JsonNode:
        if number := _NUMBER.match(self.text, position):
            digits = number[0]
            try:
                return JsonNode(float(digits) if number[1] or number[2] else int(digits), position, number.end())
            except ValueError:
                raise self.error("the number is too long", position) from None
        word = _WORD.match(self.text, position)
        if word and word[0] in _CONSTANTS:
            return JsonNode(_CONSTANTS[word[0]], position, word.end())
        if position >= len(self.text):
            raise self.error("the file ends too early", position)
        raise self.error(f"expected a value, found `{word[0] if word else self.text[position]}`", position)

    def string(self, position: int) -> tuple[str, int]:
        try:
            value, end = scanstring(self.text, position + 1, True)
        except JSONDecodeError as error:
            raise self.error(_plain_message(error.msg), min(error.pos, len(self.text))) from None
        return value, end

    def object(self, start: int, depth: int) -> JsonNode:
        members: list[JsonMember] = []
        values: dict[str, Any] = {}
        position = self.skip_space(start + 1)
        while not self.text.startswith("}", position):
            if not self.text.startswith('"', position):
                raise self.error("expected a key in double quotes, or `}`", position)
            name, name_end = self.string(position)
            if name in values and len(self.duplicates) < MAX_DUPLICATES:
                self.duplicates.append((name, line_and_column(self.text, position)[0]))
            colon = self.skip_space(name_end)
            if not self.text.startswith(":", colon):
                raise self.error(f'expected `:` after "{name}"', colon)
            node = self.value(self.skip_space(colon + 1), depth + 1)
            members.append(JsonMember(name, position, name_end, node))
            values[name] = node.value
            position = self.separator(node.end, "}")
        return JsonNode(values, start, position + 1, tuple(members))

    def array(self, start: int, depth: int) -> JsonNode:
        items: list[JsonNode] = []
        position = self.skip_space(start + 1)
        while not self.text.startswith("]", position):
            items.append(self.value(position, depth + 1))
            position = self.separator(items[-1].end, "]")
        return JsonNode([node.value for node in items], start, position + 1, items=tuple(items))

    def separator(self, position: int, closing: str) -> int:
        """Where the next part begins, or the closing bracket stands."""
        position = self.skip_space(position)
        if self.text.startswith(closing, position):
            return position
        if not self.text.startswith(",", position):
            raise self.error(f"expected `,` or `{closing}`", position)
        following = self.skip_space(position + 1)
        if not self.relaxed and self.text.startswith(closing, following):
            raise self.error(f"a comma before `{closing}`", position)
        return following

    def skip_space(self, position: int) -> int:
        match = (_SPACE_OR_COMMENT if self.relaxed else _SPACE).match(self.text, position)
        return match.end() if match else position

    def error(self, message: str, position: int) -> JsonSyntaxError:
        return JsonSyntaxError(message, *line_and_column(self.text, position))


def _plain_message(message: str) -> str:
    return "the string is not closed" if "Unterminated" in message else message[0].lower() + message[1:]
