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

Defer: TypeAlias = Literal["auto", "always", "never"]

CHARS_PER_TOKEN = 4
CONTEXT_SHARE = 0.1
MCP_PREFIX = "mcp__"
MAX_LISTING_CHARS = 8_000
LISTING_HEADER = (
    "# Tools to be loaded\nThese exist but are not loaded. ToolSearch loads them; then call them as usual.\n"
)

_token_estimates: WeakKeyDictionary[Tool, int] = WeakKeyDictionary()


class ToolOrder(Struct, frozen=True):
    """Tools to send in full, in blocks that end at `breaks`, and those to send by name only."""

    tools: tuple[Tool, ...]
    breaks: tuple[int, ...]
    deferred: tuple[Tool, ...] = ()


def order_tools(
    tools: Iterable[Tool],
    *,
    builtin: Container[str] = (),
    defer: Defer = "auto",
    tokens: int,
    activated: Sequence[str] = (),
) -> ToolOrder:
    """Own tools by name, then those of MCP servers by name, then activated ones in the order of their activation."""
    own: dict[str, Tool] = {}
    mcp: dict[str, Tool] = {}
    for tool in sorted(tools, key=attrgetter("name")):
        (mcp if is_mcp_tool(tool) else own).setdefault(tool.name, tool)
    deferred = _deferred(own, mcp, builtin, defer, tokens)
    sent = [tool for name, tool in own.items() if name not in deferred]
    ends = [len(sent)]
    sent += (tool for name, tool in mcp.items() if name not in deferred)
    ends.append(len(sent))
    sent += (deferred.pop(name) for name in dict.fromkeys(activated) if name in deferred)
    ends.append(len(sent))
    return ToolOrder(tuple(sent), tuple(dict.fromkeys(end for end in ends if end)), tuple(deferred.values()))


def is_mcp_tool(tool: Tool) -> bool:
    """Whether a tool comes from an MCP server."""
    return tool.name.startswith(MCP_PREFIX)


def token_budget(context_window: int) -> int:
    """How many tokens tools may take of a context before some are deferred."""
    return int(context_window * CONTEXT_SHARE)


def estimate_tokens(tool: Tool) -> int:
    """Estimate the tokens that name, description and schema take."""
    estimate = _token_estimates.get(tool)
    if estimate is None:
        schema = json.dumps(tool.schema, ensure_ascii=False, separators=(",", ":"), default=str)
        estimate = (len(tool.name) + len(tool.description) + len(schema)) // CHARS_PER_TOKEN + 1
        _token_estimates[tool] = estimate
    return estimate


def _deferred(
    own: Mapping[str, Tool], mcp: Mapping[str, Tool], builtin: Container[str], defer: Defer, tokens: int
) -> dict[str, Tool]:
    """The tools that are not sent in full unless activated.

    Tools declared as deferred always are; those of servers when all together exceed the budget; and where our own alone exceed
    it, every one that was added to the built-in tools. So what servers bring never changes which of our own are sent.
    """
    if defer == "never":
        return {}
    declared = {name: tool for name, tool in own.items() if tool.deferred and not _is_always_loaded(tool)}
    deferrable = {name: tool for name, tool in mcp.items() if not _is_always_loaded(tool)}
    if defer == "always":
        return {**declared, **deferrable}
    rest = [tool for name, tool in own.items() if name not in declared]
    if _fit(chain(rest, mcp.values()), tokens):
        return declared
    if _fit(rest, tokens):
        return {**declared, **deferrable}
    sent = {tool.name for tool in rest if tool.name in builtin or _is_always_loaded(tool)}
    return {**{name: tool for name, tool in own.items() if name not in sent}, **deferrable}


def _fit(tools: Iterable[Tool], tokens: int) -> bool:
    for tool in tools:
        tokens -= estimate_tokens(tool)
        if tokens < 0:
            return False
    return tokens >= 0


def _is_always_loaded(tool: Tool) -> bool:
    return bool(getattr(tool.unwrapped, "always_load", False))


def list_deferred(tools: Sequence[Tool], most: int = MAX_LISTING_CHARS, starting: Sequence[str] = ()) -> str:
    """What the system prompt says of deferred tools; empty where there are none. Its length does not grow with their number.

    `starting` are servers whose tools are not known yet: a search waits for them.
    """
    if not tools and not starting:
        return ""
    pending = f"\nStill starting, ask ToolSearch for their tools: {', '.join(starting[:50])}" if starting else ""
    return LISTING_HEADER + _list_names(tools, most) + pending


def _list_names(tools: Sequence[Tool], most: int) -> str:
    groups: dict[str, list[str]] = {}
    for tool in tools:
        groups.setdefault(_group(tool.name), []).append(tool.name)
    share = most // max(len(groups), 1)
    lines: list[str] = []
    remaining = most
    unlisted = len(tools)
    for group, names in sorted(groups.items()):
        line = ", ".join(names)
        if len(line) > max(share, remaining // (len(groups) - len(lines))):
            line = f"{group}: {len(names)} tools, such as {names[0]}"
        if len(line) > remaining:
            return f"{chr(10).join(lines)}\n… and {unlisted} more"
        lines.append(line)
        remaining -= len(line)
        unlisted -= len(names)
    return "\n".join(lines)


def _group(name: str) -> str:
    parts = name.split("__")
    return "__".join(parts[:2]) if len(parts) > 2 else "others"
