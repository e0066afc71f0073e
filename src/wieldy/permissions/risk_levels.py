"""The risk level of a tool where no rule applies, and the allow- and blocklists over its parameters in the settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from wieldy.core.decision import Behavior
from wieldy.core.effects import Effects
from wieldy.core.tool import Tool
from wieldy.permissions.patterns import wildcard
from wieldy.permissions.rules import Origin, Rule, RuleError, parse

RiskLevel: TypeAlias = Literal["safe", "confirm", "dangerous", "forbidden"]
LEVELS: tuple[RiskLevel, ...] = ("safe", "confirm", "dangerous", "forbidden")

_TOOLS_BY_LEVEL: dict[RiskLevel, tuple[str, ...]] = {
    "safe": (
        *("Read", "Glob", "Grep", "LS", "NotebookRead", "Think", "TodoRead", "TodoWrite"),
        *("ToolSearch", "BashOutput", "AskUserQuestion"),
        "Agent",  # every call that a subagent makes is judged on its own
    ),
    "confirm": (
        *("Write", "Edit", "MultiEdit", "NotebookEdit", "FileSearch"),
        *("WebFetch", "WebSearch", "Skill"),
    ),
    "dangerous": ("Bash",),
}
DEFAULT_LEVELS: dict[str, RiskLevel] = {name: level for level, names in _TOOLS_BY_LEVEL.items() for name in names}


@lru_cache(maxsize=512)
def guess_tool(name: str) -> str | None:
    """Return the built-in tool that a misspelled name was probably meant to be."""
    if name in DEFAULT_LEVELS or name.startswith("mcp__"):
        return None
    from difflib import get_close_matches

    by_lower = {known.lower(): known for known in DEFAULT_LEVELS}
    return next((by_lower[near] for near in get_close_matches(name.lower(), by_lower, n=1, cutoff=0.8)), None)


class ToolRiskSettings(Struct, frozen=True):
    """What the settings say about one tool."""

    level: RiskLevel | None = None
    allowlist: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    blocklist: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def blocks(self, input: Mapping[str, Any]) -> str | None:
        """Return the first blocklist pattern that a parameter matches, as `parameter:pattern`."""
        return next((hit for name in self.blocklist if (hit := _first_match(name, self.blocklist[name], input))), None)

    def allows(self, input: Mapping[str, Any]) -> str | None:
        """Return the patterns that cover the call: each listed parameter is given and matches one of its own."""
        hits = [_first_match(name, patterns, input) for name, patterns in self.allowlist.items()]
        return ", ".join(hit for hit in hits if hit) if hits and all(hits) else None


def _first_match(name: str, patterns: Sequence[str], input: Mapping[str, Any]) -> str | None:
    text = as_text(input.get(name))
    if text is None:
        return None
    return next((f"{name}:{pattern}" for pattern in patterns if wildcard(pattern, text)), None)


def as_text(value: Any) -> str | None:
    """Spell a scalar input as rules write it; None for lists and objects."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


class RiskLevels:
    """The risk level of each tool: as configured, else as known by name, else as the tool itself says."""

    def __init__(self, configured: Mapping[str, ToolRiskSettings] | None = None) -> None:
        self._configured = dict(configured or {})

    @classmethod
    def from_settings(cls, tools: Any) -> RiskLevels:
        """Read the `tools` section; invalid entries were reported when the settings were loaded."""
        if not isinstance(tools, Mapping):
            return cls()
        sections = {str(name): section for name, section in tools.items() if isinstance(section, Mapping)}
        return cls({name: _tool_settings(section) for name, section in sections.items()})

    def command_rules(self) -> Iterator[Rule]:
        """Turn the lists over Bash's command into rules, which apply to each part of a command."""
        bash = self.settings_for("Bash")
        lists: tuple[tuple[Behavior, Mapping[str, tuple[str, ...]]], ...] = (
            ("allow", bash.allowlist),
            ("deny", bash.blocklist),
        )
        for behavior, patterns in lists:
            for text in patterns.get("command", ()):
                try:
                    yield parse(f"Bash({text})", behavior, Origin("code", "tools.Bash"))
                except RuleError:
                    continue

    def settings_for(self, name: str) -> ToolRiskSettings:
        return self._configured.get(name, _NO_SETTINGS)

    def level_of(self, tool: Tool, input: Mapping[str, Any], effects: Effects) -> RiskLevel:
        """Return the level of one call. What an MCP server says about its tools is not trusted."""
        configured = self.settings_for(tool.name).level
        if configured is not None:
            return configured
        if tool.name.startswith("mcp__"):
            return "confirm"
        if tool.name in DEFAULT_LEVELS:
            return DEFAULT_LEVELS[tool.name]
        return "confirm" if tool.needs_permission(input, effects) else "safe"


_NO_SETTINGS = ToolRiskSettings()


def _tool_settings(section: Mapping[str, Any]) -> ToolRiskSettings:
    level = section.get("level")
    return ToolRiskSettings(
        level if level in LEVELS else None, _patterns(section.get("allowlist")), _patterns(section.get("blocklist"))
    )


def _patterns(lists: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(lists, Mapping):
        return {}
    return {
        str(name): tuple(map(str, patterns if isinstance(patterns, list | tuple) else [patterns]))
        for name, patterns in lists.items()
    }
