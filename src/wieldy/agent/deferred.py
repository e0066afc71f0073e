"""Questions that are answered later, perhaps in another process: `Session(ask="defer")`, `session.pending`, `session.answer`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from wieldy.agent.conversation import Conversation
from wieldy.agent.loop import AgentLoop, RunEnd
from wieldy.agent.records import QuestionDeferred
from wieldy.agent.runs import Work
from wieldy.core.decision import Answer, Question
from wieldy.core.effects import USES_FOLDER
from wieldy.core.errors import Deferred, SessionError
from wieldy.core.option_checks import require_callable
from wieldy.core.supervise import Abort
from wieldy.core.threads import call_function
from wieldy.core.user_questions import QuestionHandler, UserAnswer, UserQuestion
from wieldy.engine.services import Ask, NoApprover
from wieldy.engine.workspace_services import HostServices

Reply: TypeAlias = bool | str | Answer | Mapping[str, Any] | Sequence[Any] | None


class DeferredQuestions:
    """Answers the questions of a session from replies that were given, and defers or passes on the others.

    It is the `ask` callback and the question handler of the session's toolbox. `ask` and `handler` are what the program gave;
    `record` puts a deferred question into the transcript.
    """

    def __init__(
        self,
        ask: Ask | None,
        handler: QuestionHandler | None,
        *,
        defers: bool,
        record: Callable[[QuestionDeferred], None],
    ) -> None:
        self._ask = ask
        self._handler = handler
        self._defers = defers
        self._record = record
        self._replies: dict[str, Reply] = {}
        self._answered: dict[str, QuestionDeferred] = {}

    def resume_with(
        self,
        replies: Mapping[str, Reply],
        conversation: Callable[[], Conversation],
        make_work: Callable[[set[str]], Work],
    ) -> Work:
        """The work that follows replies to the open questions of a conversation.

        `make_work` makes it, from the calls of this conversation that the replies are about.
        """

        async def work(loop: AgentLoop, context: tuple[str, ...], abort: Abort) -> RunEnd:
            pending = {question.id: question for question in conversation().open_questions()}
            # Without a question, a process ended after the answers were given: what they were for continues.
            answered = conversation().answered_agents()
            if not (pending or answered or conversation().waiting or conversation().awaits_model):
                raise SessionError("no question is waiting for an answer")
            self.take_replies(replies, pending)
            calls = {pending[id].call or id for id in replies} | answered
            return await make_work(calls)(loop, context, abort)

        return work

    def take_replies(self, replies: Mapping[str, Reply], pending: Mapping[str, QuestionDeferred]) -> None:
        """Keep replies by the ids of their questions. Raises `SessionError` for one that answers no open question."""
        for id, reply in replies.items():
            if id not in pending:
                open_ids = ", ".join(pending) or "none"
                raise SessionError(f"there is no open question {id!r}; open are: {open_ids}")
            self._replies[id] = _checked(reply, pending[id])
            self._answered[id] = pending[id]

    async def ask(self, question: Question) -> bool | str | Answer:
        plan = question.plan
        if plan.call.id in self._replies:
            reply: Any = self._replies.pop(plan.call.id)
            folder = self._answered.pop(plan.call.id).cwd
            if not folder or folder == plan.cwd or USES_FOLDER not in plan.touches:
                return reply  # type: ignore[no-any-return]
        if self._ask is not None:
            answer: bool | str | Answer = await call_function(self._ask, question)
            return answer
        if not self._defers:
            return await NoApprover().ask(question)
        self._record(deferred_question(question))
        raise Deferred(plan.call.id)

    @property
    def available(self) -> bool:
        """Whether a tool can ask the user."""
        return self._defers or bool(self._replies) or self._handler is not None

    async def answer(self, questions: Sequence[UserQuestion]) -> Sequence[UserAnswer] | None:
        """Answer questions that belong to no call of the model, such as those of an MCP server."""
        if self._handler is None:
            return None
        return await self._handler.answer(questions)

    async def answer_call(self, call_id: str, questions: Sequence[UserQuestion]) -> Sequence[UserAnswer] | None:
        """Answer the questions that a call asks about the task."""
        if call_id in self._replies:
            return _user_answers(self._replies.pop(call_id), questions)
        if self._handler is not None or not self._defers:
            return await self.answer(questions)
        asked = [msgspec.to_builtins(question) for question in questions]
        self._record(QuestionDeferred(call_id, "AskUser", {}, questions=asked))
        raise Deferred(call_id)


def deferred_question(question: Question) -> QuestionDeferred:
    """The record of a question, for the conversation whose own call it is about, or one that leads to its subagent."""
    plan, calls = question.plan, question.agent_calls
    return QuestionDeferred(
        plan.call.id,
        plan.tool.name,
        dict(plan.input),
        decision=question.as_dict()["decision"],
        agent=question.agent if calls else "",
        call=calls[0] if calls else "",
        cwd=plan.cwd,
    )


def install_deferral(
    ask: Ask | Literal["defer"] | None,
    host: HostServices,
    *,
    resumes: bool,
    record: Callable[[QuestionDeferred], None],
) -> tuple[DeferredQuestions, Ask | None, HostServices]:
    """Let questions wait, or be answered from replies, as `ask` says; returns what the toolbox gets as `ask` and host.

    A session that `resumes` an earlier one may have questions that have been answered meanwhile.
    """
    require_callable("ask", ask, or_text="defer")
    callback = None if ask is None or isinstance(ask, str) else ask
    deferred = DeferredQuestions(callback, host.question_handler, defers=ask == "defer", record=record)
    if ask == "defer" or resumes:
        return deferred, deferred.ask, replace(host, question_handler=deferred)
    return deferred, callback, host


def _checked(reply: Reply, question: QuestionDeferred) -> Reply:
    """A reply that fits its question. Raises `SessionError`."""
    if question.questions is not None:
        _user_answers(reply, [msgspec.convert(each, UserQuestion) for each in question.questions])
        return reply
    if isinstance(reply, Mapping):
        try:
            return msgspec.convert(reply, Answer)
        except msgspec.ValidationError as error:
            raise SessionError(f"the answer to {question.id} cannot be read: {error}") from None
    if isinstance(reply, bool | str | Answer):
        return reply
    raise SessionError(f"the answer to {question.id} is True, False, words for the model, or an Answer, not {reply!r}")


def _user_answers(reply: Reply, questions: Sequence[UserQuestion]) -> list[UserAnswer] | None:
    """One answer to each question; None where the user does not want to answer. Raises `SessionError`."""
    if reply is None or reply is False:
        return None
    if isinstance(reply, str) and len(questions) == 1:
        return [_user_answer(reply, questions[0])]
    if isinstance(reply, Mapping) and all(question.question in reply for question in questions):
        return [_user_answer(reply[question.question], question) for question in questions]
    if isinstance(reply, Sequence) and not isinstance(reply, str) and len(reply) == len(questions):
        return [_user_answer(each, question) for each, question in zip(reply, questions, strict=True)]
    raise SessionError(
        f"there are {len(questions)} questions: answer with a list in their order, a dict by question, or False for none"
    )


def _user_answer(reply: Any, question: UserQuestion) -> UserAnswer:
    if isinstance(reply, UserAnswer):
        return reply
    if isinstance(reply, str):
        return UserAnswer((reply,)) if reply in question.options else UserAnswer(words=reply)
    if isinstance(reply, list | tuple) and all(isinstance(each, str) for each in reply):
        chosen = tuple(each for each in reply if each in question.options)
        return UserAnswer(chosen, "; ".join(each for each in reply if each not in question.options))
    raise SessionError(f"{reply!r} is no answer to `{question.question}`: give text, or a list of options")
