"""The policy for one file or host that a call touches: the same for every tool, for command arguments and for redirections."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from wieldy.core.decision import Behavior, Reason
from wieldy.core.effects import Reads, Writes
from wieldy.core.filesystem import FileSystem
from wieldy.policy.permissions.findings import DecisionContext, Finding, rule_reason
from wieldy.policy.permissions.paths import PathResolver, ResolvedPath, is_below, is_stream
from wieldy.policy.permissions.patterns import host_of
from wieldy.policy.permissions.protected import GIT_CONTROL, ProtectedPaths, Protection
from wieldy.policy.permissions.rules import HostRule, PathRule, Rule
from wieldy.policy.permissions.ruleset import CoveringRules, RuleIndex, ToolRules

# The kernel resolves these for the process that opens them.
DEPENDS_ON_PROCESS = re.compile(r"/proc/(?!(cpuinfo|meminfo|version|uptime|loadavg|stat|mounts)$)|/dev/fd/.*/")
# No rule is about this very name.
_ANY_NAME = "\1"
OutsidePolicy: TypeAlias = Literal["ask", "deny"]


class FileAccess(Struct, frozen=True):
    """One file effect.

    `part` is the command it comes from, `command` the finding about that command, `exact` that a rule spells the command out.
    `recursive` means that everything below a folder is touched without being named; `as_on_disk` that it is read as it is on
    disk now: the command changes nothing before, and does not read the history of a repository.
    """

    effect: Reads | Writes
    part: str | None = None
    command: Finding | None = None
    exact: bool = False
    redirected: bool = False
    recursive: bool = False
    as_on_disk: bool = False

    @property
    def writes(self) -> bool:
        return type(self.effect) is Writes

    @property
    def subject(self) -> str:
        """The tool whose path rules apply."""
        return "Edit" if self.writes else "Read"

    @property
    def command_allowed(self) -> bool:
        """Whether nothing but the file itself is in question."""
        return self.command is None or self.command.behavior == "allow"


class FilePolicy:
    """Judges file effects, and tells which files rules hide or protect."""

    def __init__(
        self, rules: RuleIndex, paths: PathResolver, protected: ProtectedPaths, outside: OutsidePolicy = "ask"
    ) -> None:
        self._deny, self._ask, self._allow = rules.deny, rules.ask, rules.allow
        self._rules = rules.paths
        self._paths = paths
        self._protected = protected
        self._outside = outside
        self.is_folder = paths.is_folder
        self.root = paths.root
        self.files: FileSystem = paths.files
        self.denies_anything = bool(rules.paths.denied_subjects)

    def judge(self, access: FileAccess, context: DecisionContext) -> Finding:
        """Judge one file by rules, guards, mode and defaults."""
        path = access.effect.path
        if path.startswith("/dev/") and is_stream(path, reading=not access.writes):
            return Finding(Reason("default", "allow", f"{path} is a stream", part=access.part))
        resolved = self._resolve(path, access, context)
        covering = self._rules.covering(resolved)
        reason = self._denied(access, resolved, covering, context) or self._asked(access, resolved, covering)
        if reason is not None:
            return Finding(reason)
        return self._allowed(access, resolved, covering, context)

    def _resolve(self, path: str, access: FileAccess, context: DecisionContext) -> ResolvedPath:
        resolved = self._resolve_once(path, context, reading=False)
        # What may be written may be read: only outside the allowed folders it matters which is wanted.
        if resolved.inside or access.writes:
            return resolved
        return self._resolve_once(path, context, reading=True)

    def _resolve_once(self, path: str, context: DecisionContext, reading: bool) -> ResolvedPath:
        if (path, reading) not in context.resolved:
            real = context.plan.resolved_paths.get(path)
            context.resolved[path, reading] = self._paths.resolve(path, reading=reading, resolved=real)
        return context.resolved[path, reading]

    def _denied(
        self, access: FileAccess, resolved: ResolvedPath, covering: CoveringRules, context: DecisionContext
    ) -> Reason | None:
        path = access.effect.path
        verb = "writing" if access.writes else "reading"
        rule = _any_rule(self._deny, covering, access.subject)
        if rule is None and access.writes:
            rule = _first_covering(covering, "deny", "Read")
        if rule is not None:
            return rule_reason(rule, f"forbids {verb} {path}", access.part)
        rule = self._rules.denies_path_inside(resolved) if access.writes and self._rules.denied_subjects else None
        if rule is not None:
            return rule_reason(rule, f"forbids {verb} something in {path}", access.part)
        if not resolved.inside and self._outside == "deny":
            return Reason("path", "deny", f"{resolved.real} is outside the allowed folders", part=access.part)
        if access.writes and context.mode.read_only:
            return Reason("mode", "deny", f"plan mode changes nothing, and this writes {path}", part=access.part)
        return None

    def _asked(self, access: FileAccess, resolved: ResolvedPath, covering: CoveringRules) -> Reason | None:
        path = access.effect.path
        rule = _any_rule(self._ask, covering, access.subject)
        if rule is not None:
            return rule_reason(rule, f"wants a question about {path}", access.part)
        rule = self._may_deny_inside(access, resolved)
        if rule is not None:
            return rule_reason(rule, f"may forbid something in {path}", access.part, "ask")
        rule = self._rules.first_deny if DEPENDS_ON_PROCESS.match(path) else None
        if rule is not None:
            return rule_reason(
                rule, f"may forbid it: where {path} leads is known only when it runs", access.part, "ask"
            )
        if access.writes and (protection := self._find_protection(resolved)) is not None:
            lifted = protection.soft or (protection.liftable and self._rules.allows_by_name(resolved))
            if not lifted or _allow_rule(access, covering) is None:
                return Reason("guard", "ask", f"{path} is protected: {protection.why}", part=access.part)
        return None

    def _may_deny_inside(self, access: FileAccess, resolved: ResolvedPath) -> Rule | None:
        """Find a rule that may forbid something in a folder which a command takes whole; our own tools leave such files out."""
        if access.part is None or not access.recursive or access.subject not in self._rules.denied_subjects:
            return None
        if not self._paths.is_folder(resolved.real):
            return None
        rule = self._rules.may_deny_inside(access.subject, resolved)
        if (
            rule is not None
            and access.as_on_disk
            and not self._rules.holds_denied(access.subject, resolved, self.files)
        ):
            return None
        return rule

    def _allowed(
        self, access: FileAccess, resolved: ResolvedPath, covering: CoveringRules, context: DecisionContext
    ) -> Finding:
        rule = _allow_rule(access, covering)
        if rule is not None:
            return Finding(rule_reason(rule, part=access.part))
        if context.mode.accepts_all:
            return Finding(Reason("mode", "allow", f"{context.mode.name} mode", part=access.part))
        if not resolved.inside and not self._may_leave(access, context):
            suggestion = PathRule.offer_for(access.effect, resolved, self._paths)
            text = f"{resolved.real} is outside the allowed folders"
            return Finding(Reason("path", "ask", text, part=access.part), suggestion)
        return self._allowed_inside(access, resolved, context)

    def _may_leave(self, access: FileAccess, context: DecisionContext) -> bool:
        """A rule that spells a command out covers its files; one that allows all commands covers reading, not writing."""
        if context.hook_allows or access.exact:
            return True
        reads = access.part is not None and not access.writes
        return reads and context.blanket is not None and context.blanket.kind == "rule"

    def _allowed_inside(self, access: FileAccess, resolved: ResolvedPath, context: DecisionContext) -> Finding:
        path, part = access.effect.path, access.part
        if context.blanket is not None:
            return Finding(context.blanket)
        if access.command is not None and (access.exact or not (access.redirected and access.writes)):
            return access.command
        if not access.writes and not context.always_confirm:
            return Finding(Reason("default", "allow", f"reads {path}", part=part))
        if access.writes and context.mode.accepts_edits and not context.always_confirm and access.command_allowed:
            return Finding(Reason("mode", "allow", f"{context.mode.name} mode: writes {path}", part=part))
        tool_rule = self._allow.for_tool(access.subject)
        if tool_rule is not None:
            return Finding(rule_reason(tool_rule, part=part))
        suggestion = PathRule.offer_for(access.effect, resolved, self._paths)
        verb = "writes" if access.writes else "reads"
        return Finding(Reason("default", "ask", f"{verb} {path}", part=part), suggestion)

    def hides(self, path: str) -> bool:
        """Return whether a rule forbids reading a path, so that searches and listings leave it out."""
        covering = self._rules.covering(self._paths.resolve_listed(path))
        return _first_covering(covering, "deny", "Read") is not None

    @property
    def hides_anything(self) -> bool:
        return "Read" in self._rules.denied_subjects

    def may_hold_protected(self, folder: str) -> bool:
        """Return whether protected files may lie in a folder: it holds a root or home, or some protected file."""
        if self.is_protected(folder):
            return True
        real = self._paths.resolve(folder).real
        if any(is_below(place, real) for place in (*self._paths.roots, self._paths.home)):
            return True
        try:
            names = [entry.name for entry in self.files.list_folder(real)]
        except OSError:
            return False
        hidden = (os.path.join(real, name) for name in names if name.startswith("."))
        return any(map(self.is_protected, hidden))

    def is_protected(self, path: str) -> bool:
        """Return whether writing a path asks in every mode."""
        return self._find_protection(self._paths.resolve(path)) is not None

    def _find_protection(self, path: ResolvedPath) -> Protection | None:
        """Find what protects a path by its name, or because of the repository that it lies in."""
        protection = self._protected.find(path)
        from wieldy.shell.sandbox.repositories import decides_for_git

        if protection is None and any(decides_for_git(spelling, self.files.exists) for spelling in path.spellings):
            return GIT_CONTROL
        return protection

    def protected_matches(self, pattern: str) -> list[str]:
        """Return the protected paths that a glob may expand to, whether or not they exist."""
        return [path for path in self._protected.matches(pattern) if self.is_protected(path)]

    def protection_of(self, path: str) -> Protection | None:
        """Return why writing a real path asks in every mode; None if nothing protects it, or a rule lifts that."""
        protection = self._find_protection(ResolvedPath((path,), True, self._paths.folds_case(path)))
        if protection is None or protection.soft or not protection.liftable:
            return protection
        return None if self._rules.allows_by_name(self._paths.resolve(path)) else protection

    def deny_rule_for(self, path: str) -> Rule | None:
        """Find the rule that forbids reading or writing an existing file, or everything in an existing folder."""
        if not self._rules.denied_subjects or not self._paths.exists(path):
            return None
        covering = self._rules.covering(self._paths.resolve(path))
        if self._paths.is_folder(path):
            covering = [*covering, *self._rules.covering(self._paths.resolve(os.path.join(path, _ANY_NAME)))]
        return _first_covering(covering, "deny", "Read") or _first_covering(covering, "deny", "Edit")

    def is_inside(self, folder: str) -> bool:
        """Return whether a folder is one of the allowed folders or lies in one."""
        return self._paths.resolve(folder).inside

    @property
    def first_deny(self) -> Rule | None:
        return self._rules.first_deny

    def deny_rule_mentioned(self, texts: Sequence[str]) -> Rule | None:
        """Find a rule that forbids a file which one of these texts names."""
        return self._rules.denies_mentioned(texts)

    def rule_inside(self, folder: str) -> Rule | None:
        """Find a rule that could forbid reading or writing something in a folder."""
        resolved = self._paths.resolve(folder)
        return self._rules.may_deny_inside("Read", resolved) or self._rules.may_deny_inside("Edit", resolved)


def _any_rule(rules: ToolRules, covering: CoveringRules, subject: str) -> Rule | None:
    """A deny or ask rule needs to match one spelling only."""
    return _first_covering(covering, rules.behavior, subject) or rules.for_tool(subject)


def _first_covering(covering: CoveringRules, behavior: Behavior, subject: str) -> Rule | None:
    return next((rule for rules in covering for rule in rules if _is_about(rule, behavior, subject)), None)


def _is_about(rule: Rule, behavior: Behavior, subject: str) -> bool:
    return rule.behavior == behavior and rule.subject == subject


def _allow_rule(access: FileAccess, covering: CoveringRules) -> Rule | None:
    """An allow rule must match every spelling; allowing edits allows reading."""
    subjects = ("Edit",) if access.writes else ("Edit", "Read")
    matches = [
        next((rule for subject in subjects for rule in rules if _is_about(rule, "allow", subject)), None)
        for rules in covering
    ]
    return matches[-1] if all(matches) else None


class NetworkPolicy:
    """Judges the hosts that calls and commands talk to."""

    def __init__(self, rules: RuleIndex) -> None:
        self._deny, self._ask, self._allow = rules.deny, rules.ask, rules.allow

    def judge(
        self, url: str, context: DecisionContext, part: str | None = None, command: Finding | None = None
    ) -> Iterator[Finding]:
        """Judge one URL by rules, mode and defaults; `command` is the finding about the command that talks to it."""
        host = host_of(url)
        for rules in (self._deny, self._ask):
            rule = (rules.for_host(host) if host else None) or rules.for_tool("WebFetch")
            if rule is not None:
                yield Finding(rule_reason(rule, f"is about {host or url}", part))
        rule = self._allow.for_host(host) if host else None
        if rule is not None:
            yield Finding(rule_reason(rule, f"is about {host}", part))
        elif context.mode.accepts_all:
            yield context.mode_allows(part)
        elif context.blanket is not None:
            yield Finding(context.blanket)
        elif command is not None:
            yield command
        else:
            yield Finding(Reason("default", "ask", f"talks to {host or url}", part=part), HostRule.offer_for(host))
