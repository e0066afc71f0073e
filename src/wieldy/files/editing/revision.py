"""Compute the change of one file in memory: check what is there, plan the edit, merge changes made by others; and report it.

Mistakes that show without the file are refused first.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, TypeAlias, get_args

from msgspec import Struct
from msgspec.structs import replace

from wieldy.core.errors import ToolFailure
from wieldy.core.filesystem import FileSystem
from wieldy.core.setting_keys import default_of
from wieldy.core.text import display_path, plural
from wieldy.core.tool import Output
from wieldy.files.detection import UTF8, Encoding, binary_kind, encoding_for_new, keep_encoding, named_encoding
from wieldy.files.editing.diff import Merge, Patch, make_patch, merge
from wieldy.files.editing.document import (
    Document,
    Span,
    Splice,
    SplitsCharacter,
    apply_splices,
    diff_bytes,
    normalize_newlines,
    replace_text,
)
from wieldy.files.editing.matching import MAX_COUNTED, TIERS, NotFound, Replacement, Tier, find_text, parse_tolerance
from wieldy.files.editing.read_state import ReadRecord, ReadState
from wieldy.files.search.format import HIDDEN_CONTROL, describe_characters, suggest_paths
from wieldy.files.writing.disk import Target, WriteError
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


class Edit(Protocol):
    """What a tool makes of the content of one file."""

    def revise(self, target: Target, state: ReadState, settings: EditSettings) -> Revision:
        """Compute the new content. Raises `ToolFailure` where the edit cannot be made."""


class EditPlanner(Protocol):
    def plan(self, document: Document, tiers: Sequence[Tier]) -> EditPlan: ...


def edit_text(
    edit: EditPlanner, target: Target, state: ReadState, settings: EditSettings, encoding: str | None = None
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
        plan = _plan_certain(edit, document, settings)
        after = apply_splices(data, plan.splices)
        return Revision(
            *(target, after, plan.splices, plan.count, plan.notes),
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
    return replace(_merge_edit(target, document, edit, settings, since), known_whole=reading.whole)


def open_document(data: bytes, reading: ReadRecord, encoding: str | None = None) -> Document:
    """The document of the content that was read: in the encoding named, else in the one it was read in."""
    return Document(
        data, named_encoding(encoding, data) if encoding else keep_encoding(data, reading.encoding, unchanged=True)
    )


def _plan_certain(edit: EditPlanner, document: Document, settings: EditSettings) -> EditPlan:
    """Plan an edit, and refuse to write characters in an encoding that is only guessed."""
    plan = edit.plan(document, settings.tiers)
    if not document.encoding.certain and not all(splice.new.isascii() for splice in plan.splices):
        new = "".join(document.codec.decode(splice.new) for splice in plan.splices)
        document.codec.require_certain(new, document.text)
    return plan


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


def _merge_edit(target: Target, document: Document, edit: EditPlanner, settings: EditSettings, since: str) -> Revision:
    """Apply the edit to the content that the model knows, and merge that with what is on disk."""
    base, theirs = document.data, target.content or b""
    try:
        plan = _plan_certain(edit, document, settings)
    except NotFound as failure:
        problem = f"{failure.problem}\nThe file was also changed on disk {since}."
        raise NotFound(problem, f"{failure.next_step} Read it again.".strip(), person=failure.person) from failure
    merged = merge(base, apply_splices(base, plan.splices), theirs, encoding=document.encoding)
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
        *(target, merged.data, splices, plan.count, (*plan.notes, note)),
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
    suggestion = suggest_paths(target.path, files=files)
    raise ToolFailure(f"{target.path} does not exist.{suggestion}", "To create a file use Write.")


def edit_output(revision: Revision, notes: Sequence[str] = ()) -> Output:
    """The result of a tool that has written a revision. `notes` tell what came up while writing."""
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
    return Output("\n".join((_headline(name, revision, after, patch), *revision.notes, *notes, *details)), data)


def _headline(name: str, revision: Revision, after: Document, patch: Patch) -> str:
    if revision.before is None:
        lines, size = after.count_lines(), len(revision.after)
        return f"Created {name} ({plural(lines, 'line')}, {plural(size, 'byte')})."
    if revision.before == revision.after:
        return f"{name} already has exactly this content; nothing was written."
    count = f"{plural(revision.count, 'replacement')}, " if revision.count else ""
    more = "more than " if patch.truncated else ""
    return f"Changed {name}: {count}{more}+{patch.added} -{patch.removed} lines."


class ReplaceTexts(Struct, frozen=True):
    """Replaces texts in a file, one after the other, all or none."""

    replacements: Sequence[Replacement]
    encoding: str | None = None

    def revise(self, target: Target, state: ReadState, settings: EditSettings) -> Revision:
        return edit_text(self, target, state, settings, self.encoding)

    def plan(self, document: Document, tiers: Sequence[Tier]) -> EditPlan:
        edits = self.replacements
        if not edits:
            raise ToolFailure("edits is empty.", "Send at least one edit.")
        for number, edit in enumerate(edits, start=1):
            try:
                _refuse_mistakes(edit)
            except ToolFailure as failure:
                raise _of_batch(failure, number, edits) from failure
        _refuse_empty(document)
        plan = plan_batch(document, edits, tiers)
        _refuse_no_change(document, plan.splices)
        return plan


def _refuse_mistakes(edit: Replacement) -> None:
    """Refuse what is wrong whatever the file holds."""
    if not edit.old:
        raise ToolFailure(
            "old_string is empty.",
            "To create a file or replace all of it use Write; to insert text, send an old_string "
            "from beside the place and repeat it in new_string.",
        )
    if edit.old == edit.new:
        raise ToolFailure("old_string and new_string are the same, so there is nothing to change.")
    refuse_placeholders(edit.new, edit.old)


def _refuse_empty(document: Document) -> None:
    if document.empty:
        raise ToolFailure("The file is empty, so there is nothing to replace.", "Use Write to give it content.")


def _refuse_no_change(document: Document, splices: Sequence[Splice]) -> None:
    if all(splice.new == document.data[splice.start : splice.end] for splice in splices):
        raise ToolFailure(
            "This would change nothing: old_string and new_string differ only in line ends, which edits keep.",
            "To convert line ends use Bash.",
        )


class EditsConflict(ToolFailure):
    """Two edits of a batch interfere with each other."""


def plan_batch(document: Document, edits: Sequence[Replacement], tiers: Sequence[Tier] = TIERS) -> EditPlan:
    """Make the edits one after the other, each on the result of those before it, and express them as splices of the
    original file. Raises `EditsConflict`, or the failure of the first edit that does not fit."""
    _refuse_contradictions(edits)
    current, pieces = document, PieceTable(len(document.data))
    notes: list[str] = []
    count = 0
    for number, edit in enumerate(edits, start=1):
        try:
            matches = find_text(current, edit, tiers)
        except NotFound as failure:
            raise _explain_not_found(failure, number, edits, document, pieces) from failure
        except ToolFailure as failure:
            raise _of_batch(failure, number, edits) from failure
        _refuse_ambiguous(document, edit, number, pieces, matches.spans)
        pieces.apply(matches.splices, number)
        if number < len(edits):
            current = Document(apply_splices(current.data, matches.splices), document.encoding)
        count += len(matches.splices)
        notes += (_numbered(number, edits, matches.note),) if matches.note else ()
    splices = tuple(Splice(span.start, span.end, new) for span, new, _ in pieces.changes())
    return EditPlan(splices, count, tuple(notes))


class _Piece(Struct, frozen=True):
    """A stretch of the current content: bytes `start:end` of the original, or `new` ones that an `edit` wrote."""

    start: int = 0
    end: int = 0
    new: bytes = b""
    edit: int = 0

    @property
    def length(self) -> int:
        return len(self.new) if self.edit else self.end - self.start

    def part(self, start: int, end: int) -> _Piece:
        if self.edit:
            return _Piece(new=self.new[start:end], edit=self.edit)
        return _Piece(self.start + start, self.start + end)


class PieceTable:
    """What edits made of a content, piece by piece: which bytes are still the original ones, which edit wrote the others."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._pieces = [_Piece(0, size)]

    def apply(self, splices: Sequence[Splice], edit: int) -> None:
        """Apply ascending splices of the current content."""
        rest, at = deque(self._pieces), 0
        pieces: list[_Piece] = []
        for splice in splices:
            for until, is_kept in ((splice.start, True), (splice.end, False)):
                while rest and at + rest[0].length <= until:
                    piece = rest.popleft()
                    at += piece.length
                    pieces += (piece,) if is_kept else ()
                if at < until:
                    piece = rest.popleft()
                    pieces += (piece.part(0, until - at),) if is_kept else ()
                    rest.appendleft(piece.part(until - at, piece.length))
                    at = until
            pieces.append(_Piece(new=splice.new, edit=edit))
        self._pieces = [*pieces, *rest]

    def written(self) -> Iterator[tuple[Span, frozenset[int]]]:
        """The spans of the current content that edits wrote; empty ones where they deleted something."""
        at = 0
        for piece in self._pieces:
            if piece.edit:
                yield Span(at, at + piece.length), frozenset({piece.edit})
            at += piece.length

    def changes(self) -> Iterator[tuple[Span, bytes, frozenset[int]]]:
        """The spans of the original that were changed, the bytes there now, and the edits that wrote them."""
        at = 0
        new: list[_Piece] = []
        for piece in (*self._pieces, _Piece(self._size, self._size)):
            if piece.edit:
                new.append(piece)
                continue
            if new or piece.start > at:
                yield Span(at, piece.start), b"".join(one.new for one in new), frozenset(one.edit for one in new)
            at, new = piece.end, []


