"""What a person's "don't ask again" becomes: rules worth keeping, and never a piece of script."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from wieldy.core.call import PlannedCall
from wieldy.core.truncate import truncate
from wieldy.permissions.decide import Policy
from wieldy.permissions.rules import Rule
from wieldy.permissions.ruleset import RuleSet
from wieldy.permissions.suggest import MOST_RULES, keepable


class SavableRules(Struct, frozen=True):
    """Rules to keep, and a line about each that is not worth keeping."""

    rules: tuple[Rule, ...]
    refused: tuple[str, ...] = ()


def select_savable_rules(texts: Sequence[str], root: str) -> SavableRules:
    """The rules among these texts that are fit to be kept: short, readable again, at most five."""
    rules: list[Rule] = []
    refused: list[str] = []
    for text in dict.fromkeys(texts):
        rule = keepable(text, root)
        if rule is None:
            refused.append(f"`{truncate(text, 60)}` would make no useful rule: it was not kept")
        elif len(rules) == MOST_RULES:
            refused.append(f"more than {MOST_RULES} rules for one call: `{text}` was not kept")
        else:
            rules.append(rule)
    return SavableRules(tuple(rules), tuple(refused))


def for_call(policy: Policy, plan: PlannedCall) -> SavableRules:
    """The narrowest rules under which this call would not be asked about again; none where no rule can do that."""
    decision = policy.decide(plan)
    if decision.behavior != "ask":
        return SavableRules(())
    return select_savable_rules(decision.suggestions, policy.root)


class RuleMatcher:
    """Answers for the calls one judge sees, with the same view of paths and commands as its decisions."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._alone: dict[Rule, Policy] = {}

    def __call__(self, rule: Rule, plan: PlannedCall) -> bool:
        """Whether the rule matches the call or any part of it."""
        alone = self._alone.get(rule)
        if alone is None:
            alone = self._alone[rule] = Policy(
                RuleSet((rule,)), paths=self._policy.paths, mode="bypassPermissions", analyze=self._policy.analyze
            )
        return any(reason.rule == rule.text for reason in alone.decide(plan).reasons)
