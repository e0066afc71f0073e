"""Which tools are available in a context: feature gates, mode, a subagent's list, deny rules, and the tools' own checks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct

from wieldy.core.catalog import ToolAvailability
from wieldy.core.tool import Tool
from wieldy.tools.toolset.order import is_mcp_tool

SIMPLE_FEATURE = "simple"
SIMPLE_TOOLS = frozenset({"Bash", "Edit", "Read"})
PLAN_TOOLS = frozenset({"ExitPlan"})
GATED_TOOLS: Mapping[str, str] = {
    "Architect": "architect",
    "MemoryRead": "memory",
    "MemoryWrite": "memory",
    "StickerRequest": "stickers",
}
GATED_PREFIXES: Mapping[str, str] = {"Browser": "browser"}
FEATURE_VARIABLE = "WIELDY_FEATURE_"
TRUE_VALUES = frozenset({"1", "true", "yes", "on"})


class OfferContext(Struct, frozen=True):
    """Who is offered tools. `only` is a subagent's list: names, or patterns such as `mcp__github__*`."""

    mode: str = "default"
    simple: bool = False
    only: tuple[str, ...] | None = None


def is_feature_enabled(feature: str, settings: Mapping[str, Any], env: Mapping[str, str]) -> bool:
    """Whether a feature is enabled; the environment wins over the settings."""
    variable = env.get(FEATURE_VARIABLE + feature.upper())
    if variable is not None:
        return variable.strip().lower() in TRUE_VALUES
    features = settings.get("features")
    return isinstance(features, Mapping) and features.get(feature) is True


def feature_gate(name: str, settings: Mapping[str, Any], env: Mapping[str, str]) -> str | None:
    """Why the feature gate of a tool is closed, or None."""
    feature = GATED_TOOLS.get(name) or next(
        (f for prefix, f in GATED_PREFIXES.items() if name.startswith(prefix)), None
    )
    if feature is None or is_feature_enabled(feature, settings, env):
        return None
    return f"its feature is off; switch it on with `features.{feature}` in the settings or {FEATURE_VARIABLE}{feature.upper()}=1"


def why_excluded_by_name(name: str, context: OfferContext) -> str | None:
    """Why the context excludes a tool of this name, or None."""
    if context.simple and name not in SIMPLE_TOOLS:
        return f"simple mode has only {', '.join(sorted(SIMPLE_TOOLS))}"
    if context.mode != "plan" and name in PLAN_TOOLS:
        return "only for plan mode"
    if context.only is not None and not any(fnmatchcase(name, pattern) for pattern in context.only):
        return "not in the list of this agent"
    return None


def why_excluded(tool: Tool, context: OfferContext) -> str | None:
    """Why the context excludes a tool, or None."""
    if (reason := why_excluded_by_name(tool.name, context)) is not None:
        return reason
    if context.mode == "plan" and is_mcp_tool(tool):
        return "plan mode only reads, and of this tool only its server says what it touches"
    if context.mode == "plan" and not tool.read_only:
        return "plan mode only reads, and this tool may change something"
    return None


async def check_availability(
    tools: Sequence[Tool],
    context: OfferContext,
    *,
    gate: Callable[[str], str | None],
    removes: Callable[[str], object | None],
    disabled: Callable[[Tool], Awaitable[str | None]],
) -> list[ToolAvailability]:
    """Whether each tool is offered, and why or why not, in the order given. The tools' own checks run side by side.

    `gate` returns why a feature gate is closed, `removes` the deny rule that removes a tool, `disabled` what its own check says.
    """

    async def reason(tool: Tool) -> str | None:
        if (excluded := gate(tool.name) or why_excluded(tool, context)) is not None:
            return excluded
        if (rule := removes(tool.name)) is not None:
            return str(rule)
        return await disabled(tool) if tool.has_enabled_check else None

    reasons = await asyncio.gather(*map(reason, tools))
    return [
        ToolAvailability(tool, excluded is None, excluded or "available")
        for tool, excluded in zip(tools, reasons, strict=True)
    ]