def _refuse_contradictions(edits: Sequence[Replacement]) -> None:
    first: dict[str, tuple[int, str]] = {}
    for number, edit in enumerate(edits, start=1):
        old, new = normalize_newlines(edit.old), normalize_newlines(edit.new)
        if old not in first:
            first[old] = number, new
            continue
        other, other_new = first[old]
        if other_new == new:
            raise EditsConflict(f"Edits {other} and {number} are the same. Nothing was changed.", "Send it once.")
        if f"\n{old}\n" in f"\n{other_new}\n":
            continue  # an anchor: whole lines beside which both insert something
        raise EditsConflict(
            f"Edits {other} and {number} contradict each other: they replace the same old_string by different texts. "
            "Nothing was changed.",
            "Keep one, or add surrounding lines to tell two places apart.",
        )


def _refuse_ambiguous(
    original: Document, edit: Replacement, number: int, pieces: PieceTable, spans: Sequence[Span]
) -> None:
    """Refuse an edit that could mean the file's own text as well as what an earlier edit wrote. A text that only earlier
    edits wrote is clear, and so is one that they left alone."""
    writers = _edits_within(spans, pieces.written())
    earlier = frozenset[int]().union(*writers)
    if not earlier:
        return
    if not all(writers):
        raise EditsConflict(
            f"Edit {number} is ambiguous: its old_string is in the file and also in what edit {max(earlier)} writes. "
            "Nothing was changed.",
            "Put it before that edit, or send a longer old_string.",
        )
    changes = ((span, edits) for span, _, edits in pieces.changes())
    changers = _edits_within(_places(original, edit.old, MAX_COUNTED), changes)
    if changers and not any(earlier & edits for edits in changers):
        raise EditsConflict(
            f"Edit {number} is ambiguous: edit {max(frozenset[int]().union(*changers))} changes the place where its "
            f"old_string is in the file, and edit {max(earlier)} writes that text elsewhere. Nothing was changed.",
            "Make what belongs to one place one edit.",
        )


