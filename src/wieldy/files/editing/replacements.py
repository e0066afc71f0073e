"""Plan edits: one replacement, a batch of them, or a rewritten file, after refusing mistakes that show without the file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from wieldy.core.errors import ToolFailure
from wieldy.files.editing.document import Document, Span, normalize_newlines
from wieldy.files.editing.matching import TIERS, NotFound, Replacement, TextMatches, Tier, find_text
from wieldy.files.editing.read_state import ReadState
from wieldy.files.editing.revision import EditPlan, EditSettings, Revision
from wieldy.files.editing.splicing import Splice, apply_splices, replace_text
from wieldy.files.encodings import UTF8, Encoding, encoding_for_new, keep_encoding
from wieldy.files.kinds import binary_kind
from wieldy.files.writing.target import Target


def plan_replacement(edit: Replacement, document: Document, tiers: Sequence[Tier]) -> EditPlan:
    """Plan one replacement."""
    _refuse_mistakes(edit)
    _refuse_empty(document)
    matches = find_text(document, edit, tiers)
    _refuse_no_change(document, matches.splices)
    return EditPlan(matches.splices, len(matches.splices), (matches.note,) if matches.note else ())


def plan_replacements(edits: Sequence[Replacement], document: Document, tiers: Sequence[Tier]) -> EditPlan:
    """Plan several replacements, all or none."""
    if not edits:
        raise ToolFailure("edits is empty. Send at least one edit.")
    for number, edit in enumerate(edits, start=1):
        try:
            _refuse_mistakes(edit)
        except ToolFailure as failure:
            raise ToolFailure(_numbered(number, edits, f"{failure.message} Nothing was changed.")) from failure
    _refuse_empty(document)
    plan = plan_batch(document, edits, tiers)
    _refuse_no_change(document, plan.splices)
    return plan


def _refuse_mistakes(edit: Replacement) -> None:
    """Refuse what is wrong whatever the file holds."""
    if not edit.old:
        raise ToolFailure(
            "old_string is empty. To create a file or replace all of it use Write; to insert text, send an old_string "
            "from beside the place and repeat it in new_string."
        )
    if edit.old == edit.new:
        raise ToolFailure("old_string and new_string are the same, so there is nothing to change.")
    refuse_placeholders(edit.new, edit.old)


def _refuse_empty(document: Document) -> None:
    if document.empty:
        raise ToolFailure("The file is empty, so there is nothing to replace. Use Write to give it content.")


def _refuse_no_change(document: Document, splices: Sequence[Splice]) -> None:
    if all(splice.new == document.data[splice.start : splice.end] for splice in splices):
        raise ToolFailure(
            "This would change nothing: old_string and new_string differ only in line ends, which edits keep. "
            "To convert line ends use Bash."
        )


class EditsConflict(ToolFailure):
    """Two edits of a batch interfere with each other."""


class _AppliedSplice(Struct, frozen=True):
    """A splice of the original file, and the number of the edit it belongs to."""

    splice: Splice
    edit: int


def plan_batch(document: Document, edits: Sequence[Replacement], tiers: Sequence[Tier] = TIERS) -> EditPlan:
    """Try the edits one after the other and express them as splices of the original file. Raises `EditsConflict`, or the
    failure of the first edit that does not fit."""
    _refuse_contradictions(edits)
    current = document
    applied: list[_AppliedSplice] = []
    notes: list[str] = []
    for number, edit in enumerate(edits, start=1):
        try:
            matches = find_text(current, edit, tiers)
        except NotFound as failure:
            raise _explain_not_found(failure, number, edits, document, applied) from failure
        except ToolFailure as failure:
            raise type(failure)(_numbered(number, edits, failure.message)) from failure
        _refuse_overlap(applied, matches, number)
        applied = _insert_splices(applied, matches.splices, number)
        current = Document(apply_splices(current.data, matches.splices), document.encoding)
        notes += (_numbered(number, edits, matches.note),) if matches.note else ()
    return EditPlan(tuple(one.splice for one in applied), len(applied), tuple(notes))


def _refuse_contradictions(edits: Sequence[Replacement]) -> None:
    first: dict[str, tuple[int, str]] = {}
    for number, edit in enumerate(edits, start=1):
        old, new = normalize_newlines(edit.old), normalize_newlines(edit.new)
        if old not in first:
            first[old] = number, new
            continue
        other, other_new = first[old]
        if other_new == new:
            raise EditsConflict(f"Edits {other} and {number} are the same. Nothing was changed; send it once.")
        raise EditsConflict(
            f"Edits {other} and {number} contradict each other: they replace the same old_string by different texts. "
            "Nothing was changed; keep one, or add surrounding lines to tell two places apart."
        )


def _refuse_overlap(applied: list[_AppliedSplice], matches: TextMatches, number: int) -> None:
    """Refuse an edit that touches what an earlier one wrote."""
    regions = list(_current_regions(applied))
    at = 0
    for span, splice in zip(matches.spans, matches.splices, strict=True):
        while at < len(regions) and regions[at][0].end < span.start:
            at += 1
        for region, other in islice(regions, at, None):
            if region.start > span.end:
                break
            if _overlap(Span(splice.start, splice.end), region):
                raise EditsConflict(
                    f"Edits {other} and {number} overlap: both change the same text. "
                    "Nothing was changed; make them one edit."
                )
            if _overlap(span, region):
                raise EditsConflict(
                    f"Edit {number} depends on edit {other}: its old_string is only there because of that edit. "
                    "Nothing was changed; write old_string as the file has it now, or make them one edit."
                )


def _overlap(one: Span, other: Span) -> bool:
    """Whether two spans share bytes, or an empty one lies inside the other."""
    if one.start == one.end or other.start == other.end:
        return one.start < other.start < one.end or other.start < one.start < other.end
    return one.start < other.end and other.start < one.end


def _current_regions(applied: Iterable[_AppliedSplice]) -> Iterable[tuple[Span, int]]:
    """What earlier edits wrote, where it is in the current content."""
    growth = 0
    for one in applied:
        start = one.splice.start + growth
        yield Span(start, start + len(one.splice.new)), one.edit
        growth += one.splice.growth


def _insert_splices(applied: list[_AppliedSplice], splices: Sequence[Splice], number: int) -> list[_AppliedSplice]:
    """All splices in offsets of the original, given new ones in offsets of the current content."""
    merged: list[_AppliedSplice] = []
    growth, at = 0, 0
    for splice in splices:
        while at < len(applied) and applied[at].splice.start + growth + len(applied[at].splice.new) <= splice.start:
            merged.append(applied[at])
            growth += applied[at].splice.growth
            at += 1
        merged.append(_AppliedSplice(Splice(splice.start - growth, splice.end - growth, splice.new), number))
    return merged + applied[at:]


def _explain_not_found(
    failure: NotFound,
    number: int,
    edits: Sequence[Replacement],
    original: Document,
    applied: list[_AppliedSplice],
) -> ToolFailure:
    edit = edits[number - 1]
    for span in islice(original.find(edit.old), 1):
        for one in applied:
            if _overlap(span, Span(one.splice.start, one.splice.end)):
                return EditsConflict(
                    f"Edit {number} depends on text that edit {one.edit} changes: its old_string was in the file and "
                    "is gone after that edit. Nothing was changed; put it first, or make them one edit."
                )
    for later, other in enumerate(edits[number:], start=number + 1):
        if normalize_newlines(edit.old) in normalize_newlines(other.new):
            return EditsConflict(
                f"Edit {number} depends on edit {later}: its old_string only appears in that edit's new_string. "
                "Nothing was changed; make them one edit."
            )
    return type(failure)(_numbered(number, edits, failure.message))


def _numbered(number: int, edits: Sequence[Replacement], message: str) -> str:
    return f"Edit {number} of {len(edits)}: {message}"


def rewrite_text(
    content: str, target: Target, state: ReadState, settings: EditSettings, encoding: str | None = None
) -> Revision:
    """Make `content` the whole text of a file. An existing one must have been read in full; it keeps its encoding unless
    another is named."""
    data = target.content or b""
    if not data:
        return _create(target, content, encoding_for_new(encoding) if encoding else UTF8)
    kind = binary_kind(data)
    if kind is not None:
        raise ToolFailure(
            f"{target.path} is not text but {kind}, and would be lost. If that is meant, remove it with Bash first."
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
    document.codec.require(content, "content")
    document.codec.require_certain(content, document.text, "content")
    splice = replace_text(document, content)
    after = apply_splices(document.data, (splice,))
    return Revision(target, after, (splice,), document=document, encoding=document.encoding)


def _convert(document: Document, name: str) -> Document:
    """The document in the encoding that the new content is to have."""
    current, wanted = document.encoding, encoding_for_new(name)
    if wanted.name == current.name:
        return Document(document.data, replace(current, doubtful=False, rivals=()))
    text = document.codec.decode(document.data[document.body :])
    if current.doubtful and not wanted.is_unicode and document.data.decode(wanted.name, "replace") != text:
        raise ToolFailure(
            f"The file was read in {current.name}, which is a guess, and reads differently in {name}. Nothing was "
            f'written. Read it with encoding="{name}" first.'
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
            f"{path} exists and must be read first: it has not been read in this session. Read it, then send this "
            "again, or choose another name."
        )
    if not state.is_current(target.real_path, target.content or b"", target.stat):
        since = reading.describe_staleness()
        raise ToolFailure(f"{path} was changed on disk {since}. Nothing was written. Read it again first.")
    unseen = reading.unseen(document.count_lines())
    if unseen is not None:
        raise ToolFailure(
            f"Only part of {path} has been read: lines {unseen[0]}-{unseen[1]} are unknown to you and would be lost. "
            f"Read on with offset={unseen[0]}, or use Edit."
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
                "literally and the text it stands for would be lost. Send the whole text, or a smaller edit."
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
