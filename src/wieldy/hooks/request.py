"""PermissionRequest hooks: heard before a person is asked, and able to answer in their place."""

from __future__ import annotations

from wieldy.core.decision import Answer, Approver, Question
from wieldy.hooks.hooks import Hooks
from wieldy.hooks.moment import PermissionRequest


class HookedApprover:
    """Asks the hooks first, then whoever comes next."""

    def __init__(self, hooks: Hooks, then: Approver) -> None:
        self._hooks = hooks
        self._then = then

    async def ask(self, question: Question) -> Answer:
        """The hooks' answer if they have one, else the next one's."""
        if not self._hooks.wanted("PermissionRequest"):
            return await self._then.ask(question)
        plan = question.plan
        rules = [{"type": "addRules", "behavior": "allow", "rules": [rule]} for rule in question.decision.suggestions]
        said = await self._hooks.fire(
            PermissionRequest(
                **self._hooks.common(),
                tool_name=plan.tool.name,
                tool_input=plan.input,
                tool_use_id=plan.call.id,
                permission_suggestions=rules,
            ),
            plan,
        )
        if said.behavior == "allow":
            return Answer(True, updated_input=said.updated_input)
        if said.behavior == "deny":
            return Answer(False, said.reason or "a hook said no")
        return await self._then.ask(question)
