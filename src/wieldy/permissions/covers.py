"""Does one rule, taken alone, speak about a call? A hook's `if` asks this."""

from __future__ import annotations

from wieldy.core.call import PlannedCall
from wieldy.permissions.decide import Policy
from wieldy.permissions.rule import Rule
from wieldy.permissions.ruleset import RuleSet


class Coverage:
    """Answers for the calls one judge sees, with the same view of paths and commands as its decisions."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._alone: dict[Rule, Policy] = {}

    def __call__(self, rule: Rule, plan: PlannedCall) -> bool:
        """Whether the rule matches the call or any part of it."""
        alone = self._alone.get(rule)
        if alone is None:
            alone = self._alone[rule] = Policy(
                RuleSet((rule,)), paths=self._policy.paths, mode="bypassPermissions", analyse=self._policy.analyse
            )
        return any(reason.rule == rule.text for reason in alone.decide(plan).reasons)