def _places(document: Document, text: str, most: int) -> list[Span]:
    """The first places where a text is in a document; none for one that is only part of a character of the file."""
    try:
        return list(islice(document.find(text), most))
    except SplitsCharacter:
        return []


def _edits_within(spans: Sequence[Span], regions: Iterable[tuple[Span, frozenset[int]]]) -> list[frozenset[int]]:
    """For each of some ascending spans, the edits of the ascending regions that it overlaps."""
    listed = list(regions)
    owners: list[frozenset[int]] = []
    at = 0
    for span in spans:
        while at < len(listed) and listed[at][0].end < span.start:
            at += 1
        near = takewhile(lambda region: region[0].start <= span.end, islice(listed, at, None))  # noqa: B023
        owners.append(frozenset().union(*(edits for region, edits in near if _overlap(span, region))))
    return owners


def _overlap(one: Span, other: Span) -> bool:
    """Whether two spans share bytes, or an empty one lies inside the other."""
    if one.start == one.end or other.start == other.end:
        return one.start < other.start < one.end or other.start < one.start < other.end
    return one.start < other.end and other.start < one.end


def _explain_not_found(
    failure: NotFound, number: int, edits: Sequence[Replacement], original: Document, pieces: PieceTable
) -> ToolFailure:
    edit = edits[number - 1]
    spans = _places(original, edit.old, 1)
    for changers in _edits_within(spans, ((span, changers) for span, _, changers in pieces.changes())):
        if changers:
            return EditsConflict(
                f"Edit {number} contradicts edit {max(changers)}: its old_string was in the file and is gone after that "
                "edit. Nothing was changed.",
                "Write it as that edit leaves it, put it first, or make them one edit.",
            )
    for later, other in enumerate(edits[number:], start=number + 1):
        if normalize_newlines(edit.old) in normalize_newlines(other.new):
            return EditsConflict(
                f"Edit {number} depends on edit {later}: its old_string only appears in that edit's new_string. "
                "Nothing was changed.",
                "Put it behind that edit.",
            )
    return _of_batch(failure, number, edits)


