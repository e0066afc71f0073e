"""What is found about one thing a call would do, and the case it belongs to."""

from __future__ import annotations

from msgspec import Struct, field

from wieldy.core.call import PlannedCall
from wieldy.core.decision import Behavior, Reason
from wieldy.permissions.modes import Mode
from wieldy.permissions.paths import ResolvedPath
from wieldy.permissions.risk_levels import RiskLevel
from wieldy.permissions.rules import Rule


class Finding(Struct, frozen=True):
    """One step of the trail; `remedy` is a rule that would turn its ask into an allow."""

    reason: Reason
    remedy: str | None = None

    @property
    def behavior(self) -> Behavior:
        """What the step says."""
        return self.reason.behavior


class DecisionContext(Struct, frozen=True):
    """One call before the judge. `cover` is what allows the call as a whole, `vouched` whether a hook is behind it.

    `careful` means the settings want a question even where the tool's effects are harmless. `looks` keeps what was seen of
    each path, so that all parts of a command are judged by one look at it.
    """

    plan: PlannedCall
    mode: Mode
    level: RiskLevel
    cover: Reason | None = None
    vouched: bool = False
    careful: bool = False
    clean_tree: bool = False
    looks: dict[tuple[str, bool], ResolvedPath] = field(default_factory=dict)


def by_rule(rule: Rule, text: str = "", part: str | None = None, behavior: Behavior | None = None) -> Reason:
    """A step that a rule decided, with where the rule is written; it says what the rule says unless told otherwise."""
    said = f"rule `{rule.text}`" + (f" {text}" if text else "")
    where = rule.origin
    return Reason("rule", behavior or rule.behavior, said, rule.text, where.file or where.layer, where.line, part)
