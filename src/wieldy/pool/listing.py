"""The deferred tools as a model is told of them: by name, or by server where there are too many to name."""

from __future__ import annotations

from collections.abc import Sequence

from wieldy.core.tool import Tool

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
