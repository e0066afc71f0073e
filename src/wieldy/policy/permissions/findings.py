"""What the policies find about one thing a call would do, and the context of the decision."""

from __future__ import annotations

from msgspec import Struct, field

from wieldy.core.call import PlannedCall
from wieldy.core.decision import Behavior, Reason
from wieldy.core.tool import RiskLevel
from wieldy.policy.permissions.modes import Mode
from wieldy.policy.permissions.paths import ResolvedPath
from wieldy.policy.permissions.rules import Rule


class Finding(Struct, frozen=True):
    """One step of the reason trail; `suggested_rule` would turn its ask into an allow."""

    reason: Reason
    suggested_rule: str | None = None

    @property
    def behavior(self) -> Behavior:
        return self.reason.behavior


class DecisionContext(Struct, frozen=True):
    """One call under decision.

    `blanket` is the reason that allows the call as a whole, if one does; `hook_allows` that a hook or the sandbox vouches
    for it; `always_confirm` that the settings want a question even for harmless effects. `sandboxed` says that a sandbox
    contains the call, `unsandboxed` why it runs outside the one that the settings ask for. `resolved` holds one resolution
    per path, so that all parts of a command are judged by the same one.
    """

    plan: PlannedCall
    mode: Mode
    level: RiskLevel
    blanket: Reason | None = None
    hook_allows: bool = False
    always_confirm: bool = False
    clean_tree: bool = False
    sandboxed: bool = False
    unsandboxed: str = ""
    resolved: dict[tuple[str, bool], ResolvedPath] = field(default_factory=dict)

    def mode_allows(self, part: str | None = None) -> Finding:
        """Make the finding that the mode allows something."""
        return Finding(Reason("mode", "allow", f"{self.mode.name} mode", part=part))


def rule_reason(rule: Rule, text: str = "", part: str | None = None, behavior: Behavior | None = None) -> Reason:
    """Make the step that a rule decided, with where the rule is written; `behavior` replaces the rule's own."""
    words = f"rule `{rule.text}`" + (f" {text}" if text else "")
    origin = rule.origin
    return Reason("rule", behavior or rule.behavior, words, rule.text, origin.file or origin.layer, origin.line, part)
