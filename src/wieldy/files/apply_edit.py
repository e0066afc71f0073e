"""The one way in which a tool changes a file, from top to bottom.

`apply_edit`: lock the file, read it, check that it is as the model knows it, compute the new content, record old and new
content in the journal, write atomically, settle the journal entry, report. `check_edit` runs before anyone is asked for
permission; it is the same computation without the writing.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from wieldy.core.errors import Refusal, StaleFileError, ToolFailure, WieldyError
from wieldy.core.realpath import PATH_KEEPS_CHANGING, PathChanged
from wieldy.core.threads import in_thread
from wieldy.core.tool import Output, ToolContext
from wieldy.files.editing.revision import Edit, EditSettings, Revision, edit_output, load_target
from wieldy.files.journal.entries import ChangeOrigin, FileChange
from wieldy.files.journal.journal import Journal
from wieldy.files.writing.commit import WrittenFile
from wieldy.files.writing.disk import FileWrite, RollbackError, Target, WriteError, in_place, is_at_or_below
from wieldy.files.writing.tree_commit import NodeChange
from wieldy.files.writing.writers import LocalWriter

# A file that another program changes between our read and our write is edited again on what is there then.
ATTEMPTS = 3
# Recovery cannot settle the entries of living writers, so it is not repeated without end.
MAX_RECOVERIES = 2


class FileEdit:
    """One file to change: how it is read under its lock, and how its new content follows.

    `real_path` is where the permission check saw `path` lead. `mode` is for a new file, `emptied_folders` go with a
    deleted one if nothing else is in them. With `keep_links` a file that has other names (hard links) stays one file.
    `is_cleared` says that what is in its way now, a symlink for instance, will be gone when it is written.
    """

    mode: int | None = None
    emptied_folders: tuple[str, ...] = ()
    keep_links = True
    is_cleared = False

    def __init__(self, path: str, real_path: str | None) -> None:
        self.path = path
        self.real_path = real_path

    def read(self, writer: LocalWriter) -> Target:
        return writer.read_target(self.path, self.real_path)

    def compute(self, target: Target) -> bytes | None:
        """The new content; None deletes the file."""
        raise NotImplementedError


class ToolEdit(FileEdit):
    """An edit that a model asked for. `revision` holds what was computed last."""

    revision: Revision

    def __init__(self, ctx: ToolContext, path: str, edit: Edit) -> None:
        super().__init__(path, ctx.resolved(path))
        self._edit = edit
        self._state = ctx.workspace.services.read_state
        self._settings = EditSettings.of(ctx.workspace)

    def read(self, writer: LocalWriter) -> Target:
        with _refusing_failures():
            return load_target(self.path, self._settings, self.real_path, writer)

    def compute(self, target: Target) -> bytes:
        with _refusing_failures():
            self.revision = self._edit.revise(target, self._state, self._settings)
        return self.revision.after


class KnownChange(FileEdit):
    """A change whose old and new contents are known: the file must still have the old one."""

    def __init__(self, change: FileChange) -> None:
        super().__init__(change.path, change.real_path)
        self.mode = change.mode
        self.keep_links = change.in_place is not False
        self._change = change

    def compute(self, target: Target) -> bytes | None:
        before = self._change.before
        if target.content == before:
            return self._change.after
        if target.content is None:
            raise StaleFileError(self.path, "is gone since it was read")
        if before is None:
            raise StaleFileError(self.path, "exists already")
        raise StaleFileError(self.path, "has changed on disk since it was read")


@contextmanager
def _refusing_failures() -> Iterator[None]:
    """Turn `ToolFailure` into `Refusal`: an edit that cannot be computed has not run."""
    try:
        yield
    except ToolFailure as failure:
        problem, next_step = failure.problem, failure.next_step
        raise Refusal("check", problem, next_step, person=failure.person, data=failure.data) from failure


async def apply_edit(ctx: ToolContext, path: str, edit: Edit, *, tool: str) -> Output:
    """Edit one file. `edit` computes the new content; it raises `ToolFailure` where the edit cannot be made."""
    return await ctx.workspace.services.journal.run(_apply_edit, ctx, path, edit, tool)


async def apply_edits(ctx: ToolContext, edits: Mapping[str, Edit], *, tool: str) -> tuple[str, ...]:
    """Edit several files, all or none; returns notes. Raises `StaleFileError` or `WriteError` when none was changed."""
    return (await ctx.workspace.services.journal.run(_apply_edits, ctx, edits, tool))[1]


async def change_files(ctx: ToolContext, changes: Sequence[FileChange], *, tool: str) -> WriteResult:
    """Create, replace or delete files whose old and new contents are known, all or none."""
    journal = ctx.workspace.services.journal
    return await journal.run(write_changes, journal, changes, _origin(ctx, tool))


async def check_edit(ctx: ToolContext, path: str, edit: Edit) -> Revision | None:
    """Refuse an edit that cannot be made; return what it would make.

    Only files that the model has read or that lie in the workspace are looked at: nothing is told about others before
    permission is given.
    """
    real_path, roots = ctx.resolved(path), ctx.workspace.roots
    if ctx.workspace.services.read_state.reading(real_path) is not None or any(
        real_path == root or real_path.startswith(root.rstrip(os.sep) + os.sep) for root in roots
    ):
        with suppress(StaleFileError):  # it is changing right now: `apply_edit` will see what is there then
            return await in_thread(_revise, ctx, path, edit)
    return None


def _revise(ctx: ToolContext, path: str, edit: Edit) -> Revision:
    request = ToolEdit(ctx, path, edit)
    request.compute(request.read(ctx.workspace.services.journal.writer))
    return request.revision


def _apply_edit(ctx: ToolContext, path: str, edit: Edit, tool: str) -> Output:
    for _ in range(ATTEMPTS):
        try:
            [revision], notes = _apply_edits(ctx, {path: edit}, tool)
        except StaleFileError as error:
            stale = error
            continue
        except WriteError as error:
            raise ToolFailure(error.message) from error
        return edit_output(revision, notes)
    raise ToolFailure(f"{stale.path} {stale.reason}. Nothing was written.", "Read it again first.")


def _apply_edits(ctx: ToolContext, edits: Mapping[str, Edit], tool: str) -> tuple[list[Revision], tuple[str, ...]]:
    journal = ctx.workspace.services.journal
    requests = [ToolEdit(ctx, path, edit) for path, edit in edits.items()]
    result = write_files(journal, requests, _origin(ctx, tool))
    journal.sweep_if_due()
    revisions = [request.revision for request in requests]
    notes = [
        note
        for revision, written in zip(revisions, result.written, strict=True)
        for note in _update_read_state(ctx, revision, written)
    ]
    return revisions, (*notes, *result.notes)


def _origin(ctx: ToolContext, tool: str) -> ChangeOrigin:
    return ChangeOrigin(ctx.workspace.services.journal.session, ctx.call_id, tool, ctx.message_id)


def _update_read_state(ctx: ToolContext, revision: Revision, written: WrittenFile) -> tuple[str, ...]:
    """Verify the file and remember its content as known to the model, if the old one was; returns notes."""
    state, writer = ctx.workspace.services.read_state, ctx.workspace.services.journal.writer
    if revision.known_whole is None:
        return written.notes
    if written.stat is None or not writer.holds(written.real_path, revision.after):
        state.forget(written.real_path)
        return (*written.notes, "The file was changed again right after it was written: read it before the next edit.")
    state.record_write(
        written.real_path,
        data=revision.after,
        stat=written.stat,
        whole=revision.known_whole,
        encoding=revision.encoding,
    )
    return written.notes


# Below is the part that knows nothing of models and their read state; undo writes by it as well.


class WriteResult(Struct, frozen=True):
    """The files as they are now. `entry_id` is None when nothing had to be written, or no journal is kept."""

    entry_id: int | None
    written: tuple[WrittenFile, ...]
    notes: tuple[str, ...] = ()


def write_changes(
    journal: Journal,
    changes: Sequence[FileChange],
    origin: ChangeOrigin,
    emptied_folders: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    nodes: Sequence[NodeChange] = (),
) -> WriteResult:
    """Write changes, all or none, if every file still has the content it had before.

    `nodes` are symlinks, folders and permissions to change with them.
    """
    made = {change.path for change in nodes if change.makes_folder}
    cleared = {change.path for change in nodes if change.before is not None and change.before.kind != "file"}
    requests = []
    for change in changes:
        request = KnownChange(change)
        request.is_cleared = change.before is None and (change.path in cleared or is_at_or_below(change.path, made))
        request.emptied_folders = emptied_folders.get(change.real_path or "", ())
        requests.append(request)
    return write_files(journal, requests, origin, nodes)


def write_files(
    journal: Journal, requests: Sequence[FileEdit], origin: ChangeOrigin, nodes: Sequence[NodeChange] = ()
) -> WriteResult:
    """Lock, read, compute, record, write and settle: all files or none.

    Raises `StaleFileError` when a file changes meanwhile, `WriteError` when the system does not let it be written.
    """
    writer = journal.writer
    lock_names = {
        name
        for request in requests
        for name in writer.lock_names_at(request.real_path or writer.files.realpath(request.path))
    }
    lock_names.update(change.path for change in nodes)
    recoveries = 0
    while True:
        with journal.hold_locks(lock_names, requests[0].path if requests else ""):
            has_pending = recoveries < MAX_RECOVERIES and journal.has_pending()
            targets = [] if has_pending else [_read(writer, request) for request in requests]
            needed = {name for target in targets for name in target.lock_names}
            if not has_pending and lock_names.issuperset(needed):
                return _write_locked(journal, requests, targets, origin, nodes)
        lock_names |= needed
        if has_pending:  # a writer died, or is at work on another file
            recoveries += 1
            journal.recover()


def _write_locked(
    journal: Journal,
    requests: Sequence[FileEdit],
    targets: Sequence[Target],
    origin: ChangeOrigin,
    nodes: Sequence[NodeChange],
) -> WriteResult:
    writes = _plan_writes(journal.writer, requests, targets)
    if not writes and not nodes and not origin.reverses:
        return WriteResult(None, tuple(map(_unchanged, targets)))
    entry_id, written, notes = _record_and_write(journal, writes, origin, nodes)
    _remove_emptied_folders(journal, requests)
    by_path = {file.path: file for file in written}
    return WriteResult(entry_id, tuple(by_path.get(target.path) or _unchanged(target) for target in targets), notes)


def _read(writer: LocalWriter, request: FileEdit) -> Target:
    """Read a file under its lock, and make sure that its path still leads where it led when the call was judged."""
    if request.is_cleared and request.real_path is not None:
        return Target(request.path, request.real_path, None)
    try:
        target = request.read(writer)
        if target.stat is not None and target.path == request.real_path:
            return target  # opened without following a link
        _require_same_place(writer, request)
        return target
    except OSError as error:
        raise writer.explain(error, request.path) from error
    except WieldyError:
        _require_same_place(writer, request)
        raise


def _require_same_place(writer: LocalWriter, request: FileEdit) -> None:
    try:
        real_path = writer.files.realpath(request.path)
    except PathChanged:
        raise StaleFileError(request.path, PATH_KEEPS_CHANGING) from None
    if request.real_path not in (None, real_path):
        raise StaleFileError(request.path, f"leads to {real_path} now, not to {request.real_path}")


def _plan_writes(writer: LocalWriter, requests: Sequence[FileEdit], targets: Sequence[Target]) -> list[FileWrite]:
    contents = [request.compute(target) for request, target in zip(requests, targets, strict=True)]
    changed = [
        (request, target, content)
        for request, target, content in zip(requests, targets, contents, strict=True)
        if content != target.content
    ]
    writes: list[FileWrite] = []
    for request, target, content in changed:
        try:
            write = writer.plan_write(
                target, content, mode=request.mode, alone=len(changed) == 1, keep_links=request.keep_links
            )
        except OSError as error:
            raise writer.explain(error, target.path, needed=len(content or b"")) from error
        writes.append(replace(write, folders=request.emptied_folders) if write.method == "delete" else write)
    if len({write.real_path for write in writes}) < len(writes):
        raise WieldyError("the same file is named twice in one change")
    return writes


def _record_and_write(
    journal: Journal, writes: Sequence[FileWrite], origin: ChangeOrigin, nodes: Sequence[NodeChange] = ()
) -> tuple[int | None, tuple[WrittenFile, ...], tuple[str, ...]]:
    """Record the writes, carry them out, and record how that ended."""
    entry_id, notes = journal.begin(writes, origin, nodes)
    try:
        written = journal.writer.commit(writes, nodes, journal.workspace.roots)
    except RollbackError:
        raise  # the entry stays pending for recovery, as it does after any other exception than the next two
    except StaleFileError:
        journal.settle(entry_id, "rolled_back")
        raise
    except WriteError as error:
        journal.settle(entry_id, "rolled_back")
        retried = _without_replacing_mount_point(writes, error)
        if retried is None:
            raise
        return _record_and_write(journal, retried, origin, nodes)
    journal.settle(entry_id, "done")
    return entry_id, written, notes


def _without_replacing_mount_point(writes: Sequence[FileWrite], error: WriteError) -> list[FileWrite] | None:
    """A file that turns out to be a mount point cannot be replaced: write it in place. None for any other failure."""
    busy = [write.path == error.path and write.method == "replace" for write in writes]
    if error.number != errno.EBUSY or not any(busy):
        return None
    return [
        in_place(write, "it is a mount point") if is_busy else write
        for write, is_busy in zip(writes, busy, strict=True)
    ]


def _remove_emptied_folders(journal: Journal, requests: Sequence[FileEdit]) -> None:
    """Remove folders made for files that are gone again, also where another program removed the last of several files."""
    folders = {folder for request in requests for folder in request.emptied_folders}
    with suppress(OSError):
        journal.writer.remove_empty_folders(folders)


def _unchanged(target: Target) -> WrittenFile:
    return WrittenFile(target.path, target.real_path, target.stat, ("it already had this content",))
