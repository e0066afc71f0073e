"""One kind of sub-agent: what it is for, what it is told, and what it may use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, TypeAlias

from wieldy.core.record import record
from wieldy.schema.pattern import pattern
from wieldy.skills.frontmatter import BadHead, Value, read_page

Origin: TypeAlias = Literal["built-in", "user", "project"]

NAME = pattern(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
MODES = frozenset({"default", "manual", "acceptEdits", "plan", "bypassPermissions", "dontAsk", "auto"})
RENAMED = {"Task": "Agent"}
# Tools that change nothing: an agent that has no others may run beside anything.
READERS = frozenset(
    {
        *("Read", "Grep", "Glob", "LS", "NotebookRead", "Think", "Skill", "ToolSearch", "BashOutput"),
        *("WebFetch", "WebSearch", "ListMcpResources", "ReadMcpResource", "MemoryRead"),
    }
)


@record
class Definition:
    """A kind of sub-agent. `tools` are names or patterns, None for all its parent has; `without` are taken away again.

    `mode` can only make it stricter than its parent is; `model` is None for its parent's.
    """

    name: str
    description: str
    prompt: str
    origin: Origin = "built-in"
    path: str = ""
    tools: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    model: str | None = None
    mode: str | None = None
    turns: int | None = None
    background: bool = False

    @property
    def reads_only(self) -> bool:
        """Whether nothing it could do would change anything."""
        return self.mode == "plan" or (self.tools is not None and READERS.issuperset(self.tools))


def read_definition(text: str, path: str, origin: Origin) -> Definition:
    """The kind of agent that a file describes. Raises `BadHead` for one that cannot be used."""
    page = read_page(text)
    fields = page.fields
    name = fields.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise BadHead(2, "`name` is missing, or is no name: use up to 64 letters, digits and dashes")
    description = fields.get("description")
    if not isinstance(description, str) or not description.strip():
        raise BadHead(2, "`description` is missing: it says when to use this agent")
    if not page.body.strip():
        raise BadHead(2, "there is no text below the head: it is what the agent is told")
    return Definition(
        name,
        " ".join(description.split()),
        page.body.strip(),
        origin,
        path,
        tools=_tools(fields.get("tools")),
        without=_names(fields.get("disallowedTools"), "disallowedTools"),
        model=_model(fields.get("model")),
        mode=_mode(fields.get("permissionMode")),
        turns=_count(fields.get("maxTurns")),
        background=fields.get("background") is True,
    )


def _tools(value: Value | None) -> tuple[str, ...] | None:
    names = None if value is None else _names(value, "tools")
    return None if names is None or names == ("*",) else names


def _names(value: Value | None, field: str) -> tuple[str, ...]:
    names = tuple(RENAMED.get(name, name) for name in _words(value))
    for name in names:
        if not re.fullmatch(r"[\w*.-]+", name):
            # A rule that was read as a name would allow more than its author meant.
            raise BadHead(2, f"`{field}` takes names of tools, not `{name}`: write rules into the settings")
    return names


def _words(value: Value | None) -> Iterator[str]:
    if isinstance(value, list):
        yield from (str(item).strip() for item in value)
    elif isinstance(value, str):
        yield from re.findall(r"[^\s,(]+(?:\([^)]*\))?", value)


def _model(value: Value | None) -> str | None:
    if value is None or value in ("", "inherit"):
        return None
    if not isinstance(value, str):
        raise BadHead(2, "`model` is no name of a model")
    return value


def _mode(value: Value | None) -> str | None:
    if value is None or value == "":
        return None
    if value not in MODES:
        raise BadHead(2, f"`permissionMode` is none of {', '.join(sorted(MODES))}")
    return None if value == "auto" else str(value)


def _count(value: Value | None) -> int | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.isascii() or not value.isdigit() or int(value[:9]) < 1:
        raise BadHead(2, "`maxTurns` must be a whole number above 0")
    return int(value[:9])
