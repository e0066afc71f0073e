"""Undo and redo of one session's changes. The model must read the restored files again before it edits them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wieldy.core.workspace import Workspace

if TYPE_CHECKING:
    from wieldy.files.journal.undo import ChangesSince, UndoPlan


class SessionUndo:
    """Gives `undo` and `redo` to an object with a workspace and the id of its session."""

    id: str
    workspace: Workspace

    def _require_open(self) -> None:
        """Raise `ClosedError` once the object is closed."""

    async def undo(
        self,
        call_id: str | None = None,
        *,
        turn: bool = False,
        everything: bool = False,
        since: float | None = None,
        merge: bool = False,
    ) -> UndoPlan:
        """Take back the last change of this session, those of one call, of the last turn, since a time, or all of them.

        Raises `CannotUndo` when a file has changed since and `merge` is off, or when there is nothing to take back.
        """
        from wieldy.files.journal.undo import UndoSelector

        self._require_open()
        everything = everything or since is not None
        selector = UndoSelector(call_id, whole_turn=turn, everything=everything, session=self.id, since=since)
        return self._forget_reads(await self.workspace.services.journal.undo(selector, merge=merge))

    async def redo(self, *, merge: bool = False) -> UndoPlan:
        """Redo what the last undo took back."""
        self._require_open()
        return self._forget_reads(await self.workspace.services.journal.redo(merge=merge, session=self.id))

    async def changes_since(self, times: Sequence[float]) -> list[ChangesSince]:
        """What this session has changed since each of these times and not taken back."""
        from wieldy.files.journal.undo import changes_since

        self._require_open()
        journal = self.workspace.services.journal
        return await journal.run(changes_since, journal, times, self.id)

    def _forget_reads(self, plan: UndoPlan) -> UndoPlan:
        state = self.workspace.services.read_state
        for file in plan.files:
            state.forget(file.real_path, by_undo=True)
        return plan
