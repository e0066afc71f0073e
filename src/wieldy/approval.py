"""Who answers permission questions: a callback, or nobody. A yes to "don't ask again" becomes rules, kept for next time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from wieldy.core.decision import Answer, Approver, Question
from wieldy.core.errors import Refusal, WieldyError
from wieldy.core.events import Notice
from wieldy.core.threads import in_thread
from wieldy.core.tool import maybe_await
from wieldy.core.workspace import Workspace

if TYPE_CHECKING:
    from wieldy.permissions.decide import Policy

Ask: TypeAlias = Callable[[Question], bool | str | Answer | Awaitable[bool | str | Answer]]


class CallbackApprover:
    """The person behind an `ask` callback: True, False, words for the model (a no), or a whole `Answer`."""

    def __init__(self, ask: Ask, policy: Policy, workspace: Workspace, *, keep: bool) -> None:
        self._ask = ask
        self._policy = policy
        self._workspace = workspace
        self._keep = keep

    async def ask(self, question: Question) -> Answer:
        """Put the question; rules the person grants hold from now on."""
        said = await maybe_await(self._ask(question))
        answer = said if isinstance(said, Answer) else Answer(said is True, said if isinstance(said, str) else "")
        if answer.allowed and answer.remember:
            await self._grant(answer)
        return answer

    async def _grant(self, answer: Answer) -> None:
        from wieldy.permissions.suggest import select_savable_rules
        from wieldy.settings.store import remember

        grant = select_savable_rules(answer.remember, self._policy.root)
        for line in grant.refused:
            self._workspace.emit(Notice(text=line))
        self._policy.grant(*grant.rules)
        if self._keep and grant.rules:
            try:
                await in_thread(remember, self._policy.root, grant.rules)
            except (WieldyError, OSError) as error:
                self._workspace.emit(Notice(text=f"allowed for this session only: {error}"))


class ObservedApprover:
    """Somebody who answers, and somebody who is told which calls they are asked about."""

    def __init__(self, person: Approver, told: Callable[[str], None]) -> None:
        self._person = person
        self._told = told

    async def ask(self, question: Question) -> Answer:
        """Tell of the question, then put it."""
        self._told(question.plan.call.id)
        return await self._person.ask(question)


class NoApprover:
    """Where nobody can answer, a question is a denial that says how to go on."""

    async def ask(self, question: Question) -> Answer:
        """Refuse, naming the reason and the rule that would have allowed the call."""
        decision, name = question.decision, question.plan.tool.name
        rule = f" The user can allow it with the rule `{decision.suggestions[0]}`." if decision.suggestions else ""
        raise Refusal(
            "permission",
            f"Permission denied for {name}: {decision.why}, and nobody is there to ask.{rule} "
            "Go on without it, or say what you would need.",
            data=decision,
        )
