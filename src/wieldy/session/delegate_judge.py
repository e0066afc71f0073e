"""Who decides for a sub-agent: its parent's rules and mode, where it stands itself, and never more than they allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wieldy.core.call import PlannedCall
from wieldy.core.decision import STRICTNESS, Decision, Judge, Opinion, Reason
from wieldy.permissions.decide import Policy
from wieldy.permissions.mode import mode_named

# From the strictest on: which of several modes a person is told of.
WIDTH = ("plan", "dontAsk", "default", "acceptEdits", "bypassPermissions")


class Narrowed:
    """The strictest of what the parent's judge decides and what each of `modes` makes of the same rules.

    `policy` is the one of the session, whose mode and rules may change at any time; `given` is a judge that stands in for it.
    """

    def __init__(
        self, policy: Policy, cwd: Callable[[], str], modes: Sequence[str] = (), given: Judge | None = None
    ) -> None:
        self._policy = policy
        self._cwd = cwd
        self._modes = tuple(mode_named(mode).name for mode in modes)
        self._given = given
        self._seen: tuple[object, object] = (None, None)
        self._made: dict[str, Policy] = {}

    def beside(self, cwd: Callable[[], str], mode: str | None) -> Narrowed:
        """The judge of somebody further down: nothing that holds here is lost on the way."""
        return Narrowed(self._policy, cwd, (*self._modes, *([mode] if mode else ())), self._given)

    @property
    def mode(self) -> str:
        """The mode in force, the narrowest where there are several."""
        return min((self._policy.mode, *self._modes), key=WIDTH.index)

    def decide(self, plan: PlannedCall, opinions: Sequence[Opinion] = ()) -> Decision:
        """What is decided about a call, as strict as the strictest says."""
        first = self.standing() if self._given is None else self._given
        decisions = [first.decide(plan, opinions)]
        decisions += [self._in(mode).decide(plan, opinions) for mode in dict.fromkeys(self._modes)]
        return max(decisions, key=lambda decision: STRICTNESS[decision.behavior])

    def standing(self) -> Policy:
        """The session's policy, seen from where the sub-agent stands."""
        return self._in(self._policy.mode)

    def removes(self, tool_name: str) -> Reason | None:
        """Why a tool is not to be offered at all; None where it may be."""
        return self._policy.removes(tool_name)

    def hides(self, path: str) -> bool:
        """Whether searches and listings are to leave a path out."""
        return self._policy.hides(path)

    @property
    def hides_anything(self) -> bool:
        """Whether `hides` can be true for any path."""
        return self._policy.hides_anything

    def _in(self, mode: str) -> Policy:
        """The session's policy in some mode, made anew when its rules or folders have changed."""
        seen = (self._policy.rules, self._policy.paths)
        if seen[0] is not self._seen[0] or seen[1] is not self._seen[1]:
            self._seen, self._made = seen, {}
        made = self._made.get(mode)
        if made is None:
            made = self._made[mode] = self._policy.beside(self._cwd, mode)
        return made
