"""Decides: rules, guards, mode and opinions in, one decision with its whole trail out. Reads nothing but what `Paths` sees."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from wieldy.core.call import PlannedCall
from wieldy.core.decision import STRICTNESS, Decision, Opinion, Reason
from wieldy.core.effects import Effect, Effects, Fetches, Opaque, Reads, Runs, Writes
from wieldy.core.state_dirs import shared_folders
from wieldy.permissions import suggest
from wieldy.permissions.commands import CommandPolicy
from wieldy.permissions.files import FileAccess, FilePolicy, NetworkPolicy, Outside
from wieldy.permissions.findings import DecisionContext, Finding, by_rule
from wieldy.permissions.modes import ModeName, find_mode
from wieldy.permissions.paths import PathResolver
from wieldy.permissions.protected import ProtectedPaths
from wieldy.permissions.risk_levels import RiskLevel, RiskLevels
from wieldy.permissions.rules import Rule
from wieldy.permissions.ruleset import RuleSet, filed

if TYPE_CHECKING:
    from wieldy.core.workspace import Workspace
    from wieldy.shell.policy.analysis import Analysis

# An opinion of this name that says "allow" vouches that git would lose no uncommitted work.
CLEAN_TREE = "clean work tree"
REMEMBERED = 256
STRICTEST_FIRST = sorted(STRICTNESS, key=STRICTNESS.__getitem__, reverse=True)


class Policy:
    """The judge of one workspace. Between decisions the mode may change and rules may be granted; a decision changes nothing."""

    def __init__(
        self,
        rules: RuleSet | None = None,
        *,
        paths: PathResolver,
        mode: str = "default",
        levels: RiskLevels | None = None,
        outside: Outside = "ask",
        configured_by: Sequence[str] = (),
        cwd: Callable[[], str] | None = None,
        analyze: Callable[[str], Analysis] | None = None,
    ) -> None:
        self._mode = find_mode(mode)
        self.mode_before_plan: ModeName = "default"
        self._paths = paths
        self._levels = levels or RiskLevels()
        self._outside: Outside = outside
        self._configured_by = tuple(configured_by)
        self._protected = ProtectedPaths(paths.roots, self._configured_by)
        self._cwd = cwd or (lambda: paths.root)
        self._analyze = analyze or self._shell_analysis
        self._analysis_at = lru_cache(maxsize=64)(self._shell_analysis_at)
        self._use(rules or RuleSet())

    @classmethod
    def for_workspace(
        cls,
        workspace: Workspace,
        rules: RuleSet,
        *,
        mode: str = "default",
        tools: Any = None,
        outside: Outside = "ask",
        configured_by: Sequence[str | Path] = (),
    ) -> Policy:
        """The judge of a workspace; `tools` is the settings section of that name, `configured_by` the user's settings folders."""
        home = workspace.env.get("HOME") or os.path.expanduser("~")
        readable = (workspace.session_dir, *shared_folders(workspace.env))
        paths = PathResolver(workspace.roots, home=home, readable=tuple(map(os.path.realpath, readable)))
        return cls(
            rules,
            paths=paths,
            mode=mode,
            levels=RiskLevels.from_settings(tools),
            outside=outside,
            configured_by=[os.path.realpath(folder) for folder in configured_by],
            cwd=lambda: workspace.cwd,
        )

    def derive(self, cwd: Callable[[], str], mode: str) -> Policy:
        """The same rules for somebody who stands elsewhere, or works in another mode."""
        return Policy(
            self._rules,
            paths=self._paths,
            mode=mode,
            levels=self._levels,
            outside=self._outside,
            configured_by=self._configured_by,
            cwd=cwd,
        )

    @property
    def mode(self) -> ModeName:
        """The mode in force."""
        return self._mode.name

    @mode.setter
    def mode(self, name: str) -> None:
        mode = find_mode(name)
        if mode.reads_only and not self._mode.reads_only:
            self.mode_before_plan = self._mode.name
        self._mode = mode

    @property
    def root(self) -> str:
        """The project's root."""
        return self._paths.root

    @property
    def paths(self) -> PathResolver:
        """How this judge sees paths."""
        return self._paths

    def use_roots(self, roots: Sequence[str]) -> None:
        """Let work happen in these folders from now on; the first is the project's own."""
        seen = self._paths
        self._paths = PathResolver(
            roots,
            home=seen.home,
            readable=seen.readable,
            real=seen.real,
            is_folder=seen.is_folder,
            exists=seen.exists,
            folds_case=seen.folds_case,
        )
        self._protected = ProtectedPaths(self._paths.roots, self._configured_by)
        self._analysis_at.cache_clear()
        self._use(self._rules)

    def analyze(self, command: str) -> Analysis:
        """What the command analysis says, as decisions use it."""
        return self._analyze(command)

    @property
    def rules(self) -> RuleSet:
        """The rules in force, those granted during the session included."""
        return self._rules

    def grant(self, *rules: Rule) -> None:
        """Put more rules in force until the session ends."""
        self._use(self._rules.plus(*rules))

    def replace(self, rules: RuleSet) -> None:
        """Put another set of rules in force, as after a change of the settings; what the session granted stays."""
        self._use(rules.plus(*(rule for rule in self._rules.rules if rule.origin.layer == "session")))

    def follow(self, rules: RuleSet, levels: RiskLevels, outside: Outside) -> None:
        """Judge by changed settings from now on; what the session granted and the mode stay."""
        self._levels, self._outside = levels, outside
        self.replace(rules)

    def _use(self, rules: RuleSet) -> None:
        self._rules = rules
        self._blind: dict[str, bool] = {}
        self._alike: dict[tuple[str, RiskLevel, str, Effects, tuple[bool, ...]], Decision] = {}
        shelves = filed(rules.plus(*self._levels.command_rules()), self._paths)
        self._deny, self._ask, self._allow = shelves.deny, shelves.ask, shelves.allow
        self._files = FilePolicy(shelves, self._paths, self._protected, self._outside)
        self._addresses = NetworkPolicy(shelves)
        self._commands = CommandPolicy(shelves, self._files, self._addresses, self._analyze)

    def _shell_analysis(self, command: str) -> Analysis:
        return self._analysis_at(command, self._cwd())

    def _shell_analysis_at(self, command: str, cwd: str) -> Analysis:
        from wieldy.shell.policy.analysis import analyze

        return analyze(command, cwd=cwd, home=self._paths.home, root=self._paths.root)

    def decide(self, plan: PlannedCall, opinions: Sequence[Opinion] = ()) -> Decision:
        """Weigh a call and the opinions on it: the strictest wins, and the trail says who said what."""
        if opinions or not self._blind_to_input(plan.tool.name):
            return self._weighed(plan, opinions)
        # Calls of whose input nobody speaks are decided alike where they touch nothing, or the same files in the same way.
        places = self._places(plan)
        if places is None:
            return self._weighed(plan, opinions)
        level = self._levels.of(plan.tool, plan.input, plan.effects)
        key = plan.tool.name, level, self._mode.name, plan.effects, places
        found = self._alike.get(key)
        if found is None:
            if len(self._alike) >= REMEMBERED:
                self._alike.clear()
            found = self._alike[key] = self._weighed(plan, opinions)
        return found

    def _places(self, plan: PlannedCall) -> tuple[bool, ...] | None:
        """All that a decision about files asks the disk for, where each is the very one that was named: whether its volume
        folds case. None where there is more to it."""
        folds: dict[str, bool] = {}
        for effect in plan.effects:
            if not isinstance(effect, (Reads, Writes)) or plan.resolved_paths.get(effect.path) != effect.path:
                return None
            if effect.path not in folds:
                folds[effect.path] = self._paths.folds_case(effect.path)
        return tuple(folds.values())

    def _blind_to_input(self, tool_name: str) -> bool:
        """Whether neither rules nor settings speak of this tool's parameters."""
        blind = self._blind.get(tool_name)
        if blind is None:
            shelves = (self._deny, self._ask, self._allow)
            blind = not any(one.looks_at_input(tool_name) for one in (self._levels, *shelves))
            self._blind[tool_name] = blind
        return blind

    def _weighed(self, plan: PlannedCall, opinions: Sequence[Opinion]) -> Decision:
        case = self._case(plan, opinions)
        findings = [*self._about_tool(case), *self._about_effects(case)]
        if opinions:
            said = sorted(opinions, key=lambda opinion: (opinion.who, opinion.behavior, opinion.why))
            findings += [_spoken(opinion, plan) for opinion in said]
        return self._conclude(case, findings)

    def removal_reason(self, tool_name: str) -> Reason | None:
        """Why a tool is not to be offered at all; None where it may be."""
        rule = self._deny.for_tool(tool_name)
        if rule is not None:
            return by_rule(rule)
        if self._levels.care(tool_name).level == "forbidden":
            return Reason("default", "deny", f"the settings forbid {tool_name}")
        return None

    def hides(self, path: str) -> bool:
        """Whether searches and listings are to leave a path out."""
        return self._files.hides_anything and self._files.hides(path)

    @property
    def hides_anything(self) -> bool:
        """Whether `hides` can be true for any path."""
        return self._files.hides_anything

    def _case(self, plan: PlannedCall, opinions: Sequence[Opinion]) -> DecisionContext:
        level = self._levels.of(plan.tool, plan.input, plan.effects)
        configured = self._levels.care(plan.tool.name)
        allowing = [o for o in opinions if o.behavior == "allow"] if opinions else ()
        voices = [o for o in allowing if o.who != CLEAN_TREE] if allowing else []
        voices.sort(key=lambda o: (o.who, o.why))
        return DecisionContext(
            plan,
            self._mode,
            level,
            self._cover(plan, level, voices),
            vouched=bool(voices),
            careful=configured.level in ("confirm", "dangerous"),
            clean_tree=len(voices) < len(allowing),
        )

    def _cover(self, plan: PlannedCall, level: RiskLevel, voices: Sequence[Opinion]) -> Reason | None:
        """What allows a call as a whole, if anything does."""
        name = plan.tool.name
        rule = self._allow.for_tool(name) or self._allow.for_input(name, plan.input)
        if rule is not None:
            return by_rule(rule)
        listed = self._levels.care(name).allows(plan.input)
        if listed is not None and not self._commands_of(plan):
            return Reason("default", "allow", f"the settings allow {name} with {listed}")
        if voices:
            return _spoken(voices[0], plan).reason
        return Reason("default", "allow", f"{name} is safe") if level == "safe" else None

    def _about_tool(self, case: DecisionContext) -> Iterator[Finding]:
        name, input = case.plan.tool.name, case.plan.input
        for shelf in (self._deny, self._ask):
            for rule in (shelf.for_tool(name), shelf.for_input(name, input)):
                if rule is not None:
                    yield Finding(by_rule(rule))
        if (blocked := self._levels.care(name).blocks(input)) is not None:
            yield Finding(Reason("default", "deny", f"the settings block {name} with {blocked}"))
        if case.level == "forbidden":
            yield Finding(Reason("default", "deny", f"the settings forbid {name}"))

    def _about_effects(self, case: DecisionContext) -> Iterator[Finding]:
        effects = case.plan.effects
        judged: set[Effect] = set()
        commands = self._commands_of(case.plan)
        alone = len(effects) == len(commands) == 1
        for command in commands:
            # The parts of a command may be declared beside it; they are judged with the whole.
            if not any(isinstance(effect, Runs) and effect.command == command for effect in judged):
                yield from self._commands.judge(command, case)
            if alone:
                return
            judged.update(self._commands.effects_of(command))
        for effect in effects:
            if effect in judged:
                continue
            if isinstance(effect, (Reads, Writes)):
                yield self._files.judge(FileAccess(effect), case)
            elif isinstance(effect, Fetches):
                yield from self._addresses.judge(effect.url, case)
            elif isinstance(effect, Opaque):
                yield self._unknown(case, "nobody can say what it touches")
        if not effects:
            yield self._unknown(case, "it asks before it runs", harmless=True)

    def _commands_of(self, plan: PlannedCall) -> list[str]:
        """The commands a call runs: first the one it was given, whole, then what else it declares."""
        declared = dict.fromkeys([effect.command for effect in plan.effects if isinstance(effect, Runs)])
        if not declared:
            return []
        given = plan.input.get("command")
        return list(dict.fromkeys([given, *declared])) if isinstance(given, str) else list(declared)

    def _unknown(self, case: DecisionContext, why: str, *, harmless: bool = False) -> Finding:
        name = case.plan.tool.name
        if case.mode.reads_only and not harmless:
            return Finding(Reason("mode", "deny", f"plan mode changes nothing, and of {name} {why}"))
        if case.mode.accepts_all:
            return Finding(Reason("mode", "allow", f"{case.mode.name} mode"))
        if case.cover is not None:
            return Finding(case.cover)
        remedy = suggest.for_tool(name) if case.level == "confirm" else None
        return Finding(Reason("default", "ask", f"{name} needs permission: {why}"), remedy)

    def _conclude(self, case: DecisionContext, findings: Sequence[Finding]) -> Decision:
        reasons = _distinct(findings)
        trail = [reason for behavior in STRICTEST_FIRST for reason in reasons if reason.behavior == behavior]
        behavior = trail[0].behavior if trail else "ask"
        if behavior == "allow" and self._rules.broken:
            behavior, text = "ask", f"{self._rules.broken}; until that is mended nothing is allowed unasked"
            trail.insert(0, Reason("guard", "ask", text))
        if behavior != "ask":
            return Decision(behavior, tuple(trail), ())
        if not case.mode.asks:
            trail.insert(0, Reason("mode", "deny", f"{case.mode.name} mode refuses what would be asked"))
            behavior = "deny"
        return Decision(behavior, tuple(trail), _suggestions(findings))


def _suggestions(findings: Sequence[Finding]) -> tuple[str, ...]:
    """The rules that would do away with every question, if each has one and they are not too many."""
    remedies = dict.fromkeys([finding.remedy for finding in findings if finding.behavior == "ask"])
    if len(remedies) > suggest.MOST_RULES:
        return ()
    useful = tuple([remedy for remedy in remedies if remedy is not None])
    return useful if len(useful) == len(remedies) else ()


def _distinct(findings: Sequence[Finding]) -> Collection[Reason]:
    if len(findings) == 1:
        return (findings[0].reason,)
    found: dict[tuple[object, ...], Reason] = {}
    for finding in findings:
        reason = finding.reason
        found.setdefault((reason.behavior, reason.text, reason.part, reason.file, reason.line), reason)
    return found.values()


def _spoken(opinion: Opinion, plan: PlannedCall) -> Finding:
    kind: Literal["tool", "hook"] = "tool" if opinion.who == plan.tool.name else "hook"
    return Finding(Reason(kind, opinion.behavior, f"{opinion.who}: {opinion.why}" if opinion.why else opinion.who))
