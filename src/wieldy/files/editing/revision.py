"""Compute the change of one file in memory: check what is there, plan the edit, merge changes made by others; and report it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, get_args

from msgspec import Struct
from msgspec.structs import replace

from wieldy.core.errors import ToolFailure
from wieldy.core.filesystem import FileSystem
from wieldy.core.setting_keys import default_of
from wieldy.core.tool import Output
from wieldy.files.detection import UTF8, Encoding, binary_kind, keep_encoding, named_encoding
from wieldy.files.editing.diff import Patch, make_patch
from wieldy.files.editing.document import Document
from wieldy.files.editing.matching import TIERS, NotFound, Tier, parse_tolerance
from wieldy.files.editing.merging import Merge, merge
from wieldy.files.editing.read_state import ReadRecord, ReadState
from wieldy.files.editing.splicing import Splice, apply_splices, diff_bytes
from wieldy.files.search.format import display_path
from wieldy.files.writing.errors import WriteError
from wieldy.files.writing.target import Target
from wieldy.files.writing.writers import LocalWriter

if TYPE_CHECKING:
    from wieldy.core.workspace import Workspace


MAX_BYTES: int = default_of("edit.maxBytes")
OPTIONS = """Options:
- overwrite: Read the file, then make it what you want with Write or Edit
- keep: leave the file as it is
- re-read: Read the file and send an edit that fits what is there now"""

OnExternalChange: TypeAlias = Literal["merge", "error", "markers"]


class EditSettings(Struct, frozen=True):
    """The settings `edit.tolerance`, `edit.onExternalChange` and `edit.maxBytes`."""

    tiers: tuple[Tier, ...] = TIERS
    on_external_change: OnExternalChange = "merge"
    max_bytes: int = MAX_BYTES

    @staticmethod
    def of(workspace: Workspace) -> EditSettings:
        if "edit" not in workspace.settings:
            return EditSettings()
        on_change: Any = workspace.setting("edit.onExternalChange")
        choices = get_args(OnExternalChange)
        if on_change not in choices:
            raise ToolFailure(f"The setting edit.onExternalChange is {on_change!r}; it can be {', '.join(choices)}.")
        tiers = parse_tolerance(workspace.setting("edit.tolerance"))
        return EditSettings(tiers, on_change, workspace.setting("edit.maxBytes"))


class EditPlan(Struct, frozen=True):
    """The splices an edit makes in a certain content; `count` is the number of replacements."""

    splices: tuple[Splice, ...]
    count: int
    notes: tuple[str, ...] = ()


class Revision(Struct, frozen=True):
    """A file before and after an edit; `count` is the number of replacements.

    `before` is None for a new file, `document` its text where that was looked at. `known_whole` is false where the model has
    not seen all of the file, None where it has not read it. `encoding` is that of the new content.
    """

    target: Target
    after: bytes
    splices: tuple[Splice, ...]
    count: int = 0
    notes: tuple[str, ...] = ()
    merged: bool = False
    known_whole: bool | None = True
    document: Document | None = None
    encoding: Encoding | None = None

    @property
    def path(self) -> str:
        """The path as the model wrote it."""
        return self.target.path

    @property
    def before(self) -> bytes | None:
        """The content on disk."""
        return self.target.content


PlanEdit: TypeAlias = Callable[[Document, Sequence[Tier]], EditPlan]
# Computes the new content of a file; raises `ToolFailure` where the edit cannot be made.
EditFunction: TypeAlias = Callable[[Target, ReadState, EditSettings], Revision]


def edit_text(
    plan: PlanEdit, target: Target, state: ReadState, settings: EditSettings, encoding: str | None = None
) -> Revision:
    """Edit an existing text file that the model has read; merge with changes made by others since.

    The file is taken for text in `encoding`; where none is named, in the one it was read in.
    """
    _require_text(target, state.files)
    data, stat, key = target.content or b"", target.stat, target.real_path
    reading = state.reading(key)
    if reading is None or stat is None:
        raise ToolFailure(
            f"{target.path} must be read first: it has not been read in this session.",
            "Read it, then send this again.",
            person=f"the model has not read {target.path} yet",
        )
    if state.is_current(key, data, stat):
        document = open_document(data, reading, encoding)
        edit = _plan_certain(plan, document, settings)
        after = apply_splices(data, edit.splices)
        return Revision(
            *(target, after, edit.splices, edit.count, edit.notes),
            known_whole=reading.knows_all(document.count_lines),
            document=document,
            encoding=document.encoding,
        )
    since = reading.describe_staleness()
    base = state.content(key)
    if settings.on_external_change == "error" or base is None:
        raise ToolFailure(
            f"{target.path} was changed on disk {since}. Nothing was written.",
            "Read it again, then edit what is there.",
        )
    document = open_document(base, reading, encoding)
    return replace(_merge_edit(target, document, plan, settings, since), known_whole=reading.whole)


def open_document(data: bytes, reading: ReadRecord, encoding: str | None = None) -> Document:
    """The document of the content that was read: in the encoding named, else in the one it was read in."""
    return Document(
        data, named_encoding(encoding, data) if encoding else keep_encoding(data, reading.encoding, unchanged=True)
    )


def _plan_certain(plan: PlanEdit, document: Document, settings: EditSettings) -> EditPlan:
    """Plan an edit, and refuse to write characters in an encoding that is only guessed."""
    edit = plan(document, settings.tiers)
    if not document.encoding.certain and not all(splice.new.isascii() for splice in edit.splices):
        new = "".join(document.codec.decode(splice.new) for splice in edit.splices)
        document.codec.require_certain(new, document.text)
    return edit


def _require_text(target: Target, files: FileSystem) -> None:
    if target.stat is None:
        _refuse_missing(target, files)
    kind = binary_kind(target.content or b"")
    if kind is not None:
        raise ToolFailure(
            f"{target.path} is not text but {kind}; only text can be edited.", "Use Bash with a program made for it."
        )


def load_target(path: str, settings: EditSettings, resolved: str | None, writer: LocalWriter) -> Target:
    """Read the file that is to be edited; `stat` is None where there is none."""
    try:
        target = writer.resolve_target(path, resolved)
        size = 0 if target.stat is None else target.stat.st_size
        if size > settings.max_bytes:
            raise ToolFailure(
                f"{path} is {size:,} bytes, over the limit of {settings.max_bytes:,}.",
                "Use Bash (sed, for one), or raise the setting edit.maxBytes.",
            )
        return target if target.stat is None else writer.with_content(target)
    except WriteError as failure:
        next_step = "Use LS or Glob to find the file." if writer.files.is_folder(path) else ""
        raise ToolFailure(failure.message, next_step) from failure
    except OSError as error:
        raise ToolFailure(f"{path} cannot be read: {(error.strerror or str(error)).lower()}.") from error


def _merge_edit(target: Target, document: Document, plan: PlanEdit, settings: EditSettings, since: str) -> Revision:
    """Apply the edit to the content that the model knows, and merge that with what is on disk."""
    base, theirs = document.data, target.content or b""
    try:
        edit = _plan_certain(plan, document, settings)
    except NotFound as failure:
        problem = f"{failure.problem}\nThe file was also changed on disk {since}."
        raise NotFound(problem, f"{failure.next_step} Read it again.".strip(), person=failure.person) from failure
    merged = merge(base, apply_splices(base, edit.splices), theirs, encoding=document.encoding)
    if merged is None:
        raise ToolFailure(
            f"{target.path} was changed on disk {since} and the changes cannot be merged. Nothing was written.", OPTIONS
        )
    if not merged.clean and settings.on_external_change != "markers":
        raise ToolFailure(
            f"{target.path} was changed on disk {since}, in the same lines as this edit:\n"
            f"{merged.excerpt()}\nNothing was written.",
            OPTIONS,
            person=f"{target.path} was changed on disk {since}, in the same lines as this edit: nothing was written",
            data={"conflicts": merged.conflicts},
        )
    note = _conflict_note(merged, since)
    if merged.clean:
        others = make_patch(document, _difference(base, theirs)).unified(target.path)
        note = f"The file was changed on disk {since}; this edit was merged with that change:\n{others}"
    splices = _difference(theirs, merged.data)
    return Revision(
        *(target, merged.data, splices, edit.count, (*edit.notes, note)),
        merged=True,
        document=Document(theirs, document.encoding),
        encoding=document.encoding,
    )


def _conflict_note(merged: Merge, since: str) -> str:
    places = "one place" if merged.conflicts == 1 else f"{merged.conflicts} places"
    return f"The file was changed on disk {since}, in the same lines: conflict markers were written at {places}. Resolve them."


def _difference(old: bytes, new: bytes) -> tuple[Splice, ...]:
    return (diff_bytes(old, new),) if old != new else ()


def _refuse_missing(target: Target, files: FileSystem) -> NoReturn:
    from wieldy.files.search.similar_paths import find_similar_paths

    similar = find_similar_paths(target.path, files=files)
    suggestion = f" Did you mean {' or '.join(similar)}?" if similar else ""
    raise ToolFailure(f"{target.path} does not exist.{suggestion}", "To create a file use Write.")


class Report(Struct, frozen=True):
    """The result of a tool, into which notes from writing the file are inserted: they follow `headlines`, before `details`."""

    headlines: tuple[str, ...]
    details: tuple[str, ...]
    data: dict[str, Any]

    def with_notes(self, notes: tuple[str, ...]) -> Output:
        """The result of a tool, with what came up while the file was written."""
        return Output("\n".join((*self.headlines, *notes, *self.details)), self.data)


def make_report(revision: Revision) -> Report:
    """Report a revision as written."""
    name, old = display_path(revision.path), revision.before
    created = old is None
    before = (revision.document or Document.of(old)) if old else Document(b"", UTF8)
    encoding = revision.encoding or before.encoding
    after = Document(revision.after, encoding) if old or revision.encoding else Document.of(revision.after)
    patch = make_patch(before, revision.splices)
    details: list[str] = []
    if not created and encoding.doubtful and not all(splice.new.isascii() for splice in revision.splices):
        details.append(f"The encoding of the file was guessed: {encoding.name}.")
    if not created and patch.hunks:
        details.append(patch.unified(name))
    data: dict[str, Any] = {
        "type": "create" if created else "update",
        "filePath": name,
        "structuredPatch": [hunk.as_data() for hunk in patch.hunks],
        "snippet": patch.snippet(),
        "encoding": after.encoding.name,
        "replacements": revision.count,
        "merged": revision.merged,
    }
    return Report((_headline(name, revision, after, patch), *revision.notes), tuple(details), data)


def _headline(name: str, revision: Revision, after: Document, patch: Patch) -> str:
    if revision.before is None:
        lines, size = after.count_lines(), len(revision.after)
        return f"Created {name} ({lines} line{'s' if lines != 1 else ''}, {size} byte{'s' if size != 1 else ''})."
    if revision.before == revision.after:
        return f"{name} already has exactly this content; nothing was written."
    count = f"{revision.count} replacement{'s' if revision.count != 1 else ''}, " if revision.count else ""
    more = "more than " if patch.truncated else ""
    return f"Changed {name}: {count}{more}+{patch.added} -{patch.removed} lines."
