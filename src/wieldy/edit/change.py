"""A revision carried out: prepared off the loop, written by whoever keeps the journal, verified, remembered, reported."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from wieldy.core.failure import ToolFailure
from wieldy.core.threads import in_thread
from wieldy.core.tool import Output
from wieldy.edit.commit import Written
from wieldy.edit.document import Document
from wieldy.edit.failures import CannotWrite, Moved
from wieldy.edit.landing import READ_FLAGS
from wieldy.edit.readstate import ReadState
from wieldy.edit.report import Draft, is_quick
from wieldy.edit.revision import Prepare, Revision, TakesLonger

__all__ = ["Prepare", "Write", "change_file", "concluded", "prepared", "settle"]

Write: TypeAlias = Callable[[Revision], Awaitable[Written]]

ATTEMPTS = 3
VERIFIED_AT_ONCE = 1 << 20


async def change_file(
    prepare: Prepare, write: Write, state: ReadState, rehearsed: Revision | None = None, draft: Draft | None = None
) -> Output:
    """Prepare and write one file; when it moves in between, once more on what is there then. What was `rehearsed` need
    not be prepared again, and a report that was begun as a `draft` is used."""
    draft = draft or Draft()
    for _ in range(ATTEMPTS):
        revision, rehearsed = rehearsed or await prepared(prepare), None
        try:
            written = await write(revision)
        except Moved as moved:
            why = moved
            continue
        except CannotWrite as failure:
            raise ToolFailure(failure.message) from failure
        return await concluded(revision, written, state, draft)
    raise ToolFailure(str(why))


async def concluded(revision: Revision, written: Written, state: ReadState, draft: Draft) -> Output:
    """What is said of a revision that is written."""
    if is_quick(revision):
        return _concluded(revision, written, state, draft)
    return await in_thread(_concluded, revision, written, state, draft)


async def prepared(prepare: Prepare) -> Revision:
    """The revision, made on the loop if that is a matter of a moment."""
    for _ in range(ATTEMPTS):
        try:
            try:
                return prepare(True)
            except TakesLonger:
                return await in_thread(prepare, False)
        except Moved as moved:
            why = moved
    raise ToolFailure(str(why))


def settle(
    path: str, content: bytes, written: Written, state: ReadState, whole: bool, document: Document | None = None
) -> tuple[str, ...]:
    """Look at what was written and remember it; `whole` says that all of it is known, `document` what else is known of
    the content. Notes for the result."""
    if written.stat is None or not _holds(written.real_path, content):
        state.forget(written.real_path)
        return (*written.notes, "The file was changed again right after it was written: read it before the next edit.")
    state.wrote(written.real_path, data=content, stat=written.stat, whole=whole, document=document)
    return written.notes


def _concluded(revision: Revision, written: Written, state: ReadState, draft: Draft) -> Output:
    report = draft.finished(revision)
    notes = settle(revision.path, revision.after, written, state, revision.known_whole, report.after)
    return report.with_notes(notes)


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
