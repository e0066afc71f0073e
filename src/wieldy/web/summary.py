"""Answers a question about a page with the small model of the session, if it has one."""

from __future__ import annotations

from typing import Protocol

from wieldy.core.errors import WieldyError
from wieldy.core.workspace import Workspace

MAX_CHARS = 100_000


class SummaryFailed(WieldyError):
    """The small model could not answer; the page itself is shown instead."""


class Summarizer(Protocol):
    async def __call__(self, question: str, page: str) -> str:
        """Answer a question from the text of a page alone."""
        ...


class Summaries:
    """`workspace.service(Summaries).ask` is the summarizer of a session; None if it has no small model."""

    def __init__(self, workspace: Workspace) -> None:
        self.ask: Summarizer | None = None

    async def answer(self, question: str, page: str) -> str | None:
        """Answer a question from a page; None without a summarizer or a question. Raises `SummaryFailed`."""
        if self.ask is None or not question.strip() or not page.strip():
            return None
        try:
            return await self.ask(question, page[:MAX_CHARS])
        except WieldyError as failure:
            raise SummaryFailed(f"the question could not be put to the small model: {failure}") from None
