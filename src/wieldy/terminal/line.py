"""The prompt that a person types at: lines with editing, and a history that is kept where it can be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from wieldy.core.places import state_home

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession


def line_prompt() -> PromptSession[str]:
    """A prompt that remembers what was typed in earlier sessions. Where that cannot be kept, it is forgotten at the end."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory

    class Kept(FileHistory):
        def load_history_strings(self) -> Iterable[str]:
            try:
                return super().load_history_strings()
            except OSError:
                return []

        def store_string(self, string: str) -> None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                super().store_string(string)
            except OSError:
                pass  # a full disk is no reason to lose what was typed just now

    path = state_home() / "history"
    return PromptSession(history=Kept(str(path)))
