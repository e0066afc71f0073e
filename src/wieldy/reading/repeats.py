"""Which pages were shown last time they were asked for, so that asking again can be answered with a word."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wieldy.core.workspace import Workspace


class Repeats:
    """The pages of one workspace. A page is held back once; whoever insists gets it again."""

    def __init__(self, workspace: Workspace | None = None) -> None:
        self._shown: set[tuple[str, int, int]] = set()

    def show(self, path: str, first: int, last: int) -> None:
        """These lines are shown now."""
        self._shown.add((path, first, last))

    def was_shown(self, path: str, first: int, last: int) -> bool:
        """Whether exactly these lines were shown the last time."""
        return (path, first, last) in self._shown

    def hold_back(self, path: str, first: int, last: int) -> bool:
        """Whether exactly these lines were shown the last time; true only once."""
        page = (path, first, last)
        was_shown = page in self._shown
        self._shown.discard(page)
        return was_shown
