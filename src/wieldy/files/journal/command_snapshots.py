"""Watch a project around a shell command, and record in the journal what the command changed.

While a command runs, a record lies beside the copies of files: which call it is, and the manifest from before it. A slot
with such a record whose lock is free had an owner that died: the next process finds out what the command changed. The
guardian of the shells writes down when the last process of the command had ended; later changes are not the command's.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from wieldy.core.errors import WieldyError
from wieldy.core.events import Notice
from wieldy.core.realpath import realpath
from wieldy.core.schema.strict_json import from_json, to_json
from wieldy.core.state_dirs import state_home
from wieldy.core.threads import in_thread, in_thread_uncancellable
from wieldy.core.workspace import Workspace
from wieldy.files.journal.entries import (
    ChangeOrigin,
    FileChange,
    Uncovered,
    limit_uncovered,
    summarize_uncovered,
)
from wieldy.files.journal.journal import Journal, snapshot_folder
from wieldy.files.journal.snapshot_contents import (
    RUNNING_PREFIX,
    FileCopies,
    SnapshotLimits,
    SnapshotScope,
    TreeChanges,
    TreeSnapshot,
    WatchedPath,
    awaits_recovery,
    slots,
    try_lock,
)
from wieldy.files.journal.store import JournalStore
from wieldy.files.journal.tree_manifest import (
    CLOCK_TICK_NS,
    FolderState,
    TreeManifest,
    next_manifest_name,
    read_manifest,
    read_stamp,
    remove_manifests,
    save_manifest,
)
from wieldy.files.journal.tree_snapshot import TreeSnapshots
from wieldy.files.writing.tree_commit import NodeChange

# How long recovery waits for the guardian, and how long its walk may take.
GUARDIAN_SECONDS = 5.0
WALK_SECONDS = 5.0
POLL_SECONDS = 0.02
CHANGED_LATER = "it was changed after the process died, or by a command that outlived it"


class RunningCommand(Struct, frozen=True):
    """What recovery needs to know about a command."""

    origin: ChangeOrigin
    started: int
    folders: tuple[str, ...]
    manifest: str
    paths: dict[str, WatchedPath]
    unreached: list[str]
    unreadable: list[str]
    ended_file: str


class RunningCommands:
    """The records of the commands that run in this process."""

    def __init__(self) -> None:
        self._manifests: dict[Path, str] = {}
        self._last: tuple[str, dict[str, FolderState], int] | None = None

    def begin(self, snapshot: TreeSnapshot, copies: FileCopies, origin: ChangeOrigin, ended_file: str) -> Path:
        """Write down that a command is about to run. Raises `OSError`."""
        with suppress(OSError):
            os.unlink(ended_file)  # of a process that died earlier in the same session
        manifest = self._save(snapshot, copies)
        record = RunningCommand(
            origin,
            snapshot.started,
            snapshot.scope.folders,
            manifest,
            snapshot.paths,
            snapshot.manifest.unreached,
            snapshot.manifest.unreadable,
            ended_file,
        )
        path = copies.folder / f"{RUNNING_PREFIX}{os.urandom(6).hex()}"
        temporary = path.with_name(f"new-{path.name}")
        temporary.write_text(to_json(record))
        os.replace(temporary, path)
        self._manifests[path] = manifest
        return path

    def end(self, path: Path) -> None:
        """Remove the record of a command whose changes are in the journal."""
        self._manifests.pop(path, None)
        with suppress(OSError):
            path.unlink()

    def _save(self, snapshot: TreeSnapshot, copies: FileCopies) -> str:
        """Save the manifest of a snapshot, unless the last one that was saved is the same."""
        if not snapshot.scope.folders:
            return ""
        folders = snapshot.manifest.folders
        copied = copies.size
        if self._last is not None and (copies.folder / self._last[0]).exists():
            name, last, last_copied = self._last
            if (
                copied == last_copied
                and len(last) == len(folders)
                and all(map(_is_same, last.items(), folders.items()))
            ):
                return name
        name = next_manifest_name(copies.folder)
        save_manifest(copies.folder, name, folders)
        self._last = name, dict(folders), copied
        remove_manifests(copies.folder, keep={name, *self._manifests.values()})
        return name


def recover_interrupted(
    folder: Path, store: JournalStore, env: Mapping[str, str], notify: Callable[[str], None]
) -> None:
    """Record what commands changed whose process died. Raises `OSError`."""
    for slot in slots(folder):
        if not awaits_recovery(slot):
            continue
        lock = try_lock(slot)
        if lock is None:
            continue  # its process lives
        copies = FileCopies(slot, lock)
        try:
            for path in sorted(slot.glob(f"{RUNNING_PREFIX}*")):
                _recover(path, copies, store, env, notify)
        finally:
            copies.close()


def _recover(
    path: Path, copies: FileCopies, store: JournalStore, env: Mapping[str, str], notify: Callable[[str], None]
) -> None:
    try:
        record = from_json(path.read_bytes(), RunningCommand)
    except ValueError:
        path.unlink()
        return
    origin = record.origin
    if any(entry.tool == origin.tool and entry.session == origin.session for entry in store.find(call=origin.call_id)):
        path.unlink()  # it died after its changes were recorded
        return
    ended = _wait_for_end(record.ended_file)
    changes = _find_changes(record, copies, env)
    changes = _only_by_command(changes, ended)
    if changes.changes or changes.nodes or changes.uncovered:
        store.record(changes.changes, replace(origin, uncovered=changes.uncovered), changes.nodes)
        from wieldy.core.text import printable_path

        paths = dict.fromkeys(each.path for each in changes.changes) | dict.fromkeys(
            each.path for each in changes.nodes
        )
        names = [printable_path(path) for path in paths]
        listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        notify(
            f"{origin.tool} ({origin.call_id}) was interrupted by a crash; undo now covers what it changed: {listed}"
        )
    path.unlink()


def _find_changes(record: RunningCommand, copies: FileCopies, env: Mapping[str, str]) -> TreeChanges:
    folders = read_manifest(copies.folder / record.manifest) if record.manifest else {}
    if folders is None:
        reason = "the process died while a command ran, and the record of the files before it is damaged"
        return TreeChanges((), tuple(Uncovered(top, reason, False) for top in record.folders))
    manifest = TreeManifest(record.started)
    manifest.folders = folders
    manifest.unreached, manifest.unreadable = record.unreached, record.unreadable
    snapshot = TreeSnapshot(SnapshotScope(record.folders), manifest)
    snapshot.paths = record.paths
    snapshots = TreeSnapshots(copies.folder.parent, env, SnapshotLimits(seconds=WALK_SECONDS))
    snapshots.contents.copies = copies
    return snapshots.compare(snapshot, keep_rules=False)


def _only_by_command(changes: TreeChanges, ended: int | None) -> TreeChanges:
    """Leave out what changed after the last process of the command had ended."""
    own: list[FileChange] = []
    uncovered = list(changes.uncovered)
    for change in changes.changes:
        stamp = read_stamp(change.path) if change.after is not None else None
        if stamp is None or (ended is not None and stamp.changed <= ended + CLOCK_TICK_NS):
            own.append(change)
        elif change.before is not None or ended is None:
            uncovered.append(Uncovered(change.path, CHANGED_LATER, False))
    own_nodes: list[NodeChange] = []
    for node in changes.nodes:
        changed = _change_time(node.path)
        if changed is None or (ended is not None and changed <= ended + CLOCK_TICK_NS):
            own_nodes.append(node)
        elif node.is_folder and node.after is not None and node.before is None:
            own_nodes.append(node)  # what has come into it since changed its time; it stays where it is not empty
        elif node.before is not None or ended is None:
            uncovered.append(Uncovered(node.path, CHANGED_LATER, False))
    return TreeChanges(tuple(own), tuple(uncovered), tuple(own_nodes))


def _change_time(path: str) -> int | None:
    try:
        return os.lstat(path).st_ctime_ns
    except (OSError, ValueError):
        return None


def _wait_for_end(ended_file: str) -> int | None:
    """When the last process of the command ended, in nanoseconds; None if the guardian has not said so."""
    deadline = time.monotonic() + GUARDIAN_SECONDS
    while ended_file and os.path.isdir(os.path.dirname(ended_file)):
        try:
            with open(ended_file, encoding="ascii") as file:
                return int(file.read())
        except (OSError, ValueError):
            if time.monotonic() > deadline:
                return None
            time.sleep(POLL_SECONDS)
    return None


def _is_same(one: tuple[str, FolderState], other: tuple[str, FolderState]) -> bool:
    return one[0] == other[0] and one[1] is other[1]


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
        trees.contents.limits = replace(trees.contents.limits, seconds=seconds)
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
        if trees.contents.copies is not None:
            with suppress(OSError, ValueError):  # then the command is not recorded if this process dies
                self._record = running.begin(self._snapshot, trees.contents.copies, self._origin, ended_file)

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
    """Record that the changes of a command are not watched."""
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
