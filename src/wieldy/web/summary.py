"""The place where a session puts its small model, so that a question about a page is answered from the page."""

from __future__ import annotations

from typing import Protocol

from wieldy.core.errors import WieldyError
from wieldy.core.workspace import Workspace

MOST_CHARS = 100_000


class Unanswered(WieldyError):
    """Somebody is there to say, but could not; the page itself has to do."""


class Summariser(Protocol):
    """Answers a question from the text of a page, and from nothing else."""

    async def __call__(self, question: str, page: str) -> str:
        """The answer."""
        ...


class Summaries:
    """`workspace.service(Summaries).ask` is the summariser of a session; None where it has no small model."""

    def __init__(self, workspace: Workspace) -> None:
        self.ask: Summariser | None = None

    async def answer(self, question: str, page: str) -> str | None:
        """What the page says to a question; None where nobody is there to say. Raises `Unanswered`."""
        if self.ask is None or not question.strip() or not page.strip():
            return None
        try:
            return await self.ask(question, page[:MOST_CHARS])
        except WieldyError as failure:
            raise Unanswered(f"the question could not be put to the small model: {failure}") from None
