"""The rules in force, arranged for look-up by tool, host, parameter, command and path; and the risk level where none applies."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

from msgspec import Struct, field

from wieldy.core.call import PlannedCall
from wieldy.core.decision import Behavior
from wieldy.core.filesystem import LOCAL_FILES, FileSystem
from wieldy.core.tool import LEVELS, RiskLevel
from wieldy.policy.permissions.paths import PathResolver, ResolvedPath, is_below, path_key
from wieldy.policy.permissions.patterns import PathPattern, wildcard
from wieldy.policy.permissions.rules import Origin, Rule, RuleError, as_text, parse

# The same few commands and paths return in most calls of a session.
CACHED_LOOKUPS = 1024
# Entries of folders to look at before a command that takes a folder whole.
MAX_LISTED = 20_000
_HOST_NAME = re.compile(r"[\w-]+(?:\.[\w-]+)+")


class RuleSet(Struct, frozen=True):
    """Every rule in force. `broken` says why nothing may be allowed without asking."""

    rules: tuple[Rule, ...] = ()
    broken: str | None = None

    def plus(self, *rules: Rule) -> RuleSet:
        return RuleSet((*self.rules, *rules), self.broken)


class CallRules(Struct, frozen=True):
    """The rules about a call as a whole: about its tool, or about a parameter."""

    restricting: Sequence[Rule]
    allowing: Rule | None


class RuleIndex:
    """The rules of a workspace: about tools, hosts and parameters by behavior; about commands and paths together."""

    def __init__(self, rules: Sequence[Rule], paths: PathResolver) -> None:
        self.deny = ToolRules(rules, "deny")
        self.ask = ToolRules(rules, "ask")
        self.allow = ToolRules(rules, "allow")
        self.commands = CommandRules(rules)
        self.paths = PathRules(rules, paths)

    def about_tool(self, name: str) -> CallRules:
        """Find the rules that deny or ask about a tool as such, and one that allows it."""
        restricting = [rule for rules in (self.deny, self.ask) if (rule := rules.for_tool(name)) is not None]
        return CallRules(restricting, self.allow.for_tool(name))

    def about_call(self, plan: PlannedCall) -> CallRules:
        """Find the rules that deny or ask about a call, its tool or what it is given, and one that allows it."""
        about_tool, allow = self.about_tool(plan.tool.name), self.allow.for_call(plan)
        restricting = [rule for rules in (self.deny, self.ask) if (rule := rules.for_call(plan)) is not None]
        return CallRules([*about_tool.restricting, *restricting], about_tool.allowing or allow)


class ToolRules:
    """The rules of one behavior about tools, hosts and parameters."""

    def __init__(self, rules: Iterable[Rule], behavior: Behavior) -> None:
        self.behavior: Behavior = behavior
        self._rules = [rule for rule in rules if rule.behavior == behavior]
        reaching = ("Bash", "Read", "Edit", "WebFetch")
        # Whether any rule could be about a part of a command, or about a file or host that one touches.
        self.reach_commands = any(rule.reaches_commands or rule.subject in reaching for rule in self._rules)
        self.for_tool = lru_cache(maxsize=CACHED_LOOKUPS)(self._for_tool)

    def _for_tool(self, name: str) -> Rule | None:
        """Find a rule about a tool as such."""
        return next((rule for rule in self._rules if rule.covers_tool(name)), None)

    def for_call(self, plan: PlannedCall) -> Rule | None:
        """Find a rule about what a call is given."""
        return next((rule for rule in self._rules if rule.covers_call(plan)), None)

    def for_host(self, host: str) -> Rule | None:
        return next((rule for rule in self._rules if rule.covers_host(host)), None)

    def for_mentioned_host(self, texts: Iterable[str]) -> Rule | None:
        """Find a rule about a host whose name stands somewhere in these texts."""
        names = (name.lower() for text in texts for name in _HOST_NAME.findall(text))
        return next((rule for name in names if (rule := self.for_host(name)) is not None), None)


class CommandRules:
    """The command rules of all behaviors."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = [(pattern, rule) for rule in rules if (pattern := rule.command_pattern) is not None]
        self.has_literal = any(pattern.literal is not None for pattern, _ in self._rules)
        # The programs that rules which deny or ask begin with.
        self.forbidden_programs = frozenset(
            pattern.program for pattern, rule in self._rules if pattern.program and rule.behavior != "allow"
        )
        self.first_deny = next((rule for _, rule in self._rules if rule.behavior == "deny"), None)
        self.covering = lru_cache(maxsize=CACHED_LOOKUPS)(self._covering)

    def restricting(self, program: str | None) -> Rule | None:
        """Find a rule that denies or asks about some commands of a program."""
        name = os.path.basename(program or "").partition("-")[0]
        rules = (rule for pattern, rule in self._rules if pattern.program == name and rule.behavior != "allow")
        return next(rules, None) if name in self.forbidden_programs else None

    def naming(self, command: str, behavior: Behavior) -> Rule | None:
        """Find a rule that names this very command, with no pattern in it."""
        if not self.has_literal:
            return None
        text = command.strip()
        return next(
            (rule for pattern, rule in self._rules if pattern.literal == text and rule.behavior == behavior), None
        )

    def _covering(self, text: str) -> Sequence[Rule]:
        """Find the rules that cover one simple command."""
        return [rule for pattern, rule in self._rules if pattern.matches(text)]


