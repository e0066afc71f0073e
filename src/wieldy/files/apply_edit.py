"""The way of every tool that changes one file: tried before anyone is asked, then written through the journal."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from wieldy.core.errors import Refusal, ToolFailure
from wieldy.core.threads import in_thread
from wieldy.core.tool import Output, ToolContext
from wieldy.files.editing.matching import Replacement
from wieldy.files.editing.read_state import ReadState
from wieldy.files.editing.replacements import plan_replacement
from wieldy.files.editing.report import Draft, is_quick
from wieldy.files.editing.revision import SMALL_FILE, NeedsThread, PrepareEdit, Revision, edit_preparer
from wieldy.files.journal.entries import Change
from wieldy.files.journal.journal import Journal
from wieldy.files.writing.commit import WrittenFile
from wieldy.files.writing.errors import StaleFileError, WriteError
from wieldy.files.writing.target import READ_FLAGS

if TYPE_CHECKING:
    from wieldy.core.workspace import Workspace


Write: TypeAlias = Callable[[Revision], Awaitable[WrittenFile]]

ATTEMPTS = 3
VERIFIED_AT_ONCE = 1 << 20


async def change_file(
    prepare: PrepareEdit, write: Write, state: ReadState, rehearsed: Revision | None = None, draft: Draft | None = None
) -> Output:
    """Prepare and write one file; when it moves in between, once more on what is there then. What was `rehearsed` need
    not be prepared again, and a report that was begun as a `draft` is used."""
    draft = draft or Draft()
    for _ in range(ATTEMPTS):
        revision, rehearsed = rehearsed or await prepared(prepare), None
        try:
            written = await write(revision)
        except StaleFileError as moved:
            why = moved
            continue
        except WriteError as failure:
            raise ToolFailure(failure.message) from failure
        return await concluded(revision, written, state, draft)
    raise ToolFailure(str(why))


async def concluded(revision: Revision, written: WrittenFile, state: ReadState, draft: Draft) -> Output:
    """What is said of a revision that is written."""
    if is_quick(revision):
        return _concluded(revision, written, state, draft)
    return await in_thread(_concluded, revision, written, state, draft)


async def prepared(prepare: PrepareEdit) -> Revision:
    """The revision, made on the loop if that is a matter of a moment."""
    for _ in range(ATTEMPTS):
        try:
            try:
                return prepare(True)
            except NeedsThread:
                return await in_thread(prepare, False)
        except StaleFileError as moved:
            why = moved
    raise ToolFailure(str(why))


def settle(path: str, content: bytes, written: WrittenFile, state: ReadState, whole: bool) -> tuple[str, ...]:
    """Look at what was written and remember it; `whole` says that all of it is known. Notes for the result."""
    if written.stat is None or not _holds(written.real_path, content):
        state.forget(written.real_path)
        return (*written.notes, "The file was changed again right after it was written: read it before the next edit.")
    state.record_write(written.real_path, data=content, stat=written.stat, whole=whole)
    return written.notes


def _concluded(revision: Revision, written: WrittenFile, state: ReadState, draft: Draft) -> Output:
    report = draft.finished(revision)
    return report.with_notes(settle(revision.path, revision.after, written, state, revision.known_whole))


def _holds(path: str, content: bytes) -> bool:
    """Whether a file holds exactly this, without loading it whole."""
    at = 0
    try:
        fd = os.open(path, READ_FLAGS)
    except OSError:
        return False
    try:
        while True:
            wanted = min(VERIFIED_AT_ONCE, len(content) - at + 1)
            piece = os.read(fd, wanted)
            if not content.startswith(piece, at):
                return False
            at += len(piece)
            if len(piece) < wanted and (at == len(content) or not piece):  # there is no more
                return at == len(content)
    except OSError:
        return False
    finally:
        os.close(fd)


KEPT = 16


def refusing(prepare: PrepareEdit) -> PrepareEdit:
    """The same, but what cannot be made is refused: nothing has run."""

    def prepare_or_refuse(at_once: bool) -> Revision:
        try:
            return prepare(at_once)
        except ToolFailure as failure:
            raise Refusal("check", failure.message, data=failure.data) from failure

    return prepare_or_refuse


class Rehearsals:
    """The changes of one workspace that were tried and have not run yet.

    One that is taken may be out of date by then; the journal finds that out, because `before` no longer fits.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._state = workspace.service(ReadState)
        self._roots = workspace.roots
        self._kept: OrderedDict[str, tuple[object, Revision]] = OrderedDict()

    async def rehearse(self, call_id: str, wish: object, prepare: PrepareEdit, real: str) -> None:
        """Try a change. Looks only at files the model knows or may look for: what is elsewhere is not told before
        permission is given. `real` is where the path leads: the file that `prepare` will look at, and no other."""
        if self._state.reading(real) is None and not self._is_inside(real):
            return
        revision = await prepared(refusing(prepare))
        if len(revision.after) + len(revision.before or b"") < SMALL_FILE:
            self._kept[call_id] = wish, revision
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)

    def take(self, call_id: str, wish: object) -> Revision | None:
        """The change a call was tried with, if it still asks for the same."""
        kept = self._kept.pop(call_id, None)
        return kept[1] if kept is not None and kept[0] == wish else None

    def _is_inside(self, real: str) -> bool:
        return any(real == root or real.startswith(root.rstrip(os.sep) + os.sep) for root in self._roots)


