"""Questions that a tool asks the user about the task. Permission questions are `decision.Question`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol

from msgspec import Struct

from wieldy.core.errors import Refusal


class UserQuestion(Struct, frozen=True):
    """One question. The user may always type an answer; `several` allows more than one option."""

    question: str
    options: tuple[str, ...] = ()
    several: bool = False


class UserAnswer(Struct, frozen=True):
    """The options that the user chose, the text they typed, or both."""

    chosen: tuple[str, ...] = ()
    words: str = ""

    def __str__(self) -> str:
        return "; ".join((*self.chosen, *([self.words] if self.words else [])))


class QuestionHandler(Protocol):
    """Shows questions to the user: a terminal, an editor, or a program behind an API.

    One that cannot always ask has an attribute `available`, which says whether it can now.
    """

    async def answer(self, questions: Sequence[UserQuestion]) -> Sequence[UserAnswer] | None:
        """One answer to each question, in order, or None when the user does not want to answer."""
        ...


class UserQuestions:
    """Asks the user of a workspace through a handler; without one, nobody can answer."""

    def __init__(
        self,
        handler: QuestionHandler | None = None,
        *,
        while_waiting: Callable[[str], AbstractAsyncContextManager[object]] = nullcontext,
    ) -> None:
        self._handler = handler
        self._while_waiting = while_waiting  # entered while a question waits for the person, to run Notification hooks

    @property
    def available(self) -> bool:
        """Whether somebody can answer now."""
        return self._handler is not None and getattr(self._handler, "available", True)

    async def answer(self, questions: Sequence[UserQuestion], call_id: str = "") -> tuple[UserAnswer, ...]:
        """Return the answers; `call_id` is the call that asks.

        Raises `Refusal` where nobody is there, or the user does not want to answer.
        """
        if self._handler is None or not self.available:
            raise Refusal(
                "permission",
                "Nobody is there to answer.",
                "Choose what is safest and easiest to change later, go on, and say at the end what you assumed.",
                person="no person is there to answer",
            )
        async with self._while_waiting(questions[0].question):
            if call_id and hasattr(self._handler, "answer_call"):
                answers = await self._handler.answer_call(call_id, questions)
            else:
                answers = await self._handler.answer(questions)
        if answers is None:
            raise Refusal(
                "permission",
                "The user does not want to answer.",
                "Wait for what they say next.",
                person="you did not answer",
            )
        return tuple(answers)