def _of_batch(failure: ToolFailure, number: int, edits: Sequence[Replacement]) -> ToolFailure:
    """The failure of one edit; of several, with its number, and that none of them was made."""
    if len(edits) == 1:
        return failure
    problem = failure.problem + ("\n" if "\n" in failure.problem else " ") + "Nothing was changed."
    person = "" if failure.person == failure.problem else f"{failure.person}; nothing was changed"
    return failure.with_problem(_numbered(number, edits, problem), person=person and _numbered(number, edits, person))


def _numbered(number: int, edits: Sequence[Replacement], message: str) -> str:
    return f"Edit {number} of {len(edits)}: {message}" if len(edits) > 1 else message


class RewriteText(Struct, frozen=True):
    """Gives a file its whole text. An existing one must have been read in full; it keeps its encoding unless another is
    named."""

    content: str
    encoding: str | None = None

    def revise(self, target: Target, state: ReadState, settings: EditSettings) -> Revision:
        return _rewrite(self.content, target, state, self.encoding)


def _rewrite(content: str, target: Target, state: ReadState, encoding: str | None) -> Revision:
    data = target.content or b""
    if not data:
        return _create(target, content, encoding_for_new(encoding) if encoding else UTF8)
    kind = binary_kind(data)
    if kind is not None:
        raise ToolFailure(
            f"{target.path} is not text but {kind}, and would be lost.", "If that is meant, remove it with Bash first."
        )
    reading = state.reading(target.real_path)
    known = reading.encoding if reading is not None else None
    document = Document(data, keep_encoding(data, known, unchanged=True))
    _require_read(target, document, state)
    refuse_placeholders(content, document.text, "content")
    if encoding:
        document = _convert(document, encoding)
    if document.encoding.bom:
        content = content.removeprefix("\ufeff")  # the file has one, and keeps it
    document.codec.require(document.with_returns(content), "content")
    document.codec.require_certain(content, document.text, "content")
    splice = replace_text(document, content)
    after = apply_splices(document.data, (splice,))
    lost = count_lost_controls(document, after)
    notes = (f"The old content had {describe_characters(lost)} that the new one lacks.",) if lost else ()
    return Revision(target, after, (splice,), notes=notes, document=document, encoding=document.encoding)


def count_lost_controls(document: Document, after: bytes) -> Counter[str]:
    """The control characters of the old content, which Read does not show, that the new one has less of."""
    text = document.codec.decode(document.data)
    lost = Counter(HIDDEN_CONTROL.findall(text))
    if document.has_lone_returns:
        lost["\r"] = text.count("\r") - text.count("\r\n")
    if lost:
        new = document.codec.decode(after)
        lost.subtract({char: new.count(char) - (new.count("\r\n") if char == "\r" else 0) for char in lost})
    return +lost


def _convert(document: Document, name: str) -> Document:
    """The document in the encoding that the new content is to have."""
    current, wanted = document.encoding, encoding_for_new(name)
    if wanted.name == current.name:
        return Document(document.data, replace(current, doubtful=False, rivals=()))
    text = document.codec.decode(document.data[document.body :])
    if current.doubtful and not wanted.is_unicode and document.data.decode(wanted.name, "replace") != text:
        raise ToolFailure(
            f"The file was read in {current.name}, which is a guess, and reads differently in {name}. Nothing was "
            f"written.",
            f'Read it with encoding="{name}" first.',
        )
    return Document(wanted.bom + text.encode(wanted.name, "replace"), wanted)


