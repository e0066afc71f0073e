"""The history of what was typed, kept between sessions."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from wieldy.core.state_dirs import state_home

if TYPE_CHECKING:
    from prompt_toolkit.history import History


def open_history(path: Path | None = None) -> History:
    """Open the history of earlier sessions; one that cannot be saved lasts for this session."""
    from prompt_toolkit.history import FileHistory

    file = path or state_home() / "history"

    class TolerantHistory(FileHistory):
        def load_history_strings(self) -> Iterable[str]:
            try:
                return super().load_history_strings()
            except OSError:
                return []

        def store_string(self, string: str) -> None:
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                super().store_string(string)
            except OSError:
                pass

    return TolerantHistory(str(file))
