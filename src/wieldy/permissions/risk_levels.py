"""How much care a tool needs when no rule speaks: safe, confirm, dangerous or forbidden; and patterns over its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from wieldy.core.decision import Behavior
from wieldy.core.effects import Effects
from wieldy.core.tool import Tool
from wieldy.permissions.rules import Origin, Rule, RuleError, parse, wildcard

RiskLevel: TypeAlias = Literal["safe", "confirm", "dangerous", "forbidden"]
LEVELS: tuple[RiskLevel, ...] = ("safe", "confirm", "dangerous", "forbidden")

BY_LEVEL: dict[RiskLevel, tuple[str, ...]] = {
    "safe": (
        *("Read", "Glob", "Grep", "LS", "NotebookRead", "Think", "TodoRead", "TodoWrite"),
        *("ToolSearch", "BashOutput", "AskUserQuestion"),
        "Agent",  # every call that a sub-agent makes is judged on its own
    ),
    "confirm": (
        *("Write", "Edit", "MultiEdit", "NotebookEdit", "FileSearch"),
        *("WebFetch", "WebSearch", "Skill"),
    ),
    "dangerous": ("Bash",),
}
DEFAULTS: dict[str, RiskLevel] = {name: level for level, names in BY_LEVEL.items() for name in names}


@lru_cache(maxsize=512)
def likely_tool(name: str) -> str | None:
    """The built-in tool that a name was probably meant to be, where it is not the name of one."""
    if name in DEFAULTS or name.startswith("mcp__"):
        return None
    from difflib import get_close_matches

    by_lower = {known.lower(): known for known in DEFAULTS}
    return next((by_lower[near] for near in get_close_matches(name.lower(), by_lower, n=1, cutoff=0.8)), None)


class ToolRiskSettings(Struct, frozen=True):
    """What the settings say about one tool."""

    level: RiskLevel | None = None
    allowlist: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    blocklist: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def blocks(self, input: Mapping[str, Any]) -> str | None:
        """The first blocklist pattern that a parameter matches, as `parameter:pattern`."""
        return _first_match(self.blocklist, input)

    def allows(self, input: Mapping[str, Any]) -> str | None:
        """The patterns that cover the call, where each listed parameter is given and matches one of its own."""
        if not self.allowlist:
            return None
        found = [_first_match({name: patterns}, input) for name, patterns in self.allowlist.items()]
        return ", ".join(f for f in found if f) if all(found) else None


def _first_match(patterns: Mapping[str, Sequence[str]], input: Mapping[str, Any]) -> str | None:
    for name, globs in patterns.items():
        if name not in input:
            continue
        text = as_text(input[name])
        if text is not None and (hit := next((g for g in globs if wildcard(g, text)), None)) is not None:
            return f"{name}:{hit}"
    return None


def as_text(value: Any) -> str | None:
    """A scalar input as rules write it; None for lists and objects."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    return None


class RiskLevels:
    """The care each tool needs: as configured, else as known by name, else as the tool itself says."""

    def __init__(self, configured: Mapping[str, ToolRiskSettings] | None = None) -> None:
        self._configured = dict(configured or {})

    @classmethod
    def from_settings(cls, tools: Any) -> RiskLevels:
        """From the `tools` section of settings; what does not fit was reported when the settings were read."""
        if not isinstance(tools, Mapping):
            return cls()
        return cls({str(name): _care(section) for name, section in tools.items() if isinstance(section, Mapping)})

    def command_rules(self) -> Iterator[Rule]:
        """The lists over Bash's command as rules: they hold for each part of it, not for the text as a whole."""
        care = self.care("Bash")
        lists: tuple[tuple[Behavior, Mapping[str, tuple[str, ...]]], ...] = (
            ("allow", care.allowlist),
            ("deny", care.blocklist),
        )
        for behavior, patterns in lists:
            for text in patterns.get("command", ()):
                try:
                    yield parse(f"Bash({text})", behavior, Origin("code", "tools.Bash"))
                except RuleError:
                    continue

    def care(self, name: str) -> ToolRiskSettings:
        """What the settings say about a tool."""
        return self._configured.get(name, _NO_CARE)

    def looks_at_input(self, name: str) -> bool:
        """Whether the settings list patterns over a tool's parameters."""
        care = self.care(name)
        return bool(care.allowlist or care.blocklist)

    def of(self, tool: Tool, input: Mapping[str, Any], effects: Effects) -> RiskLevel:
        """The level of one call. What a foreign server says about its tools is not believed."""
        configured = self.care(tool.name).level
        if configured is not None:
            return configured
        if tool.name.startswith("mcp__"):
            return "confirm"
        known = DEFAULTS.get(tool.name)
        if known is not None:
            return known
        return "confirm" if tool.needs_permission(input, effects) else "safe"


_NO_CARE = ToolRiskSettings()


def _care(section: Mapping[str, Any]) -> ToolRiskSettings:
    level = section.get("level")
    return ToolRiskSettings(
        level if level in LEVELS else None, _patterns(section.get("allowlist")), _patterns(section.get("blocklist"))
    )


def _patterns(lists: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(lists, Mapping):
        return {}
    return {
        str(name): tuple(str(g) for g in (globs if isinstance(globs, list | tuple) else [globs]))
        for name, globs in lists.items()
    }
