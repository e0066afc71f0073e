"""What a person's "don't ask again" becomes: rules worth keeping, and never a piece of script."""

from __future__ import annotations

from collections.abc import Sequence

from wieldy.core.call import PlannedCall
from wieldy.core.record import record
from wieldy.permissions.decide import Policy
from wieldy.permissions.rule import Rule
from wieldy.permissions.suggest import MOST_RULES, keepable


@record
class Grant:
    """Rules to keep, and a line about each that is not worth keeping."""

    rules: tuple[Rule, ...]
    refused: tuple[str, ...] = ()


def granted(texts: Sequence[str], root: str) -> Grant:
    """The rules among these texts that are fit to be kept: short, readable again, at most five."""
    rules: list[Rule] = []
    refused: list[str] = []
    for text in dict.fromkeys(texts):
        rule = keepable(text, root)
        if rule is None:
            refused.append(
                f"`{text if len(text) <= 60 else text[:57] + '…'}` would make no useful rule: it was not kept"
            )
        elif len(rules) == MOST_RULES:
            refused.append(f"more than {MOST_RULES} rules for one call: `{text}` was not kept")
        else:
            rules.append(rule)
    return Grant(tuple(rules), tuple(refused))


def for_call(policy: Policy, plan: PlannedCall) -> Grant:
    """The narrowest rules under which this call would not be asked about again; none where no rule can do that."""
    decision = policy.decide(plan)
    if decision.behavior != "ask":
        return Grant(())
    return granted(decision.suggestions, policy.root)
