"""Judges one file that a call reads or writes: the same for every tool, for arguments of commands and for redirections."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

from wieldy.core.decision import Behavior, Reason
from wieldy.core.effects import Reads, Writes
from wieldy.permissions import suggest
from wieldy.permissions.findings import DecisionContext, Finding, by_rule
from wieldy.permissions.paths import PathResolver, ResolvedPath, below, is_stream
from wieldy.permissions.protected import ProtectedPaths
from wieldy.permissions.rules import Rule, host_of
from wieldy.permissions.ruleset import Covering, RuleIndex, ToolRules, first_of

Outside: TypeAlias = Literal["ask", "deny"]


class FileAccess(Struct, frozen=True):
    """One file effect. `part` is the command it comes from, `command` what was found about that command,
    `exact` that a rule spells it out.

    `swept` means that everything below a folder is touched without being named.
    """

    effect: Reads | Writes
    part: str | None = None
    command: Finding | None = None
    exact: bool = False
    redirect: bool = False
    swept: bool = False

    @property
    def writes(self) -> bool:
        """Whether the file would change."""
        return type(self.effect) is Writes

    @property
    def settled(self) -> bool:
        """Whether nothing but the file itself is in question."""
        return self.command is None or self.command.behavior == "allow"


class FilePolicy:
    """The one path policy."""

    def __init__(
        self, shelves: RuleIndex, paths: PathResolver, protected: ProtectedPaths, outside: Outside = "ask"
    ) -> None:
        self._deny, self._ask, self._allow = shelves.deny, shelves.ask, shelves.allow
        self._rules = shelves.paths
        self._paths = paths
        self._protected = protected
        self._outside = outside
        self.is_folder = paths.is_folder

    def judge(self, touch: FileAccess, case: DecisionContext) -> Finding:
        """What rules, guards, mode and defaults say about one file."""
        path = touch.effect.path
        if is_stream(path, reading=not touch.writes):
            return Finding(Reason("default", "allow", f"{path} is a stream", part=touch.part))
        seen = self._look(path, touch, case)
        covering = self._rules.covering(seen)
        reason = self._forbidden(touch, seen, covering, case) or self._asked(touch, seen, covering)
        if reason is not None:
            return Finding(reason)
        return self._permitted(touch, seen, covering, case)

    def _look(self, path: str, touch: FileAccess, case: DecisionContext) -> ResolvedPath:
        seen = self._once(path, case, reading=False)
        # What may be written may be read: only of what lies outside it matters which is wanted.
        return seen if seen.inside or touch.writes else self._once(path, case, reading=True)

    def _once(self, path: str, case: DecisionContext, reading: bool) -> ResolvedPath:
        seen = case.looks.get((path, reading))
        if seen is None:
            seen = self._paths.look(path, reading=reading, resolved=case.plan.resolved_paths.get(path))
            case.looks[path, reading] = seen
        return seen

    def _forbidden(
        self, touch: FileAccess, seen: ResolvedPath, covering: Covering, case: DecisionContext
    ) -> Reason | None:
        verb = "writing" if touch.writes else "reading"
        rule = self._either(self._deny, covering, touch)
        if rule is None and touch.writes:
            rule = _in_any(covering, "deny", "Read")
        if rule is not None:
            return by_rule(rule, f"forbids {verb} {touch.effect.path}", touch.part)
        rule = self._rules.surely_inside(seen) if touch.writes and self._rules.forbidden else None
        if rule is not None:
            return by_rule(rule, f"forbids {verb} something in {touch.effect.path}", touch.part)
        if not seen.inside and self._outside == "deny":
            return Reason("path", "deny", f"{seen.real} is outside the allowed folders", part=touch.part)
        if touch.writes and case.mode.reads_only:
            return Reason(
                "mode", "deny", f"plan mode changes nothing, and this writes {touch.effect.path}", part=touch.part
            )
        return None

    def _asked(self, touch: FileAccess, seen: ResolvedPath, covering: Covering) -> Reason | None:
        rule = self._either(self._ask, covering, touch)
        if rule is not None:
            return by_rule(rule, f"wants a question about {touch.effect.path}", touch.part)
        rule = self._perhaps_inside(touch, seen)
        if rule is not None:
            return by_rule(rule, f"may forbid something in {touch.effect.path}", touch.part, "ask")
        if touch.writes and (protection := self._protected.find(seen)) is not None:
            lifted = protection.soft or (protection.liftable and self._rules.names(seen.real, seen))
            if not lifted or _allowing(touch, covering) is None:
                text = f"{touch.effect.path} is protected: {protection.why}"
                return Reason("guard", "ask", text, part=touch.part)
        return None

    def _permitted(self, touch: FileAccess, seen: ResolvedPath, covering: Covering, case: DecisionContext) -> Finding:
        allowed = _allowing(touch, covering)
        if allowed is not None:
            return Finding(by_rule(allowed, part=touch.part))
        if case.mode.accepts_all:
            return Finding(Reason("mode", "allow", f"{case.mode.name} mode", part=touch.part))
        if not seen.inside and not self._may_leave(touch, case):
            remedy = suggest.for_path(touch.effect, seen, self._paths)
            text = f"{seen.real} is outside the allowed folders"
            return Finding(Reason("path", "ask", text, part=touch.part), remedy)
        return self._inside(touch, seen, case)

    def _may_leave(self, touch: FileAccess, case: DecisionContext) -> bool:
        """Who spells a command out means its files too; who allows all commands lets them look around, not write about."""
        looks = touch.part is not None and not touch.writes
        return case.vouched or touch.exact or (looks and case.cover is not None and case.cover.kind == "rule")

    def _inside(self, touch: FileAccess, seen: ResolvedPath, case: DecisionContext) -> Finding:
        path, part = touch.effect.path, touch.part
        if case.cover is not None:
            return Finding(case.cover)
        if touch.command is not None and (touch.exact or not (touch.redirect and touch.writes)):
            return touch.command
        if not touch.writes and not case.careful:
            return Finding(Reason("default", "allow", f"reads {path}", part=part))
        if touch.writes and case.mode.accepts_edits and not case.careful and touch.settled:
            return Finding(Reason("mode", "allow", f"{case.mode.name} mode: writes {path}", part=part))
        whole = self._allow.for_tool("Edit" if touch.writes else "Read")
        if whole is not None:
            return Finding(by_rule(whole, part=part))
        remedy = suggest.for_path(touch.effect, seen, self._paths)
        return Finding(Reason("default", "ask", f"{'writes' if touch.writes else 'reads'} {path}", part=part), remedy)

    def _either(self, shelf: ToolRules, covering: Covering, touch: FileAccess) -> Rule | None:
        """A deny or ask rule needs to match one spelling only."""
        subject = "Edit" if touch.writes else "Read"
        return _in_any(covering, shelf.behavior, subject) or shelf.for_tool(subject)

    def _perhaps_inside(self, touch: FileAccess, seen: ResolvedPath) -> Rule | None:
        """A command that takes a whole folder may touch what a rule forbids in it; our own tools leave that out."""
        subject = "Edit" if touch.writes else "Read"
        if touch.part is None or not touch.swept or subject not in self._rules.forbidden:
            return None
        if not self._paths.is_folder(seen.real):
            return None
        return self._rules.perhaps_inside(subject, seen)

    def hides(self, path: str) -> bool:
        """Whether a rule forbids reading a path, so that searches and listings leave it out."""
        return _in_any(self._rules.covering(self._paths.look_again(path)), "deny", "Read") is not None

    def guards_something_in(self, folder: str) -> bool:
        """Whether protected files have their place in a folder: the work or home is at or below it, or it holds some."""
        real = self._paths.look(folder).real
        if any(below(place, real) for place in (*self._paths.roots, self._paths.home)):
            return True
        try:
            names = os.listdir(real)
        except OSError:
            return False
        hidden = (os.path.join(real, name) for name in names if name.startswith("."))
        return any(self._protected.find(self._paths.look(path)) is not None for path in hidden)

    def forbidding(self, path: str) -> Rule | None:
        """The rule that forbids reading or writing a file that is there."""
        if not self._paths.exists(path):
            return None
        covering = self._rules.covering(self._paths.look(path))
        return _in_any(covering, "deny", "Read") or _in_any(covering, "deny", "Edit")

    @property
    def forbids_anything(self) -> bool:
        """Whether there is any rule that forbids a path."""
        return bool(self._rules.forbidden)

    @property
    def hides_anything(self) -> bool:
        """Whether there is any rule that forbids reading a path."""
        return "Read" in self._rules.forbidden


def _in_any(covering: Covering, behavior: Behavior, subject: str) -> Rule | None:
    for rules in covering:
        if rules and (found := first_of(rules, behavior, subject)) is not None:
            return found
    return None


def _allowing(touch: FileAccess, covering: Covering) -> Rule | None:
    """An allow rule must match every spelling; allowing edits allows reading."""
    found: Rule | None = None
    for rules in covering:
        found = first_of(rules, "allow", "Edit") if rules else None
        if found is None and rules and not touch.writes:
            found = first_of(rules, "allow", "Read")
        if found is None:
            return None
    return found


class NetworkPolicy:
    """The network policy."""

    def __init__(self, shelves: RuleIndex) -> None:
        self._deny, self._ask, self._allow = shelves.deny, shelves.ask, shelves.allow

    def judge(
        self, url: str, case: DecisionContext, part: str | None = None, command: Finding | None = None
    ) -> Iterator[Finding]:
        """What rules, mode and defaults say about one address; `command` is what was found about the one that talks to it."""
        host = host_of(url)
        for shelf in (self._deny, self._ask):
            rule = (shelf.for_host(host) if host else None) or shelf.for_tool("WebFetch")
            if rule is not None:
                yield Finding(by_rule(rule, f"is about {host or url}", part))
        yield self._permitted(host, url, case, part, command)

    def _permitted(
        self, host: str | None, url: str, case: DecisionContext, part: str | None, command: Finding | None
    ) -> Finding:
        rule = self._allow.for_host(host) if host else None
        if rule is not None:
            return Finding(by_rule(rule, f"is about {host}", part))
        if case.mode.accepts_all:
            return Finding(Reason("mode", "allow", f"{case.mode.name} mode", part=part))
        if case.cover is not None:
            return Finding(case.cover)
        if command is not None:
            return command
        return Finding(Reason("default", "ask", f"talks to {host or url}", part=part), suggest.for_host(host))
