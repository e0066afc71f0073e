"""Watch a project around a shell command, and record in the journal what the command changed."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from wieldy.core.errors import WieldyError
from wieldy.core.events import Notice
from wieldy.core.realpath import realpath
from wieldy.core.state_dirs import state_home
from wieldy.core.threads import in_thread, in_thread_uncancellable
from wieldy.core.workspace import Workspace
from wieldy.files.journal.entries import ChangeOrigin, Uncovered
from wieldy.files.journal.interrupted_commands import RunningCommands
from wieldy.files.journal.journal import Journal
from wieldy.files.journal.paths import snapshot_folder
from wieldy.files.journal.snapshot_types import SnapshotScope, TreeChanges, TreeSnapshot
from wieldy.files.journal.tree_snapshot import TreeSnapshots
from wieldy.files.journal.uncovered import limit_uncovered, summarize_uncovered


class CommandSnapshots:
    """The service `workspace.services.command_snapshots`."""

    def __init__(self, workspace: Workspace, journal: Journal) -> None:
        self.journal = journal
        # Where the project holds our own state, as a home folder does, commands are not blamed for it.
        state = os.path.realpath(state_home(workspace.env))
        self.trees = TreeSnapshots(snapshot_folder(workspace), workspace.env, excluded=(state,))
        self.running = RunningCommands()

    async def aclose(self) -> None:
        self.trees.close()


class CommandSnapshot:
    """The snapshot before one command. What it finds is set by `record_changes`: `changed_paths`, `uncovered` (what undo
    cannot restore) and `problem` (why undo does not cover the command at all)."""

    def __init__(self, workspace: Workspace, origin: ChangeOrigin) -> None:
        self.changed_paths: tuple[str, ...] = ()
        self.uncovered: tuple[Uncovered, ...] = ()
        self.problem = ""
        self._workspace = workspace
        self._service = workspace.services.command_snapshots
        self._origin = origin
        self._snapshot: TreeSnapshot | None = None
        self._record: Path | None = None
        self._stop = threading.Event()
        self._copying: asyncio.Future[None] | None = None

    @classmethod
    async def take(
        cls,
        workspace: Workspace,
        written: Sequence[str] | None,
        *,
        call_id: str,
        tool: str,
        turn: str | None = None,
        ended_file: str = "",
        folder: str = "",
    ) -> CommandSnapshot:
        """Look at the paths that a command is known to write, or at the whole project where they are not known.

        The `folder` that the command starts in, if given, is looked at first.
        `ended_file` is where the guardian writes down when all processes of the command have ended, should this one die.
        """
        trees = workspace.services.command_snapshots.trees
        seconds = workspace.setting("bash.snapshotSeconds")
        trees.limits = replace(trees.limits, seconds=seconds)
        scope = _scope(workspace, written, folder or workspace.root)
        session = workspace.services.journal.session
        origin = ChangeOrigin(session, call_id, tool, turn, kind="command")
        command = cls(workspace, origin)
        try:
            await in_thread_uncancellable(command._begin, scope, ended_file)
        except BaseException:
            command._discard()  # the command will not run
            raise
        if command._snapshot is not None and command._snapshot.uncopied:
            command._copying = asyncio.ensure_future(in_thread(trees.copy_more, command._snapshot, command._stop))
        return command

    async def record_changes(self, also: Sequence[Uncovered] = ()) -> None:
        """Compare, and record what changed, and `also` what is not covered. A second call does nothing."""
        self._stop.set()
        if self._copying is not None:
            await asyncio.wait((self._copying,))
        # Not taken before: where the wait is cancelled, a second call compares.
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is None:
            return
        try:
            changes = await in_thread_uncancellable(self._compare_and_record, snapshot, tuple(also))
        except (OSError, WieldyError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            self.problem = f"undo does not cover this command: {reason}"
            return
        self.changed_paths = tuple(
            dict.fromkeys(
                (
                    *(change.path for change in changes.changes),
                    *(node.path for node in changes.nodes if not node.is_folder),
                )
            )
        )
        self.uncovered = changes.uncovered
        if self.uncovered:
            summary = summarize_uncovered(self.uncovered, self._workspace.root)
            self._workspace.emit(Notice(text=f"undo does not cover everything: {summary}"))

    @property
    def notes(self) -> list[str]:
        """What the model is told about undo: nothing where everything is covered."""
        notes = [self.problem] if self.problem else []
        if self.uncovered:
            notes.append(f"undo does not cover: {summarize_uncovered(self.uncovered, self._workspace.root)}")
        return notes

    def _begin(self, scope: SnapshotScope, ended_file: str) -> None:
        trees, running = self._service.trees, self._service.running
        self._snapshot = trees.take(scope)
        if trees.copies is not None:
            with suppress(OSError, ValueError):  # then the command is not recorded if this process dies
                self._record = running.begin(self._snapshot, trees.copies, self._origin, ended_file)

    def _discard(self) -> None:
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            self._service.trees.release(snapshot)
        if self._record is not None:
            self._service.running.end(self._record)

    def _compare_and_record(self, snapshot: TreeSnapshot, also: tuple[Uncovered, ...]) -> TreeChanges:
        changes = self._service.trees.compare(snapshot)
        uncovered = limit_uncovered((*changes.uncovered, *also))
        self._service.journal.record(changes.changes, replace(self._origin, uncovered=uncovered), changes.nodes)
        self._service.journal.sweep_if_due()
        if self._record is not None:
            self._service.running.end(self._record)
        return TreeChanges(changes.changes, uncovered, changes.nodes)


async def record_unwatched(
    workspace: Workspace, uncovered: Uncovered, *, call_id: str, tool: str, turn: str | None
) -> None:
    """Record that nobody watches what a command changes."""
    journal = workspace.services.journal
    origin = ChangeOrigin(journal.session, call_id, tool, turn, kind="command", uncovered=(uncovered,))
    with suppress(OSError):  # the result of the command says the same
        await journal.run(journal.record, (), origin)


def _scope(workspace: Workspace, written: Sequence[str] | None, folder: str) -> SnapshotScope:
    if written is None:
        return SnapshotScope(workspace.roots, first=folder)
    folders: list[str] = []
    paths: list[str] = []
    for path in written:
        real = os.path.join(realpath(os.path.dirname(path)), os.path.basename(path))
        is_folder = os.path.isdir(path) and not os.path.islink(path)
        (folders if is_folder else paths).append(realpath(path) if is_folder else real)
    return SnapshotScope(tuple(dict.fromkeys(folders)), tuple(dict.fromkeys(paths)))
