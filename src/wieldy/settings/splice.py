"""Changes one value in a settings text and leaves every other character alone: comments, order and layout stay."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from wieldy.settings.document import Document, Node, read

UNIT = "  "


class Unfit(ValueError):
    """The text holds something else where the change belongs."""


def with_items(text: str | None, path: Sequence[str], items: Sequence[Any]) -> str:
    """The text with items added at the end of a list; what is in the list already is not added again."""
    for item in items:
        document = read(_or_empty(text))
        held = document.node(tuple(path))
        if held is None:
            text = _with_member(document, path, [item])
        elif not isinstance(held.value, list):
            raise Unfit(f"`{'.'.join(path)}` is not a list")
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
        raise Unfit(f"`{'.'.join(path[:known])}` is not an object" if known else "the file is not an object")
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
