"""Who answers permission questions: a callback, or nobody. Rules the person grants are kept for the next session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, TypeAlias

from wieldy.core.decision import Answer, Approver, Question
from wieldy.core.errors import Refusal, WieldyError
from wieldy.core.events import Notice
from wieldy.core.threads import call_function, in_thread
from wieldy.core.workspace import Workspace

if TYPE_CHECKING:
    from wieldy.policy.permissions.decide import Policy

Ask: TypeAlias = Callable[[Question], bool | str | Answer | Awaitable[bool | str | Answer]]


class CallbackApprover:
    """Asks an `ask` callback, which returns True, False, words for the model (a no), or a whole `Answer`.

    A plain function runs in a thread, so that it may wait for somebody.
    """

    def __init__(self, ask: Ask, policy: Policy, workspace: Workspace, *, save_rules: bool) -> None:
        self._ask = ask
        self._policy = policy
        self._workspace = workspace
        self._save_rules = save_rules

    async def ask(self, question: Question) -> Answer:
        """Ask, and apply the rules that the person grants."""
        reply = await call_function(self._ask, question)
        if not isinstance(reply, bool | str | Answer):
            raise TypeError(f"`ask` returned {reply!r}; it returns True, False, words for the model, or an Answer")
        answer = reply if isinstance(reply, Answer) else Answer(reply is True, reply if isinstance(reply, str) else "")
        if not isinstance(answer.allowed, bool):
            raise TypeError(f"`Answer.allowed` is {answer.allowed!r}; it is True or False")
        if answer.allowed and answer.remember:
            await self._grant(answer)
        return answer

    async def _grant(self, answer: Answer) -> None:
        from wieldy.policy.permissions.suggest import select_savable_rules
        from wieldy.policy.settings.store import remember, user_file

        grant = select_savable_rules(answer.remember, self._policy.paths.project)
        for line in grant.refused:
            self._workspace.emit(Notice(text=line))
        self._policy.grant(*grant.rules)
        if self._save_rules and grant.rules and answer.scope != "session":
            file = user_file() if answer.scope == "user" else None
            try:
                await in_thread(partial(remember, self._policy.root, grant.rules, file=file))
            except (WieldyError, OSError) as error:
                self._workspace.emit(Notice(text=f"allowed for this session only: {error}"))


class ObservedApprover:
    """Reports the call id of each question before it is asked."""

    def __init__(self, approver: Approver, on_question: Callable[[str], None]) -> None:
        self._approver = approver
        self._on_question = on_question

    async def ask(self, question: Question) -> Answer:
        self._on_question(question.plan.call.id)
        return await self._approver.ask(question)


class NoApprover:
    """Denies every question: nobody is there to answer."""

    async def ask(self, question: Question) -> Answer:
        """Refuse, naming the reason and a rule that would have allowed the call."""
        decision, name = question.decision, question.plan.tool.name
        suggestion = decision.suggestions[0] if decision.suggestions else ""
        rule = f" The user can allow it with the rule `{suggestion}`." if suggestion else ""
        way_on = f"; to allow it: wieldy permissions allow {quote(suggestion)}" if suggestion else ""
        raise Refusal(
            "permission",
            f"Permission denied for {name}: {decision.why}, and nobody is there to ask.{rule}",
            "Go on without it, or say what you would need.",
            person=f"not permitted: {decision.explanation}, and nobody is there to ask{way_on}",
            data=decision,
        )
