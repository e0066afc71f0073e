"""Answers a question about a page with the small model of the session, if it has one."""

from __future__ import annotations

from typing import Protocol

from wieldy.core.errors import WieldyError

MAX_CHARS = 100_000


class SummaryFailed(WieldyError):
    """The small model could not answer; the page itself is shown instead."""


class Summarizer(Protocol):
    async def __call__(self, question: str, page: str) -> str | None:
        """Answer a question from the text of a page alone; None where there is no model for it."""
        ...


class Summaries:
    """Answers questions about the pages of a workspace, where it has a summarizer."""

    def __init__(self, summarizer: Summarizer | None = None) -> None:
        self._summarizer = summarizer

    async def answer(self, question: str, page: str) -> str | None:
        """Answer a question from a page; None without a summarizer or a question. Raises `SummaryFailed`."""
        if self._summarizer is None or not question.strip() or not page.strip():
            return None
        try:
            return await self._summarizer(question, page[:MAX_CHARS])
        except WieldyError as failure:
            raise SummaryFailed(f"the question could not be put to the small model: {failure}") from None
