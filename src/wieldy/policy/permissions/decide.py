"""Decides about a call: rules, guards, mode and opinions in, one decision with its reason trail out.

Deciding is pure but for the file system, which it sees through `PathResolver`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from wieldy.core.active_commands import active_files
from wieldy.core.call import PlannedCall
from wieldy.core.decision import STRICTNESS, Behavior, Decision, Opinion, Reason
from wieldy.core.effects import Delegates, Effect, Fetches, Opaque, Reads, Runs, UsesServer, Writes, only_orders
from wieldy.core.state_dirs import shared_folders
from wieldy.core.workspace import UNKNOWN_HOME
from wieldy.policy.permissions.files import FileAccess, FilePolicy, NetworkPolicy, OutsidePolicy
from wieldy.policy.permissions.findings import DecisionContext, Finding, rule_reason
from wieldy.policy.permissions.modes import ModeName, find_mode
from wieldy.policy.permissions.paths import PathResolver
from wieldy.policy.permissions.protected import NO_FOLDERS, ProtectedFolders, ProtectedPaths, Protection
from wieldy.policy.permissions.rules import MAX_RULES, Rule
from wieldy.policy.permissions.ruleset import CallRisk, RiskLevels, RuleIndex, RuleSet

if TYPE_CHECKING:
    from wieldy.core.workspace import Workspace
    from wieldy.policy.permissions.commands import CommandPolicy
    from wieldy.policy.permissions.guarded_files import GuardedFiles
    from wieldy.shell.effects.analysis import Analysis

# An opinion of this name that says "allow" vouches that git would lose no uncommitted work.
CLEAN_TREE = "clean work tree"
# An opinion of this name that says "allow" vouches that a sandbox contains the call.
SANDBOX = "the sandbox"


class Policy:
    """Decides about the calls of one workspace. The mode and the rules may change between decisions."""

    def __init__(
        self,
        rules: RuleSet | None = None,
        *,
        paths: PathResolver,
        mode: str = "default",
        levels: RiskLevels | None = None,
        outside: OutsidePolicy = "ask",
        protected_folders: ProtectedFolders = NO_FOLDERS,
    ) -> None:
        self.mode_before_plan: ModeName = "default"
        self._mode = find_mode(mode)
        self._paths = paths
        self._levels = levels or RiskLevels()
        self._outside: OutsidePolicy = outside
        self._protected_folders = protected_folders
        self._set_rules(rules or RuleSet())

    @classmethod
    def for_workspace(
        cls,
        workspace: Workspace,
        rules: RuleSet,
        *,
        mode: str = "default",
        tools: Any = None,
        outside: OutsidePolicy = "ask",
        project: str | None = None,
        config_folders: Sequence[str | Path] = (),
    ) -> Policy:
        """Build the policy of a workspace in a `project`; `tools` is the settings section, `config_folders` hold settings."""
        home = workspace.home or UNKNOWN_HOME
        readable = (workspace.session_dir, *shared_folders(workspace.env))
        real_folders = tuple(map(os.path.realpath, readable))
        main_repository = None
        if workspace.files.is_local and os.path.isfile(os.path.join(workspace.root, ".git")):
            from wieldy.shell.sandbox.policy import main_repository as find_main_repository

            main_repository = find_main_repository(workspace.root)
        paths = PathResolver(
            workspace.roots,
            home=home,
            project=project,
            readable=real_folders,
            main_repository=main_repository,
            files=workspace.files,
        )
        return cls(
            rules,
            paths=paths,
            mode=mode,
            levels=RiskLevels.from_settings(tools),
            outside=outside,
            protected_folders=ProtectedFolders(
                config=tuple(map(os.path.realpath, config_folders)),
                programs=tuple(os.path.realpath(folder) for folder in workspace.search_path if os.path.isabs(folder)),
                active=() if not workspace.files.is_local else active_files(workspace.settings, workspace.root, home),
            ),
        )

    def derive(self, mode: str, paths: PathResolver | None = None) -> Policy:
        """Build a policy with the same rules for another mode, or for other folders."""
        return Policy(
            self._rules,
            paths=paths or self._paths,
            mode=mode,
            levels=self._levels,
            outside=self._outside,
            protected_folders=self._protected_folders,
        )

    @property
    def mode(self) -> ModeName:
        return self._mode.name

    @mode.setter
    def mode(self, name: str) -> None:
        mode = find_mode(name)
        if mode.read_only and not self._mode.read_only:
            self.mode_before_plan = self._mode.name
        self._mode = mode

    @property
    def root(self) -> str:
        return self._paths.root

    @property
    def paths(self) -> PathResolver:
        return self._paths

    @property
    def rules(self) -> RuleSet:
        """The rules in force, including those granted during the session."""
        return self._rules

    def use_roots(self, roots: Sequence[str]) -> None:
        """Allow work in these folders from now on; the first is the project's own."""
        self._paths = self._paths.with_roots(roots)
        self._set_rules(self._rules)

    def grant(self, *rules: Rule) -> None:
        """Put more rules in force until the session ends."""
        self._set_rules(self._rules.plus(*rules))

    def replace_rules(self, rules: RuleSet) -> None:
        """Put another set of rules in force; what the session granted stays."""
        self._set_rules(rules.plus(*(rule for rule in self._rules.rules if rule.origin.layer == "session")))

    def update_settings(
        self, rules: RuleSet, levels: RiskLevels, outside: OutsidePolicy, active: tuple[str, ...]
    ) -> None:
        """Follow changed settings; the mode and what the session granted stay. `active` are files that their commands name."""
        self._protected_folders = replace(self._protected_folders, active=active)
        self._levels, self._outside = levels, outside
        self.replace_rules(rules)

    def _set_rules(self, rules: RuleSet) -> None:
        self._rules = rules
        index = RuleIndex((*rules.rules, *self._levels.command_rules()), self._paths)
        self._index = index
        self._protected = ProtectedPaths(self._paths.roots, self._protected_folders)
        self._files = FilePolicy(index, self._paths, self._protected, self._outside)
        self._network = NetworkPolicy(index)
        self._commands: CommandPolicy | None = None

    def _command_policy(self) -> CommandPolicy:
        """The policy for shell commands, made when the first command is judged."""
        if self._commands is None:
            from wieldy.policy.permissions.commands import CommandPolicy

            self._commands = CommandPolicy(self._index, self._files, self._network)
        return self._commands

    def analyses(self, plan: PlannedCall) -> Iterator[tuple[str, Analysis]]:
        """Yield each command that a call runs, with what it does in the folder of the call."""
        for effect in plan.effects:
            if isinstance(effect, Runs):
                yield effect.command, effect.analysis or self.analyze(effect.command, plan.cwd)

    def analyze(self, command: str, cwd: str = "") -> Analysis:
        """What a command does in a folder, the root unless another is given."""
        from wieldy.shell.effects.analysis import analyze

        return analyze(command, cwd=cwd or self.root, home=self._paths.home, root=self._paths.root)

    def decide(self, plan: PlannedCall, opinions: Sequence[Opinion] = ()) -> Decision:
        """Weigh a call and the opinions on it: the strictest wins, and the trail says who said what."""
        opinions = sorted(opinions, key=lambda opinion: (opinion.who, opinion.behavior, opinion.why))
        risk = self._levels.assess(plan)
        rules = self._index.about_call(plan)
        context = self._context(plan, opinions, risk, rules.allowing)
        findings = [Finding(rule_reason(rule)) for rule in rules.restricting]
        if risk.blocked_by is not None:
            findings.append(_settings_finding("deny", f"block {plan.tool.name} with {risk.blocked_by}"))
        if risk.level == "forbidden":
            findings.append(_settings_finding("deny", f"forbid {plan.tool.name}"))
        findings += self._judge_effects(context)
        findings += [_opinion_finding(opinion, plan) for opinion in opinions]
        return self._conclude(context, findings)

    def removal_reason(self, tool_name: str) -> Reason | None:
        """Return why a tool is not offered to the model at all; None where it is."""
        rule = self._index.deny.for_tool(tool_name)
        if rule is not None:
            return rule_reason(rule)
        if self._levels.forbids(tool_name):
            return Reason("default", "deny", f"the settings forbid {tool_name}")
        return None

    def hides(self, path: str) -> bool:
        """Return whether searches and listings leave a path out."""
        return self._files.hides_anything and self._files.hides(path)

    @property
    def hides_anything(self) -> bool:
        return self._files.hides_anything

    def guarded_files(self, also_writable: Sequence[str] = ()) -> GuardedFiles:
        """Find what a sandbox must keep from programs: what rules deny and what is protected. Blocks on the disk."""
        from wieldy.policy.permissions.guarded_files import find_guarded_files

        return find_guarded_files(self._index.paths, self._protected, self._paths, also_writable=also_writable)

    def denied_paths(self) -> tuple[str, ...]:
        """The files and folders that rules deny to read by name, whether they exist or not."""
        return tuple(path for pattern in self._index.paths.denying("Read") if (path := pattern.named) is not None)

    def protection_of(self, path: str) -> Protection | None:
        """Return why writing a real path asks in every mode; None if nothing protects it, or a rule lifts that."""
        return self._files.protection_of(path)

    def written_paths(self, plan: PlannedCall) -> Iterator[str]:
        """Yield the real paths that a call is known to write; a command may write others that cannot be foreseen."""
        effects = list(plan.effects)
        for _, analysis in self.analyses(plan):
            effects += analysis.effects
        for effect in effects:
            if isinstance(effect, Writes):
                yield self._paths.resolve(effect.path).real

    @property
    def outside(self) -> OutsidePolicy:
        return self._outside

    def _context(
        self, plan: PlannedCall, opinions: Sequence[Opinion], risk: CallRisk, rule: Rule | None
    ) -> DecisionContext:
        allowing = [opinion for opinion in opinions if opinion.behavior == "allow"]
        vouching = [opinion for opinion in allowing if opinion.who != CLEAN_TREE]
        unsandboxed = next((effect.unsandboxed for effect in plan.effects if isinstance(effect, Runs)), "")
        # Who lets everything run in a sandbox has not agreed to what leaves it.
        mode = find_mode("default") if unsandboxed and self._mode.accepts_all else self._mode
        return DecisionContext(
            plan,
            mode,
            risk.level,
            _blanket_reason(plan, risk, rule, vouching),
            hook_allows=bool(vouching),
            always_confirm=risk.configured in ("confirm", "dangerous"),
            clean_tree=len(vouching) < len(allowing),
            sandboxed=any(opinion.who == SANDBOX for opinion in vouching),
            unsandboxed=unsandboxed,
        )

    def _judge_effects(self, context: DecisionContext) -> Iterator[Finding]:
        effects = context.plan.effects
        judged: set[Effect] = set()
        for command, analysis in self.analyses(context.plan):
            # The parts of a command may be declared beside it; they are judged with the whole.
            if not any(isinstance(effect, Runs) and effect.command == command for effect in judged):
                yield from self._command_policy().judge(command, analysis, context)
            judged.update(analysis.effects)
        for effect in effects:
            if effect in judged:
                continue
            if isinstance(effect, (Reads, Writes)):
                yield self._files.judge(FileAccess(effect), context)
            elif isinstance(effect, Fetches):
                yield from self._network.judge(effect.url, context)
            elif isinstance(effect, UsesServer):
                yield from self._judge_server(effect.rule_name, context)
            elif isinstance(effect, Opaque) or (isinstance(effect, Delegates) and effect.opaque):
                yield self._judge_unknown(context, context.plan.tool.unknown_effects)
        if all(map(only_orders, effects)):
            yield self._judge_unknown(context, "it asks before it runs", harmless=True)

    def _judge_server(self, rule_name: str, context: DecisionContext) -> Iterator[Finding]:
        """Judge what a call asks of a server by the rules about that server's tools."""
        rules = self._index.about_tool(rule_name)
        yield from (Finding(rule_reason(rule)) for rule in rules.restricting)
        if self._levels.forbids(rule_name):
            yield _settings_finding("deny", f"forbid {rule_name}")
        if context.mode.accepts_all:
            yield context.mode_allows()
        elif context.blanket is not None:
            yield Finding(context.blanket)
        elif rules.allowing is not None:
            yield Finding(rule_reason(rules.allowing))
        else:
            text = f"{context.plan.tool.name} needs permission: what it asks for is sent to the server"
            yield Finding(Reason("default", "ask", text), Rule.offer(rule_name))

    def _judge_unknown(self, context: DecisionContext, why: str, *, harmless: bool = False) -> Finding:
        name = context.plan.tool.name
        if context.mode.read_only and not harmless:
            return Finding(Reason("mode", "deny", f"plan mode changes nothing, and of {name} {why}"))
        if context.mode.accepts_all:
            return context.mode_allows()
        if context.blanket is not None:
            return Finding(context.blanket)
        suggestion = Rule.offer(name) if context.level == "confirm" else None
        return Finding(Reason("default", "ask", f"{name} needs permission: {why}"), suggestion)

    def _conclude(self, context: DecisionContext, findings: Sequence[Finding]) -> Decision:
        trail = sorted(_distinct_reasons(findings), key=lambda reason: -STRICTNESS[reason.behavior])
        behavior = trail[0].behavior if trail else "ask"
        if behavior == "allow" and self._rules.broken:
            behavior, text = "ask", f"{self._rules.broken}; until that is fixed nothing is allowed without asking"
            trail.insert(0, Reason("guard", "ask", text))
        if behavior != "ask":
            return Decision(behavior, tuple(trail), ())
        if context.unsandboxed:
            trail.insert(0, Reason("default", "ask", f"it would run outside the sandbox: {context.unsandboxed}"))
        if not context.mode.asks:
            trail.insert(0, Reason("mode", "deny", f"{context.mode.name} mode refuses what would be asked"))
            behavior = "deny"
        return Decision(behavior, tuple(trail), _suggestions(findings))


