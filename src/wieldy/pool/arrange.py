"""The order in which tools are sent, and which of them by name only. Pure: the same tools give the same bytes."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Literal, TypeAlias

from wieldy.core.record import record
from wieldy.core.tool import Tool
from wieldy.pool.weight import weigh

Defer: TypeAlias = Literal["auto", "always", "never"]

FOREIGN = "mcp__"
SHARE = 0.1


@record
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
    own: dict[str, Tool] = {}
    foreign: dict[str, Tool] = {}
    for tool in sorted(tools, key=attrgetter("name")):
        (foreign if is_foreign(tool) else own).setdefault(tool.name, tool)
    hidden = _hidden(own, foreign, builtin, defer, tokens)
    blocks = [tool for name, tool in own.items() if name not in hidden]
    ends = [len(blocks)]
    blocks += (tool for name, tool in foreign.items() if name not in hidden)
    ends.append(len(blocks))
    blocks += (hidden.pop(name) for name in dict.fromkeys(activated) if name in hidden)
    ends.append(len(blocks))
    return Arranged(tuple(blocks), tuple(dict.fromkeys(end for end in ends if end)), tuple(hidden.values()))


def is_foreign(tool: Tool) -> bool:
    """Whether a tool comes from a server."""
    return tool.name.startswith(FOREIGN)


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
        tokens -= weigh(tool)
        if tokens < 0:
            return False
    return tokens >= 0


def _always(tool: Tool) -> bool:
    return bool(getattr(tool, "always_load", False))