def _create(target: Target, content: str, encoding: Encoding) -> Revision:
    if encoding.bom:
        content = content.removeprefix("\ufeff")
    document = Document(b"", encoding)
    document.codec.require(content, "content")
    data = encoding.bom + document.codec.encode(content)
    return Revision(target, data, (Splice(0, 0, data),), encoding=encoding)


def _require_read(target: Target, document: Document, state: ReadState) -> None:
    path = target.path
    reading = state.reading(target.real_path)
    if reading is None or target.stat is None:
        raise ToolFailure(
            f"{path} exists and must be read first: it has not been read in this session.",
            "Read it, then send this again, or choose another name.",
            person=f"{path} exists, and the model has not read it",
        )
    if not state.is_current(target.real_path, target.content or b"", target.stat):
        since = reading.describe_staleness()
        raise ToolFailure(f"{path} was changed on disk {since}. Nothing was written.", "Read it again first.")
    unseen = reading.unseen(document.count_lines())
    if unseen is not None:
        raise ToolFailure(
            f"Only part of {path} has been read: lines {unseen[0]}-{unseen[1]} are unknown to you and would be lost.",
            f"Read on with offset={unseen[0]}, or use Edit.",
            person=f"the model has read only part of {path}: lines {unseen[0]}-{unseen[1]} would be lost",
        )


_OPENERS = re.compile(r"^(?:\{/\*|//+|#+|/\*+|\*+|<!--+|--+|;+|%+)\s*")
_CLOSERS = re.compile(r"\s*(?:\*/\}?|--+>)$")
_DOTS = re.compile(r"^[\[({\s]*(?:\.{3,}|…)|(?:\.{3,}|…)[\])}\s]*$")
_SURROUNDING = " \t.…[](){}:"
_NOUN = r"(?:code|file|contents?|functions?|methods?|class(?:es)?|implementation|logic|lines|text|body|imports)"
_STATE = r"(?:(?:is |are )?(?:unchanged|the same|omitted)|remains?|stays?|stay|(?:goes )?here|below|above|as (?:before|is|they))"
_REST_OF = rf"(?:the )?(?:rest|remainder) of (?:(?:the|your|this) )?(?:\w+ )?{_NOUN}(?: {_STATE}\b.*)?"
_DOTTED = (
    rf"{_REST_OF}|(?:the )?rest(?: {_STATE}\b.*)?"
    rf"|(?:the )?(?:existing|remaining|previous|unchanged|original|other|same) (?:\w+ )?{_NOUN}(?: {_STATE}\b.*)?"
    rf"|(?:{_NOUN} )?(?:unchanged|omitted|same as (?:before|above)|as before)(?: {_NOUN})?(?: for brevity)?"
)
MAX_PLACEHOLDER = 200
# No line without one of these is a placeholder, which spares looking at most lines.
_HINT = re.compile(r"\.\.\.|…|(?:rest|remainder) +of", re.IGNORECASE)


def find_placeholders(text: str) -> list[tuple[int, str]]:
    """Lines that stand for text left out, such as `// ... rest of the code`, with their numbers from 1."""
    return [
        (number, line)
        for number, line in enumerate(text.split("\n"), start=1)
        if len(line) < MAX_PLACEHOLDER and _HINT.search(line) and _is_placeholder(line)
    ]


def refuse_placeholders(new: str, old: str, what: str = "new_string") -> None:
    """Refuse a new text with a placeholder in it, unless the same line is in the old one."""
    if not _HINT.search(new):
        return
    old_lines = {line.strip() for line in old.split("\n")}
    for number, line in find_placeholders(new):
        if line.strip() not in old_lines:
            raise ToolFailure(
                f"Line {number} of {what} is a placeholder for text left out: `{line.strip()}`. It would be written "
                "literally and the text it stands for would be lost.",
                "Send the whole text, or a smaller edit.",
            )


def _is_placeholder(line: str) -> bool:
    stripped = line.strip()
    inner = _CLOSERS.sub("", _OPENERS.sub("", stripped))
    words = " ".join(inner.strip(_SURROUNDING).split())
    if not words:
        return False
    if _DOTS.search(inner):
        return re.fullmatch(_DOTTED, words, re.IGNORECASE) is not None
    # A comment that names the rest of something needs no dots.
    return inner != stripped and re.fullmatch(_REST_OF, words, re.IGNORECASE) is not None
