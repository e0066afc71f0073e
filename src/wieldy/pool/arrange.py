"""The order in which tools are sent, and which of them by name only. Pure: the same tools give the same bytes."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, TypeAlias

from wieldy.core.tool import Tool
from wieldy.pool.weight import weigh

Defer: TypeAlias = Literal["auto", "always", "never"]

FOREIGN = "mcp__"
SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Arranged:
    """Tools to send in full, in blocks that end at `breaks`, and those to be named only."""

    tools: tuple[Tool, ...]
    breaks: tuple[int, ...]
    deferred: tuple[Tool, ...] = ()


def budget(context_window: int) -> int:
    """The tokens that tools may take of a context before some are sent by name only."""
    return int(context_window * SHARE)


def arrange(
    tools: Iterable[Tool],
    *,
    builtin: Container[str] = (),
    defer: Defer = "auto",
    tokens: int,
    activated: Sequence[str] = (),
) -> Arranged:
    """Our own tools by name, then those of servers by name, then the activated ones in the order of their activation."""
    unique: dict[str, Tool] = {}
    for tool in sorted(tools, key=lambda tool: (is_foreign(tool), tool.name)):
        unique.setdefault(tool.name, tool)
    hidden = _hidden(list(unique.values()), builtin, defer, tokens)
    own = [tool for name, tool in unique.items() if not is_foreign(tool) and name not in hidden]
    foreign = [tool for name, tool in unique.items() if is_foreign(tool) and name not in hidden]
    added = [unique[name] for name in dict.fromkeys(activated) if name in hidden]
    awake = {tool.name for tool in added}
    return Arranged(
        (*own, *foreign, *added),
        tuple(dict.fromkeys(end for end in accumulate(map(len, (own, foreign, added))) if end)),
        tuple(unique[name] for name in hidden if name not in awake),
    )


def is_foreign(tool: Tool) -> bool:
    """Whether a tool comes from a server."""
    return tool.name.startswith(FOREIGN)


def _hidden(tools: list[Tool], builtin: Container[str], defer: Defer, tokens: int) -> dict[str, None]:
    """The names of the tools that are not sent in full unless activated.

    Tools declared as deferred always are; those of servers when all together are too heavy; and where our own alone are too
    heavy still, every one that was added to the built-in tools. So what servers bring never changes which of our own are sent.
    """
    if defer == "never":
        return {}
    declared = {tool.name for tool in tools if tool.deferred and not _always(tool)}
    foreign = {tool.name for tool in tools if is_foreign(tool) and not _always(tool)}
    if defer == "always":
        return _in_order(tools, declared | foreign)
    if sum(weigh(tool) for tool in tools if tool.name not in declared) <= tokens:
        return _in_order(tools, declared)
    own = [tool for tool in tools if not is_foreign(tool) and tool.name not in declared]
    added: set[str] = set()
    if sum(map(weigh, own)) > tokens:
        added = {tool.name for tool in own if tool.name not in builtin and not _always(tool)}
    return _in_order(tools, declared | foreign | added)


def _in_order(tools: list[Tool], names: set[str]) -> dict[str, None]:
    return dict.fromkeys(tool.name for tool in tools if tool.name in names)


def _always(tool: Tool) -> bool:
    return bool(getattr(tool, "always_load", False))
