"""The place where a session puts its small model, so that a question about a page is answered from the page."""

from __future__ import annotations

from typing import Protocol

from wieldy.core.workspace import Workspace


class Summariser(Protocol):
    """Answers a question from the text of a page, and from nothing else."""

    async def __call__(self, question: str, page: str) -> str:
        """The answer."""
        ...


class Summaries:
    """`workspace.resident(Summaries).ask` is the summariser of a session; None where it has no small model."""

    def __init__(self, workspace: Workspace) -> None:
        self.ask: Summariser | None = None