# How code joins the pieces of a string.
_STRING_JOINTS = re.compile(r"""["'`]\s*[+.,]*\s*["'`]|["'\\]""")
_MENTION_START, _MENTION_END = r"(?<![\w.-])", r"(?!\.?\w|-)"
_WILDCARD = re.compile(r"[*?]|\[[^]]*\]")
# For each spelling of a path, the rules that cover it.
CoveringRules: TypeAlias = Sequence[Sequence[Rule]]


class PathRules:
    """The path rules of all behaviors."""

    def __init__(self, rules: Iterable[Rule], paths: PathResolver) -> None:
        self._rules = [rule for rule in rules if rule.path_pattern(paths) is not None]
        self._paths = paths
        self._matching = lru_cache(maxsize=CACHED_LOOKUPS)(self._find_matching)

    @cached_property
    def denied_subjects(self) -> frozenset[str]:
        """Which of Read and Edit have deny rules."""
        return frozenset(rule.subject for rule in self._rules if rule.behavior == "deny")

    def covering(self, path: ResolvedPath) -> CoveringRules:
        return [self._matching(spelling, path.folds_case) for spelling in path.spellings]

    def _find_matching(self, path: str, folds_case: bool) -> Sequence[Rule]:
        path = path_key(path, folds_case)
        return [rule for pattern, rule in self._patterns if pattern.matches(path, folds_case)]

    @cached_property
    def first_deny(self) -> Rule | None:
        return next((rule for rule in self._rules if rule.behavior == "deny"), None)

    def denies_mentioned(self, texts: Iterable[str]) -> Rule | None:
        """Find a deny rule whose file or folder is named in one of the texts, also where code joins pieces of its name."""
        for text in texts:
            joined = _STRING_JOINTS.sub("", text)
            for pattern, rule in self._mentions:
                if pattern.search(text) or pattern.search(joined):
                    return rule
        return None

    @cached_property
    def _mentions(self) -> list[tuple[re.Pattern[str], Rule]]:
        """The names that deny rules are about, as they would stand in code."""
        mentions = [
            (_mention(pattern, {*self._paths.roots, self._paths.home, "/"}), rule) for pattern, rule in self._denying
        ]
        return [(re.compile(expression), rule) for expression, rule in mentions if expression]

    def allows_by_name(self, path: ResolvedPath) -> bool:
        """Return whether a rule that allows edits names this very file, by path or by name, with no pattern in it."""
        covering = {rule for rules in self.covering(path) for rule in rules}
        allowing = [rule for rule in covering if (rule.behavior, rule.subject) == ("allow", "Edit")]
        patterns = [pattern for rule in allowing if (pattern := rule.path_pattern(self._paths)) is not None]
        real = path.real
        return any(real == pattern.literal or os.path.basename(real) == pattern.plain_name for pattern in patterns)

    def denies_path_inside(self, folder: ResolvedPath) -> Rule | None:
        """Find a deny rule that names one path inside a folder."""
        for pattern, rule in self._denying:
            if pattern.literal and any(
                is_below(pattern.literal, spelling, folder.folds_case)
                and not is_below(spelling, pattern.literal, folder.folds_case)
                for spelling in folder.spellings
            ):
                return rule
        return None

    def may_deny_inside(self, subject: str, folder: ResolvedPath) -> Rule | None:
        """Find a deny rule that could cover something inside a folder."""
        for pattern, rule in self._denying:
            if rule.subject == subject and any(
                is_below(pattern.folder, spelling, folder.folds_case)
                or (pattern.rest and is_below(spelling, pattern.folder, folder.folds_case))
                for spelling in folder.spellings
            ):
                return rule
        return None

    def holds_denied(self, subject: str, folder: ResolvedPath, files: FileSystem = LOCAL_FILES) -> bool:
        """Return whether a file on disk below a folder is denied, or may be where there are too many to look at."""
        patterns = self.denying(subject)
        pending = [folder.real]
        left = MAX_LISTED
        while pending:
            try:
                listing = files.list_folder(pending.pop())
            except OSError:
                continue  # the command cannot list it either
            left -= len(listing)
            if left < 0:
                return True
            for entry in listing:
                below = entry.path[len(folder.real) :]
                keys = [path_key(spelling + below, folder.folds_case) for spelling in folder.spellings]
                if any(pattern.matches(key, folder.folds_case) for pattern in patterns for key in keys):
                    return True
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
        return False

    def denying(self, subject: str) -> list[PathPattern]:
        """The patterns of the rules that deny reading or editing; a denied read denies writing, too."""
        return [pattern for pattern, rule in self._denying if rule.subject == subject]

    @cached_property
    def _denying(self) -> list[tuple[PathPattern, Rule]]:
        return [(pattern, rule) for pattern, rule in self._patterns if rule.behavior == "deny"]

    @cached_property
    def _patterns(self) -> list[tuple[PathPattern, Rule]]:
        """Every rule under both names of home; one that denies or asks also under the real name of its folder."""
        home, real = self._paths.home, lru_cache(maxsize=None)(self._paths.real)
        patterns: list[tuple[PathPattern, Rule]] = []
        for rule in self._rules:
            in_home = (rule.specifier or "").startswith("~")
            for one_home in {home, real(home)} if in_home else {home}:
                pattern = rule.path_pattern(self._paths, one_home)
                if pattern is None:
                    continue
                patterns.append((pattern, rule))
                # An allow rule must match a symlink and its target alike, so its own folder is not resolved.
                if rule.behavior != "allow" and (target := real(pattern.folder)) != pattern.folder:
                    patterns.append((PathPattern(target, pattern.rest, pattern.floating), rule))
                if rule.behavior != "allow" and (folder := self._in_main_repository(pattern.folder)) is not None:
                    patterns.append((PathPattern(folder, pattern.rest, pattern.floating), rule))
        return patterns

    def _in_main_repository(self, folder: str) -> str | None:
        """The same folder in the repository that a linked work tree belongs to: what is denied here is denied there."""
        main, project = self._paths.main_repository, self._paths.project
        if main is None or not is_below(folder, project):
            return None
        return os.path.normpath(main + folder[len(project) :])