class Wish(Struct, frozen=True):
    """What a call wants of the file at `path`; `what` tells it from other wishes, `prepare` tries it."""

    path: str
    what: object
    prepare: PrepareEdit


async def rehearse(ctx: ToolContext, wish: Wish) -> None:
    """Refuse what cannot be made; keep what can until it may be."""
    rehearsals = ctx.workspace.service(Rehearsals)
    await rehearsals.rehearse(ctx.call_id, (wish.path, wish.what), wish.prepare, ctx.resolved(wish.path))


async def amend(ctx: ToolContext, wish: Wish, tool: str) -> Output:
    """Change the file, and say how. What is said is made up while the disk is waited for."""
    state, draft = ctx.workspace.service(ReadState), Draft()
    prepare = refusing(wish.prepare)
    rehearsed = ctx.workspace.service(Rehearsals).take(ctx.call_id, (wish.path, wish.what))
    if rehearsed is None and ctx.resolved(wish.path) == wish.path:
        revised = await _revised(ctx, wish.path, prepare, draft, tool)
        if revised is not None:
            return await concluded(*revised, state, draft)

    async def write(revision: Revision) -> WrittenFile:
        draft.about(revision)
        change = Change(wish.path, revision.before, revision.after, ctx.resolved(wish.path), splice=revision.change)
        receipt = await ctx.workspace.service(Journal).apply(
            [change], call_id=ctx.call_id, tool=tool, turn=ctx.message_id, meanwhile=draft.begin
        )
        return receipt.written[0]

    return await change_file(prepare, write, state, rehearsed, draft)


async def _revised(
    ctx: ToolContext, path: str, prepare: PrepareEdit, draft: Draft, tool: str
) -> tuple[Revision, WrittenFile] | None:
    """Look at the file and change it in one go; None where it takes more than a moment, or another try."""

    def prepared() -> Revision:
        revision = prepare(True)
        draft.about(revision)
        return revision

    try:
        return await ctx.workspace.service(Journal).revise(
            path, prepared, call_id=ctx.call_id, tool=tool, turn=ctx.message_id, meanwhile=draft.begin
        )
    except (NeedsThread, StaleFileError):
        return None
    except WriteError as failure:
        raise ToolFailure(failure.message) from failure


async def rehearse_replacement(ctx: ToolContext, **wanted: Any) -> None:
    """Refuse what cannot be replaced; keep what can until it may be."""
    await rehearse(ctx, _wish(ctx, **wanted))


async def replace(ctx: ToolContext, **wanted: Any) -> Output:
    """Change the file, and say how."""
    return await amend(ctx, _wish(ctx, **wanted), "Edit")


def _wish(
    ctx: ToolContext,
    file_path: str,
    old_string: str,
    new_string: str,
    replace_all: bool = False,
    expected_replacements: int = 1,
) -> Wish:
    edit = Replacement(old_string, new_string, expected_replacements, replace_all)
    return Wish(
        file_path,
        edit,
        edit_preparer(file_path, partial(plan_replacement, edit), ctx.workspace, ctx.resolved(file_path)),
    )
