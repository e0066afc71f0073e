"""A change of one file, prepared in memory: what is there is checked, the edit tried, foreign changes merged in."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from wieldy.core.errors import ToolFailure
from wieldy.files.editing.config import EditSettings
from wieldy.files.editing.diff import patch
from wieldy.files.editing.document import Document
from wieldy.files.editing.matching import NotFound, Tier
from wieldy.files.editing.merging import Merge, merge
from wieldy.files.editing.read_state import ReadState
from wieldy.files.editing.splicing import Splice, apply_splices, diff_bytes
from wieldy.files.encodings import detect_certain, detect_encoding
from wieldy.files.kinds import binary_kind
from wieldy.files.writing.errors import WriteError
from wieldy.files.writing.target import Target, resolve_target, with_content

if TYPE_CHECKING:
    from wieldy.core.workspace import Workspace


# Below this, a thread takes longer to be reached than a file to be read and compared.
SMALL_FILE = 256 * 1024
WAYS_ON = """Nothing was written. Ways on:
- overwrite: Read the file, then make it what you want with Write or Edit
- keep: leave the file as it is
- re-read: Read the file and send an edit that fits what is there now"""


class EditPlan(Struct, frozen=True):
    """What an edit comes to on a certain content."""

    splices: tuple[Splice, ...]
    count: int
    notes: tuple[str, ...] = ()


class Revision(Struct, frozen=True):
    """A file before and after; `count` is the number of replacements. `before` is None for a file that is new, `text` what
    that is as a document, where it was looked at as one, and `known_whole` false where parts of it were never seen."""

    target: Target
    after: bytes
    splices: tuple[Splice, ...]
    count: int = 0
    notes: tuple[str, ...] = ()
    merged: bool = False
    known_whole: bool = True
    text: Document | None = None

    @property
    def path(self) -> str:
        """The path as it was given."""
        return self.target.path

    @property
    def before(self) -> bytes | None:
        """What is on disk."""
        return self.target.content

    @property
    def change(self) -> Splice | None:
        """All that changes as one splice of what is on disk; None where nothing is, or nothing does."""
        if self.before is None or not self.splices:
            return None
        if len(self.splices) == 1:
            return self.splices[0]
        start, end = self.splices[0].start, self.splices[-1].end
        return Splice(start, end, self.after[start : len(self.after) - (len(self.before) - end)])

    @property
    def touched(self) -> int:
        """How many bytes go and come."""
        return sum([splice.end - splice.start + len(splice.new) for splice in self.splices])


Plan: TypeAlias = Callable[[Document, Sequence[Tier]], EditPlan]
# Called with True on the loop, where it may raise `TakesLonger`; then with False in a thread.
PrepareEdit: TypeAlias = Callable[[bool], Revision]


class NeedsThread(Exception):
    """This edit is not made in a moment: it needs a merge, a detector of encodings, or a search for what was meant."""


def revise(
    path: str, plan: Plan, state: ReadState, policy: EditSettings, *, at_once: bool = False, resolved: str | None = None
) -> Revision:
    """An existing file with an edit made. Reads the file; raises `ToolFailure` where the edit cannot be made, and with
    `at_once` `TakesLonger` where that is not a matter of a moment."""
    target = existing(path, policy, at_once=at_once, resolved=resolved)
    data, stat, known_as = target.content or b"", target.stat, resolved or path
    reading = state.reading(known_as)
    if reading is None or stat is None:
        raise ToolFailure(
            f"{path} must be read first: it has not been read in this session. Read it, then send this again."
        )
    document = state.document(known_as, data)
    if document is not None:
        # The same bytes as were kept; that they are the same object saves comparing them once more.
        data = document.data
        target = Target(target.path, target.real_path, stat, content=data)
    elif state.is_current(known_as, data, stat):
        document = document_of(data, at_once=at_once)
    if document is not None:
        try:
            planned = plan(document, ("exact",) if at_once else policy.tiers)
        except NotFound:
            if at_once:
                raise NeedsThread from None
            raise
        after = apply_splices(data, planned.splices)
        known = reading.knows_all(document.lines)
        return Revision(target, after, planned.splices, planned.count, planned.notes, False, known, document.afresh())
    if at_once:
        raise NeedsThread
    since = "after your last change, perhaps by a formatter" if reading.ours else "since you read it"
    base = state.content(known_as)
    if policy.on_change == "error" or base is None:
        raise ToolFailure(
            f"{path} was changed on disk {since}. Nothing was written. Read it again, then edit what is there."
        )
    return replace(_merged(target, base, plan, policy, since), known_whole=reading.whole)


def edit_preparer(path: str, plan: Plan, workspace: Workspace, resolved: str) -> PrepareEdit:
    """`revise` as often as it takes, with what a workspace knows of the file and wants for edits."""
    state, policy = workspace.service(ReadState), EditSettings.of(workspace)
    return lambda at_once: revise(path, plan, state, policy, at_once=at_once, resolved=resolved)


def existing(path: str, policy: EditSettings, *, at_once: bool = False, resolved: str | None = None) -> Target:
    """A text file as it is on disk; raises `ToolFailure` for everything that cannot be edited."""
    target = load_target(path, policy, at_once=at_once, resolved=resolved)
    if target.stat is None:
        if at_once:
            raise NeedsThread
        _refuse_missing(target)
    kind = binary_kind(target.content or b"")
    if kind is not None:
        raise ToolFailure(
            f"{path} is not text but {kind}; only text can be edited. Use Bash with a program made for it."
        )
    return target


def document_of(data: bytes, *, at_once: bool = False) -> Document:
    """What is on disk as a document; raises `TakesLonger` with `at_once` where its encoding would have to be guessed."""
    encoding = detect_certain(data) if at_once else detect_encoding(data)
    if encoding is None or (at_once and encoding.unit > 1):
        raise NeedsThread
    return Document(data, encoding)


def load_target(path: str, policy: EditSettings, *, at_once: bool = False, resolved: str | None = None) -> Target:
    """What is at a path, with its content; `stat` is None where there is nothing."""
    try:
        target = resolve_target(path, resolved)
        size = 0 if target.stat is None else target.stat.st_size
        if at_once and size > SMALL_FILE:
            raise NeedsThread
        if size > policy.max_bytes:
            raise ToolFailure(
                f"{path} is {size:,} bytes, over the limit of {policy.max_bytes:,}. Use Bash (sed, for one), or raise the "
                "setting edit.max_bytes."
            )
        return target if target.stat is None else with_content(target)
    except WriteError as failure:
        hint = " Use LS or Glob to find the file." if os.path.isdir(path) else ""
        raise ToolFailure(failure.message + hint) from failure
    except OSError as error:
        raise ToolFailure(f"{path} cannot be read: {(error.strerror or str(error)).lower()}.") from error


def _merged(target: Target, base: bytes, plan: Plan, policy: EditSettings, since: str) -> Revision:
    theirs = target.content or b""
    try:
        planned = plan(Document.of(base), policy.tiers)
    except NotFound as failure:
        raise NotFound(f"{failure.message}\nThe file was also changed on disk {since}: read it again.") from failure
    merged = merge(base, apply_splices(base, planned.splices), theirs)
    if merged is None:
        raise ToolFailure(f"{target.path} was changed on disk {since} and the changes cannot be merged. {WAYS_ON}")
    if not merged.clean and policy.on_change != "markers":
        raise ToolFailure(
            f"{target.path} was changed on disk {since}, in the same lines as this edit:\n{merged.excerpt()}\n{WAYS_ON}",
            data={"conflicts": merged.conflicts},
        )
    foreign = patch(Document.of(base), _difference(base, theirs)).unified(target.path)
    note = f"The file was changed on disk {since}; this edit was merged with that change:\n{foreign}"
    if not merged.clean:
        note = _conflict_note(merged, since)
    return Revision(
        target, merged.data, _difference(theirs, merged.data), planned.count, (*planned.notes, note), merged=True
    )


def _conflict_note(merged: Merge, since: str) -> str:
    places = "one place" if merged.conflicts == 1 else f"{merged.conflicts} places"
    return f"The file was changed on disk {since}, in the same lines: conflict markers were written at {places}. Resolve them."


def _difference(old: bytes, new: bytes) -> tuple[Splice, ...]:
    return (diff_bytes(old, new),) if old != new else ()


def _refuse_missing(target: Target) -> NoReturn:
    from wieldy.search.similar_paths import find_similar_paths

    names = find_similar_paths(target.path)
    meant = f"Did you mean {' or '.join(names)}? " if names else ""
    raise ToolFailure(f"{target.path} does not exist. {meant}To create a file use Write.")
