"""Which of all tools fit the context: its mode or list, the deny rules, and what each tool says of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct

from wieldy.core.catalog import ToolAvailability
from wieldy.core.tool import Tool

SIMPLE_TOOLS = frozenset({"Bash", "Edit", "Read"})
PLAN_TOOLS = frozenset({"ExitPlan"})


class Context(Struct, frozen=True):
    """Who will be offered tools. `only` is a sub-agent's list: names, or patterns such as `mcp__github__*`."""

    mode: str = "default"
    simple: bool = False
    only: tuple[str, ...] | None = None


def why_excluded(tool: Tool, context: Context) -> str | None:
    """Why the context has no use for a tool, or None."""
    if (reason := why_excluded_by_name(tool.name, context)) is not None:
        return reason
    if context.mode == "plan" and not tool.read_only:
        return "plan mode only reads, and this tool may change something"
    return None


def why_excluded_by_name(name: str, context: Context) -> str | None:
    """Why the context has no use for a tool of this name, whatever it is, or None."""
    if context.simple and name not in SIMPLE_TOOLS:
        return f"simple mode has only {', '.join(sorted(SIMPLE_TOOLS))}"
    if context.mode != "plan" and name in PLAN_TOOLS:
        return "only for plan mode"
    if context.only is not None and not any(fnmatchcase(name, wanted) for wanted in context.only):
        return "not in the list of this agent"
    return None


async def check_availability(
    tools: Sequence[Tool],
    context: Context,
    *,
    gate: Callable[[str], str | None],
    removes: Callable[[str], object | None],
    enabled: Callable[[Tool], Awaitable[bool | str]],
) -> list[ToolAvailability]:
    """Every tool, in the order given: whether it is offered, and why or why not. All self-checks run side by side."""
    answers = [_reason(tool, context, gate, removes) for tool in tools]
    asked = [tool for tool, reason in zip(tools, answers, strict=True) if reason is None and tool.has_enabled_check]
    said = dict(zip(map(id, asked), await asyncio.gather(*(_asked(tool, enabled) for tool in asked)), strict=True))
    return [
        ToolAvailability(tool, reason is None, reason or "available")
        for tool, reason in ((tool, reason or said.get(id(tool))) for tool, reason in zip(tools, answers, strict=True))
    ]


def _reason(
    tool: Tool, context: Context, gate: Callable[[str], str | None], removes: Callable[[str], object | None]
) -> str | None:
    if (shut := gate(tool.name) or why_excluded(tool, context)) is not None:
        return shut
    removed = removes(tool.name)
    return None if removed is None else str(removed)


async def _asked(tool: Tool, enabled: Callable[[Tool], Awaitable[bool | str]]) -> str | None:
    """What the tool says against itself; one that fails or does not answer in time is not offered."""
    try:
        answer = await enabled(tool)
    except Exception as error:
        return f"its self-check failed: {' '.join(str(error).split()) or type(error).__name__}"
    return None if answer is True else answer or "it is not available here"


GATES: Mapping[str, str] = {
    "Architect": "architect",
    "MemoryRead": "memory",
    "MemoryWrite": "memory",
    "StickerRequest": "stickers",
}
FAMILIES: Mapping[str, str] = {"Browser": "browser"}
PREFIX = "WIELDY_FEATURE_"
YES = frozenset({"1", "true", "yes", "on"})
SIMPLE = "simple"


def is_feature_enabled(feature: str, settings: Mapping[str, Any], env: Mapping[str, str]) -> bool:
    """Whether a feature is switched on; the environment has the last word."""
    said = env.get(PREFIX + feature.upper())
    if said is not None:
        return said.strip().lower() in YES
    features = settings.get("features")
    return isinstance(features, Mapping) and features.get(feature) is True


def feature_gate(name: str, settings: Mapping[str, Any], env: Mapping[str, str]) -> str | None:
    """Why a tool is off, or None where no gate is shut before it."""
    feature = GATES.get(name) or next((f for family, f in FAMILIES.items() if name.startswith(family)), None)
    if feature is None or is_feature_enabled(feature, settings, env):
        return None
    return f"off: switch it on with `features.{feature}` in the settings or {PREFIX}{feature.upper()}=1"