def _blanket_reason(plan: PlannedCall, risk: CallRisk, rule: Rule | None, vouching: Sequence[Opinion]) -> Reason | None:
    """Find what allows a call as a whole, if anything does."""
    if rule is not None:
        return rule_reason(rule)
    if risk.allowed_by is not None and not any(isinstance(effect, Runs) for effect in plan.effects):
        return _settings_finding("allow", f"allow {plan.tool.name} with {risk.allowed_by}").reason
    if vouching:
        return _opinion_finding(vouching[0], plan).reason
    return Reason("default", "allow", f"{plan.tool.name} is safe") if risk.level == "safe" else None


def _suggestions(findings: Sequence[Finding]) -> tuple[str, ...]:
    """The rules that would answer every question, if each has one and they are not too many."""
    rules = dict.fromkeys(finding.suggested_rule for finding in findings if finding.behavior == "ask")
    if None in rules or len(rules) > MAX_RULES:
        return ()
    return tuple(rule for rule in rules if rule is not None)


def _distinct_reasons(findings: Sequence[Finding]) -> list[Reason]:
    reasons: dict[tuple[object, ...], Reason] = {}
    for finding in findings:
        reason = finding.reason
        reasons.setdefault((reason.behavior, reason.text, reason.part, reason.file, reason.line), reason)
    return list(reasons.values())


def _opinion_finding(opinion: Opinion, plan: PlannedCall) -> Finding:
    kind: Literal["tool", "hook"] = "tool" if opinion.who == plan.tool.name else "hook"
    return Finding(Reason(kind, opinion.behavior, f"{opinion.who}: {opinion.why}" if opinion.why else opinion.who))


def _settings_finding(behavior: Behavior, text: str) -> Finding:
    return Finding(Reason("default", behavior, f"the settings {text}"))


class RuleMatcher:
    """Tells whether a single rule, such as the `if` of a hook, matches calls, with a policy's view of paths and commands."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._by_rule: dict[Rule, Policy] = {}

    def __call__(self, rule: Rule, plan: PlannedCall) -> bool:
        """Return whether the rule matches the call or any part of it."""
        single = self._by_rule.get(rule)
        if single is None:
            single = self._by_rule[rule] = Policy(RuleSet((rule,)), paths=self._policy.paths, mode="bypassPermissions")
        return any(reason.rule == rule.text for reason in single.decide(plan).reasons)
