"""The order in which tools are sent, and which of them by name only. Pure: the same tools give the same bytes."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Literal, TypeAlias
from weakref import WeakKeyDictionary

from msgspec import Struct

from wieldy.core.tool import Tool

CHARS_PER_TOKEN = 4
_weighed: WeakKeyDictionary[Tool, int] = WeakKeyDictionary()


def estimate_tokens(tool: Tool) -> int:
    """The tokens that name, description and schema take."""
    known = _weighed.get(tool)
    if known is None:
        schema = json.dumps(tool.schema, ensure_ascii=False, separators=(",", ":"), default=str)
        known = _weighed[tool] = (len(tool.name) + len(tool.description) + len(schema)) // CHARS_PER_TOKEN + 1
    return known


Defer: TypeAlias = Literal["auto", "always", "never"]

MCP_PREFIX = "mcp__"
SHARE = 0.1


class ToolOrder(Struct, frozen=True):
    """Tools to send in full, in blocks that end at `breaks`, and those to be named only."""

    tools: tuple[Tool, ...]
    breaks: tuple[int, ...]
    deferred: tuple[Tool, ...] = ()


def budget(context_window: int) -> int:
    """The tokens that tools may take of a context before some are sent by name only."""
    return int(context_window * SHARE)


def order_tools(
    tools: Iterable[Tool],
    *,
    builtin: Container[str] = (),
    defer: Defer = "auto",
    tokens: int,
    activated: Sequence[str] = (),
) -> ToolOrder:
    """Our own tools by name, then those of servers by name, then the activated ones in the order of their activation."""
    own: dict[str, Tool] = {}
    foreign: dict[str, Tool] = {}
    for tool in sorted(tools, key=attrgetter("name")):
        (foreign if is_mcp_tool(tool) else own).setdefault(tool.name, tool)
    hidden = _hidden(own, foreign, builtin, defer, tokens)
    blocks = [tool for name, tool in own.items() if name not in hidden]
    ends = [len(blocks)]
    blocks += (tool for name, tool in foreign.items() if name not in hidden)
    ends.append(len(blocks))
    blocks += (hidden.pop(name) for name in dict.fromkeys(activated) if name in hidden)
    ends.append(len(blocks))
    return ToolOrder(tuple(blocks), tuple(dict.fromkeys(end for end in ends if end)), tuple(hidden.values()))


def is_mcp_tool(tool: Tool) -> bool:
    """Whether a tool comes from a server."""
    return tool.name.startswith(MCP_PREFIX)


def _hidden(
    own: Mapping[str, Tool], foreign: Mapping[str, Tool], builtin: Container[str], defer: Defer, tokens: int
) -> dict[str, Tool]:
    """The tools that are not sent in full unless activated.

    Tools declared as deferred always are; those of servers when all together are too heavy; and where our own alone are too
    heavy still, every one that was added to the built-in tools. So what servers bring never changes which of our own are sent.
    """
    if defer == "never":
        return {}
    declared = {name: tool for name, tool in own.items() if tool.deferred and not _always(tool)}
    shy = {name: tool for name, tool in foreign.items() if not _always(tool)}
    if defer == "always":
        return {**declared, **shy}
    plain = [tool for name, tool in own.items() if name not in declared]
    if _fit(chain(plain, foreign.values()), tokens):
        return declared
    if _fit(plain, tokens):
        return {**declared, **shy}
    kept = {tool.name for tool in plain if tool.name in builtin or _always(tool)}
    return {**{name: tool for name, tool in own.items() if name not in kept}, **shy}


def _fit(tools: Iterable[Tool], tokens: int) -> bool:
    """Whether tools weigh no more than this; the weighing ends where the answer is known."""
    for tool in tools:
        tokens -= estimate_tokens(tool)
        if tokens < 0:
            return False
    return tokens >= 0


def _always(tool: Tool) -> bool:
    return bool(getattr(tool, "always_load", False))


MOST_CHARS = 8_000
HEAD = "# Tools to be loaded\nThese exist but are not loaded. ToolSearch loads them; then call them as usual.\n"


def listing(tools: Sequence[Tool], most: int = MOST_CHARS, starting: Sequence[str] = ()) -> str:
    """What the system prompt says of them; empty where there are none. Its length does not grow with their number.

    `starting` are servers whose tools are not known yet: a search waits for them.
    """
    if not tools and not starting:
        return ""
    waiting = f"\nStill starting, ask ToolSearch for their tools: {', '.join(starting[:50])}" if starting else ""
    return HEAD + _names(tools, most) + waiting


def _names(tools: Sequence[Tool], most: int) -> str:
    groups: dict[str, list[str]] = {}
    for tool in tools:
        groups.setdefault(_group(tool.name), []).append(tool.name)
    share = most // max(len(groups), 1)
    lines: list[str] = []
    left = most
    for group, names in sorted(groups.items()):
        line = ", ".join(names)
        if len(line) > max(share, left // (len(groups) - len(lines))):
            line = f"{group}: {len(names)} tools, such as {names[0]}"
        if len(line) > left:
            return f"{chr(10).join(lines)}\n… and {sum(map(len, groups.values())) - _count(lines, groups)} more"
        lines.append(line)
        left -= len(line)
    return "\n".join(lines)


def _count(lines: list[str], groups: dict[str, list[str]]) -> int:
    return sum(len(groups[group]) for group in sorted(groups)[: len(lines)])


def _group(name: str) -> str:
    parts = name.split("__")
    return "__".join(parts[:2]) if len(parts) > 2 else "others"
