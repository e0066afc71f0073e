"""Parses Markdown files with a YAML front matter. Errors name the line in the file.

Scalars stay text, except for `true` and `false`: a version `1.10` or a name `no` means what its author wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from yaml import Event

MAX_DEPTH = 20
MAX_NAMES_CHARS = 4_000
_FENCE = "---"
# `description: Use this: always` is not YAML, but what many authors write.
_UNQUOTED = re.compile(r"^([A-Za-z_][\w.-]*:[ \t]+)([^\s\"'\[{|>&*!%@`#][^\n]*)$", re.MULTILINE)
_LISTED_NAME = re.compile(r"[^\s,(]+(?:\([^)]*\))?")


class FrontMatterError(ValueError):
    """The front matter cannot be used; the message has the line."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}")


class MarkdownFile(Struct, frozen=True):
    """A Markdown file: the fields of its front matter and the text below."""

    fields: dict[str, Any]
    body: str


def parse_markdown(text: str) -> MarkdownFile:
    """Split a file into front matter and body; one without front matter is all body. Raises `FrontMatterError`."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != _FENCE:
        return MarkdownFile({}, "\n".join(lines))
    end = next((number for number, line in enumerate(lines) if number and line.rstrip() in (_FENCE, "...")), None)
    if end is None:
        raise FrontMatterError(1, "the front matter is never closed: a line `---` is missing")
    head = "\n".join(lines[1:end])
    try:
        fields = _parse_fields(head)
    except FrontMatterError:
        quoted = _UNQUOTED.sub(_quote_colons, head)
        if quoted == head:
            raise
        fields = _parse_fields(quoted)
    return MarkdownFile(fields, "\n".join(lines[end + 1 :]).strip("\n"))


def _quote_colons(line: re.Match[str]) -> str:
    value, comment, _ = line[2].partition(" #")
    if ": " not in value and not value.rstrip().endswith(":"):
        return line[0]
    return line[1] + "'" + value.rstrip().replace("'", "''") + "'" + (" #" if comment else "")


def parse_names(value: Any, field: str) -> tuple[str, ...]:
    """Read a list of names, or a text with names separated by commas or blanks outside parentheses."""
    if isinstance(value, str):
        return tuple(_LISTED_NAME.findall(value[:MAX_NAMES_CHARS]))
    if value is None or (isinstance(value, list) and all(isinstance(item, str) for item in value)):
        return tuple(item.strip() for item in value or ())
    raise FrontMatterError(2, f"`{field}` must be a list of names")


def _parse_fields(head: str) -> dict[str, Any]:
    import yaml

    # Events instead of `yaml.load`: they have lines, show duplicate keys, and cannot nest or expand without end.
    events = (
        event
        for event in yaml.parse(head, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        if not isinstance(event, (yaml.StreamStartEvent, yaml.DocumentStartEvent))
    )
    try:
        first = next(events)
        if isinstance(first, yaml.StreamEndEvent):
            return {}
        if not isinstance(first, yaml.MappingStartEvent):
            raise _error(first, "`name: value` was expected")
        fields: dict[str, Any] = _build(first, events, 0)
        for event in events:
            if not isinstance(event, (yaml.DocumentEndEvent, yaml.StreamEndEvent)):
                raise _error(event, "the front matter is one document")
        return fields
    except yaml.MarkedYAMLError as error:
        # What is never closed is reported where it begins.
        is_unclosed = error.context is not None and ("quoted" in error.context or "flow" in error.context)
        mark = error.context_mark if is_unclosed else error.problem_mark
        problem = " ".join(filter(None, (error.problem, error.context)))
        raise FrontMatterError(mark.line + 2 if mark else 2, problem) from None
    except yaml.YAMLError as error:
        raise FrontMatterError(2, str(error).splitlines()[0]) from None


def _build(event: Event, events: Iterator[Event], depth: int) -> Any:
    """Build the value that begins with this event."""
    import yaml

    if depth > MAX_DEPTH:
        raise _error(event, f"nested more than {MAX_DEPTH} deep")
    if isinstance(event, yaml.ScalarEvent):
        return event.value == "true" if not event.style and event.value in ("true", "false") else event.value
    if isinstance(event, yaml.SequenceStartEvent):
        items = []
        while not isinstance(item := next(events), yaml.SequenceEndEvent):
            items.append(_build(item, events, depth + 1))
        return items
    if isinstance(event, yaml.MappingStartEvent):
        members: dict[str, Any] = {}
        while not isinstance(key := next(events), yaml.MappingEndEvent):
            if not isinstance(key, yaml.ScalarEvent):
                raise _error(key, "a name must be a text")
            if key.value in members:
                raise _error(key, f"`{key.value}` is there twice")
            members[key.value] = _build(next(events), events, depth + 1)
        return members
    raise _error(event, "aliases are not supported: write the value again")


def _error(event: Event, problem: str) -> FrontMatterError:
    return FrontMatterError(event.start_mark.line + 2 if event.start_mark else 2, problem)