def _mention(pattern: PathPattern, common: Collection[str]) -> str:
    """An expression for the name of a file, or of the folder that a pattern starts in; empty if any name could be meant."""
    if pattern.folder not in common:
        return f"{_MENTION_START}{re.escape(os.path.basename(pattern.folder))}{_MENTION_END}"
    # Of a name with wildcards, what is certain.
    for segment in pattern.rest.split("/"):
        pieces = [piece for piece in _WILDCARD.split(segment) if len(piece) > 1]
        if pieces:
            start = _MENTION_START if segment.startswith(pieces[0]) else ""
            end = _MENTION_END if segment.endswith(pieces[0]) else ""
            return start + re.escape(pieces[0].replace("\\", "")) + end
    return ""


class ToolRiskSettings(Struct, frozen=True):
    """What the settings say about one tool."""

    level: RiskLevel | None = None
    allowlist: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    blocklist: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class CallRisk(Struct, frozen=True):
    """The level of one call, the level that the settings give its tool, and the patterns of their lists that it matches."""

    level: RiskLevel
    configured: RiskLevel | None = None
    allowed_by: str | None = None
    blocked_by: str | None = None


def _first_match(name: str, patterns: Sequence[str], input: Mapping[str, Any]) -> str | None:
    text = as_text(input.get(name))
    if text is None:
        return None
    return next((f"{name}:{pattern}" for pattern in patterns if wildcard(pattern, text)), None)


class RiskLevels:
    """The risk level of each tool: as configured, else as the tool itself says."""

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
        bash = self._configured.get("Bash", _NO_SETTINGS)
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

    def forbids(self, tool_name: str) -> bool:
        """Return whether the settings forbid a tool as such."""
        return self._configured.get(tool_name, _NO_SETTINGS).level == "forbidden"

    def assess(self, plan: PlannedCall) -> CallRisk:
        """Assess one call. What an MCP server says about its tools is not trusted."""
        tool, settings = plan.tool, self._configured.get(plan.tool.name)
        if settings is not None and settings.level is not None:
            level = settings.level
        elif tool.name.startswith("mcp__"):
            level = "confirm"
        else:
            level = tool.level or ("confirm" if tool.needs_permission(plan.input, plan.effects) else "safe")
        if settings is None:
            return CallRisk(level)
        # A call is allowed where each listed parameter is given and matches, and blocked where any does.
        allowed = [_first_match(name, patterns, plan.input) for name, patterns in settings.allowlist.items()]
        blocked = [_first_match(name, patterns, plan.input) for name, patterns in settings.blocklist.items()]
        return CallRisk(
            level,
            settings.level,
            allowed_by=", ".join(hit for hit in allowed if hit) if allowed and all(allowed) else None,
            blocked_by=next((hit for hit in blocked if hit), None),
        )


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
