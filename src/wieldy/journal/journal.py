"""The one way in which tools change files: verified, kept for undo, written all or none, taken back on request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from wieldy.core.event import Notice
from wieldy.core.homeward import homeward
from wieldy.core.places import state_home
from wieldy.core.threads import afterwards, in_thread_to_the_end
from wieldy.core.workspace import Workspace
from wieldy.edit.commit import CannotWrite, Moved, Written
from wieldy.edit.disk import LOCAL, Disk
from wieldy.journal.change import Change
from wieldy.journal.chronicle import Chronicle, Event
from wieldy.journal.home import journal_folder
from wieldy.journal.locks import Locks
from wieldy.journal.retention import Retention
from wieldy.journal.store import Store
from wieldy.journal.writer import Origin, Receipt, Writer

if TYPE_CHECKING:
    from wieldy.edit.revision import Revision
    from wieldy.journal.undo import Selector, UndoPlan

__all__ = ["CannotWrite", "Journal", "Moved", "Receipt", "Written"]

T = TypeVar("T")


class Journal:
    """A workspace's record of changes, made at first use: `workspace.resident(Journal)`.

    Every async method has a sync twin in `writer`, `retention` or `journal/undo.py` for callers without a loop.
    Settings: `journal.enabled`, `journal.max_age_days`, `journal.max_bytes`.
    """

    def __init__(self, workspace: Workspace, *, disk: Disk = LOCAL) -> None:
        home = state_home(workspace.env)
        self.workspace = workspace
        self.session = workspace.session_dir.name
        self.store = Store(journal_folder(workspace), disk=disk)
        kept = self.store if workspace.setting("journal.enabled", True) else None
        self.writer = Writer(kept, Locks(home / "locks"), disk=disk, roots=workspace.roots)
        self.retention = Retention(
            home / "journal",
            max_age_days=workspace.setting("journal.max_age_days", 30),
            max_bytes=workspace.setting("journal.max_bytes", 1 << 30),
        )

    async def start(self) -> None:
        """Put right what a crash left, and drop what is too old. Cheap, and meant for every start of a program."""
        await self._settled(self._start)

    def start_now(self) -> tuple[str, ...]:
        """The same, for callers without a loop; what a person should hear of it."""
        self._start()
        return self._news()

    def _start(self) -> None:
        self.writer.recover()
        self.retention.daily()

    async def apply(
        self,
        changes: Sequence[Change],
        *,
        call_id: str,
        tool: str,
        turn: str | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> Receipt:
        """Write all changes or none. `meanwhile` is called on the loop, if at all, while the disk is waited for.

        Raises `Moved` when a file is not as its `before` says, `CannotWrite` when the system does not let it be.
        """
        origin = Origin(self.session, call_id, tool, turn, meanwhile=_on_loop(meanwhile))
        return await self._settled(self._apply, tuple(changes), origin)

    def _apply(self, changes: Sequence[Change], origin: Origin) -> Receipt:
        afterwards(self.retention.daily)
        return self.writer.apply(changes, origin)

    async def revise(
        self,
        path: str,
        prepare: Callable[[], Revision],
        *,
        call_id: str,
        tool: str,
        turn: str | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> tuple[Revision, Written]:
        """Look at a file, whose path no link leads away, and change it in one go: `prepare` is called in a thread when
        nobody else may write the file. Raises what that raises, and what `apply` does."""
        origin = Origin(self.session, call_id, tool, turn, meanwhile=_on_loop(meanwhile))
        return await self._settled(self._revise, path, prepare, origin)

    def _revise(self, path: str, prepare: Callable[[], Revision], origin: Origin) -> tuple[Revision, Written]:
        afterwards(self.retention.daily)
        revision, receipt = self.writer.revise(path, prepare, origin)
        return revision, receipt.written[0]

    async def record_snapshot(
        self, changes: Sequence[Change], *, call_id: str, tool: str, turn: str | None = None, covered: str = ""
    ) -> Receipt:
        """Keep changes that something else made, a shell command for one; `covered` says what was watched."""
        origin = Origin(self.session, call_id, tool, turn, kind="snapshot", covered=covered)
        return await self._settled(self.writer.record, tuple(changes), origin)

    async def plan_undo(self, selector: Selector | None = None, *, merge: bool = False) -> UndoPlan:
        """What an undo would do, without doing it."""
        from wieldy.journal.undo import plan_undo

        return await self._settled(plan_undo, self, selector, merge=merge)

    async def undo(self, selector: Selector | None = None, *, merge: bool = False) -> UndoPlan:
        """Take changes back: the last one, or those selected. Raises `CannotUndo` when a file has moved on since."""
        from wieldy.journal.undo import undo

        return await self._settled(undo, self, selector, merge=merge)

    async def redo(self, *, merge: bool = False, session: str | None = None) -> UndoPlan:
        """Bring back what the last undo (of one session, or of any) took away."""
        from wieldy.journal.undo import redo

        return await self._settled(redo, self, merge=merge, session=session)

    async def history(self, limit: int = 50) -> tuple[Event, ...]:
        """The latest changes, newest first."""
        from wieldy.journal.undo import history

        return await self._settled(history, self, limit)

    async def _settled(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run off the loop, to the end even when cancelled, and pass on the news."""
        try:
            return await in_thread_to_the_end(function, *args, **kwargs)
        finally:
            for line in self._news():
                self.workspace.emit(Notice(text=line))

    def _news(self) -> tuple[str, ...]:
        news = tuple(self.writer.news)
        self.writer.news.clear()
        return news

    def chronicle(self) -> Chronicle:
        """Everything that is kept, read anew."""
        return Chronicle(self.store.entries())


def _on_loop(call: Callable[[], None] | None) -> Callable[[], object] | None:
    """What has a function called on the loop, from any thread."""
    return None if call is None else partial(homeward(asyncio.get_running_loop()), call)
