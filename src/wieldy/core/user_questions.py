"""Questions of substance to the person: which way to go, not whether something may run (that is `decision.Question`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from wieldy.core.errors import Refusal

if TYPE_CHECKING:
    from wieldy.core.workspace import Workspace


class UserQuestion(Struct, frozen=True):
    """One question. The person may always answer in words of their own; `several` lets them choose more than one option."""

    question: str
    options: tuple[str, ...] = ()
    several: bool = False


class UserAnswer(Struct, frozen=True):
    """What the person said: options they chose, words of their own, or both."""

    chosen: tuple[str, ...] = ()
    words: str = ""

    def __str__(self) -> str:
        return "; ".join((*self.chosen, *([self.words] if self.words else [])))


class QuestionHandler(Protocol):
    """Puts questions to a person. A terminal, an editor or a program behind an API is one."""

    async def answer(self, inquiries: Sequence[UserQuestion]) -> Sequence[UserAnswer] | None:
        """One reply to each question, in order, or None when the person does not want to answer."""
        ...


class UserQuestions:
    """The person of one workspace, as tools may ask them: `workspace.service(Person)`. Whoever has a screen sets `asker`."""

    def __init__(self, workspace: Workspace) -> None:
        self.handler: QuestionHandler | None = None
        # Entered while a question waits for the person, to run Notification hooks.
        self.while_waiting: Callable[[str], AbstractAsyncContextManager[object]] = nullcontext

    async def answer(self, inquiries: Sequence[UserQuestion]) -> tuple[UserAnswer, ...]:
        """The person's replies. Raises `Refusal` where nobody is there, or they do not want to answer."""
        if self.handler is None:
            raise Refusal(
                "permission",
                "Nobody is there to answer. Choose what is safest and easiest to change later, go on, and say at the end "
                "what you assumed.",
            )
        async with self.while_waiting(inquiries[0].question):
            replies = await self.handler.answer(inquiries)
        if replies is None:
            raise Refusal("permission", "The user does not want to answer. Wait for what they say next.")
        return tuple(replies)
