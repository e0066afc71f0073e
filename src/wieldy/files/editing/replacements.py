"""What one or several replacements come to on a document, after the mistakes that need no looking for are refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct

from wieldy.core.errors import ToolFailure
from wieldy.files.editing.config import EditSettings
from wieldy.files.editing.document import Document, Span, unix
from wieldy.files.editing.matching import TIERS, NotFound, Replacement, TextMatches, Tier, find_text
from wieldy.files.editing.read_state import ReadState
from wieldy.files.editing.revision import (
    SMALL_FILE,
    EditPlan,
    NeedsThread,
    PrepareEdit,
    Revision,
    document_of,
    load_target,
)
from wieldy.files.editing.splicing import Splice, apply_splices, whole
from wieldy.files.encodings import UTF8
from wieldy.files.kinds import binary_kind
from wieldy.files.writing.target import Target

if TYPE_CHECKING:
    from wieldy.core.workspace import Workspace


class EditsConflict(ToolFailure):
    """Two edits of a batch get in each other's way."""


class Applied(Struct, frozen=True):
    """A splice of the original file, and the edit it belongs to."""

    splice: Splice
    edit: int


class Batch(Struct, frozen=True):
    """All edits as splices of the original file; `counts` says how many places each edit changed."""

    splices: tuple[Splice, ...]
    counts: tuple[int, ...]
    notes: tuple[str, ...]


def plan_batch(document: Document, edits: Sequence[Replacement], tiers: Sequence[Tier] = TIERS) -> Batch:
    """Try the edits one after the other. Raises `EditsConflict`, or the failure of the first that does not fit."""
    _refuse_contradictions(edits)
    current = document
    applied: list[Applied] = []
    counts: list[int] = []
    notes: list[str] = []
    for number, edit in enumerate(edits, start=1):
        try:
            located = find_text(current, edit, tiers)
        except NotFound as failure:
            raise _explained(failure, number, edits, document, applied) from failure
        except ToolFailure as failure:
            raise type(failure)(_numbered(number, edits, failure.message)) from failure
        _refuse_meeting(applied, located, number)
        applied = _merged(applied, located.splices, number)
        current = Document(apply_splices(current.data, located.splices), document.encoding)
        counts.append(len(located.splices))
        notes += (_numbered(number, edits, located.note),) if located.note else ()
    return Batch(tuple(one.splice for one in applied), tuple(counts), tuple(notes))


def _refuse_contradictions(edits: Sequence[Replacement]) -> None:
    first: dict[str, tuple[int, str]] = {}
    for number, edit in enumerate(edits, start=1):
        old, new = unix(edit.old), unix(edit.new)
        if old not in first:
            first[old] = number, new
            continue
        other, wanted = first[old]
        if wanted == new:
            raise EditsConflict(f"Edits {other} and {number} are the same. Nothing was changed; send it once.")
        raise EditsConflict(
            f"Edits {other} and {number} contradict each other: they replace the same old_string by different texts. "
            "Nothing was changed; keep one, or add surrounding lines to tell two places apart."
        )


def _refuse_meeting(applied: list[Applied], located: TextMatches, number: int) -> None:
    """Refuse an edit that touches what an earlier one wrote."""
    regions = list(_current_regions(applied))
    at = 0
    for span, splice in zip(located.spans, located.splices, strict=True):
        while at < len(regions) and regions[at][0].end < span.start:
            at += 1
        for region, other in islice(regions, at, None):
            if region.start > span.end:
                break
            if _meet(Span(splice.start, splice.end), region):
                raise EditsConflict(
                    f"Edits {other} and {number} overlap: both change the same text. "
                    "Nothing was changed; make them one edit."
                )
            if _meet(span, region):
                raise EditsConflict(
                    f"Edit {number} depends on edit {other}: its old_string is only there because of that edit. "
                    "Nothing was changed; write old_string as the file has it now, or make them one edit."
                )


def _meet(one: Span, other: Span) -> bool:
    """Whether two stretches share bytes, or an empty one lies inside the other."""
    if one.start == one.end or other.start == other.end:
        return one.start < other.start < one.end or other.start < one.start < other.end
    return one.start < other.end and other.start < one.end


def _current_regions(applied: Iterable[Applied]) -> Iterable[tuple[Span, int]]:
    """What earlier edits wrote, where it is now."""
    growth = 0
    for one in applied:
        start = one.splice.start + growth
        yield Span(start, start + len(one.splice.new)), one.edit
        growth += one.splice.growth


def _merged(applied: list[Applied], splices: Sequence[Splice], number: int) -> list[Applied]:
    """All splices in places of the original, given new ones in places of the current content."""
    merged: list[Applied] = []
    growth, at = 0, 0
    for splice in splices:
        while at < len(applied) and applied[at].splice.start + growth + len(applied[at].splice.new) <= splice.start:
            merged.append(applied[at])
            growth += applied[at].splice.growth
            at += 1
        merged.append(Applied(Splice(splice.start - growth, splice.end - growth, splice.new), number))
    return merged + applied[at:]


def _explained(
    failure: NotFound, number: int, edits: Sequence[Replacement], original: Document, applied: list[Applied]
) -> ToolFailure:
    edit = edits[number - 1]
    for span in islice(original.find(edit.old), 1):
        for one in applied:
            if _meet(span, Span(one.splice.start, one.splice.end)):
                return EditsConflict(
                    f"Edit {number} depends on text that edit {one.edit} changes: its old_string was in the file and "
                    "is gone after that edit. Nothing was changed; put it first, or make them one edit."
                )
    for later, other in enumerate(edits[number:], start=number + 1):
        if unix(edit.old) in unix(other.new):
            return EditsConflict(
                f"Edit {number} depends on edit {later}: its old_string only appears in that edit's new_string. "
                "Nothing was changed; make them one edit."
            )
    return type(failure)(_numbered(number, edits, failure.message))


def _numbered(number: int, edits: Sequence[Replacement], message: str) -> str:
    return f"Edit {number} of {len(edits)}: {message}"


_OPENERS = re.compile(r"^(?:\{/\*|//+|#+|/\*+|\*+|<!--+|--+|;+|%+)\s*")
_CLOSERS = re.compile(r"\s*(?:\*/\}?|--+>)$")
_DOTS = re.compile(r"^[\[({\s]*(?:\.{3,}|…)|(?:\.{3,}|…)[\])}\s]*$")
_AROUND = " \t.…[](){}:"
_WHAT = r"(?:code|file|contents?|functions?|methods?|class(?:es)?|implementation|logic|lines|text|body|imports)"
_SAME = r"(?:(?:is |are )?(?:unchanged|the same|omitted)|remains?|stays?|stay|(?:goes )?here|below|above|as (?:before|is|they))"
_REST_OF = rf"(?:the )?(?:rest|remainder) of (?:(?:the|your|this) )?(?:\w+ )?{_WHAT}(?: {_SAME}\b.*)?"
# A comment that says this much needs no dots to be a placeholder.
_PLAIN = _REST_OF
_DOTTED = (
    rf"{_REST_OF}|(?:the )?rest(?: {_SAME}\b.*)?"
    rf"|(?:the )?(?:existing|remaining|previous|unchanged|original|other|same) (?:\w+ )?{_WHAT}(?: {_SAME}\b.*)?"
    rf"|(?:{_WHAT} )?(?:unchanged|omitted|same as (?:before|above)|as before)(?: {_WHAT})?(?: for brevity)?"
)
LONGEST = 200
# No line without one of these is a placeholder, which spares looking at most lines.
_HINT = re.compile(r"\.\.\.|…|(?:rest|remainder) +of", re.IGNORECASE)


def placeholders(text: str) -> list[tuple[int, str]]:
    """Lines that stand for text left out, with their numbers from 1."""
    found: dict[int, str] = {}
    number = start = 0
    for hint in _HINT.finditer(text):
        if hint.start() < start:
            continue
        number += text.count("\n", start, hint.start())
        begin = text.rfind("\n", 0, hint.start()) + 1
        end = text.find("\n", hint.end())
        line = text[begin : end if end >= 0 else len(text)]
        start = begin + len(line)
        if len(line) < LONGEST and _stands_for_text(line):
            found[number + 1] = line
    return list(found.items())


def refuse_placeholders(new: str, old: str, what: str = "new_string") -> None:
    """Refuse a new text with a placeholder in it, unless the same line is in the old one."""
    found = placeholders(new)
    if not found:
        return
    there = {line.strip() for line in old.split("\n")}
    for number, line in found:
        if line.strip() not in there:
            raise ToolFailure(
                f"Line {number} of {what} is a placeholder for text left out: `{line.strip()}`. It would be written "
                "literally and the text it stands for would be lost. Send the whole text, or a smaller edit."
            )


def _stands_for_text(line: str) -> bool:
    stripped = line.strip()
    inner = _CLOSERS.sub("", _OPENERS.sub("", stripped))
    words = " ".join(inner.strip(_AROUND).split())
    if not words:
        return False
    if _DOTS.search(inner):
        return re.fullmatch(_DOTTED, words, re.IGNORECASE) is not None
    return inner != stripped and re.fullmatch(_PLAIN, words, re.IGNORECASE) is not None


def refuse_mistakes(edit: Replacement) -> None:
    """Refuse what is wrong whatever the file holds."""
    if not edit.old:
        raise ToolFailure(
            "old_string is empty. To create a file or replace all of it use Write; to insert text, send an old_string "
            "from beside the place and repeat it in new_string."
        )
    if edit.old == edit.new:
        raise ToolFailure("old_string and new_string are the same, so there is nothing to change.")
    refuse_placeholders(edit.new, edit.old)


def plan_replacement(edit: Replacement, document: Document, tiers: Sequence[Tier]) -> EditPlan:
    """One replacement."""
    refuse_mistakes(edit)
    _refuse_empty(document)
    located = find_text(document, edit, tiers)
    _refuse_idle(document, located.splices)
    return EditPlan(located.splices, len(located.splices), (located.note,) if located.note else ())


def plan_replacements(edits: Sequence[Replacement], document: Document, tiers: Sequence[Tier]) -> EditPlan:
    """Several replacements, all or none."""
    if not edits:
        raise ToolFailure("edits is empty. Send at least one edit.")
    for number, edit in enumerate(edits, start=1):
        try:
            refuse_mistakes(edit)
        except ToolFailure as failure:
            raise ToolFailure(f"Edit {number} of {len(edits)}: {failure.message} Nothing was changed.") from failure
    _refuse_empty(document)
    batch = plan_batch(document, edits, tiers)
    _refuse_idle(document, batch.splices)
    return EditPlan(batch.splices, sum(batch.counts), batch.notes)


def _refuse_empty(document: Document) -> None:
    if document.empty:
        raise ToolFailure("The file is empty, so there is nothing to replace. Use Write to give it content.")


def _refuse_idle(document: Document, splices: Sequence[Splice]) -> None:
    for splice in splices:
        if splice.new != document.data[splice.start : splice.end]:
            return
    raise ToolFailure(
        "This would change nothing: old_string and new_string differ only in line ends, which edits keep. "
        "To convert line ends use Bash."
    )


def prepare_rewrite(
    path: str,
    content: str,
    state: ReadState,
    policy: EditSettings,
    *,
    at_once: bool = False,
    resolved: str | None = None,
) -> Revision:
    """The revision that makes `content` the text of a file. Reads the file; raises `ToolFailure`, and with `at_once`
    `TakesLonger` where that is not a matter of a moment."""
    if at_once and len(content) > SMALL_FILE:
        raise NeedsThread
    target = load_target(path, policy, at_once=at_once, resolved=resolved)
    if target.stat is None:
        return _new(target, content)
    data = target.content or b""
    if not data:
        return _new(target, content)
    kind = binary_kind(data)
    if kind is not None:
        raise ToolFailure(
            f"{path} is not text but {kind}, and would be lost. If that is meant, remove it with Bash first."
        )
    document = document_of(data, at_once=at_once)
    _require_known(target, document, state)
    if document.encoding.bom:
        content = content.removeprefix("\ufeff")  # the file has one, and keeps it
    refuse_placeholders(content, document.text, "content")
    document.codec.require(content, "content")
    change = whole(document, content)
    return Revision(target, apply_splices(data, (change,)), (change,), text=document.afresh())


def rewrite_preparer(path: str, content: str, workspace: Workspace, resolved: str) -> PrepareEdit:
    """`rewrite` as often as it takes, with what a workspace knows of the file and wants for edits."""
    state, policy = workspace.service(ReadState), EditSettings.of(workspace)
    return lambda at_once: prepare_rewrite(path, content, state, policy, at_once=at_once, resolved=resolved)


def _new(target: Target, content: str) -> Revision:
    refuse_placeholders(content, "", "content")
    Document(b"", UTF8).codec.require(content, "content")
    data = content.encode()
    return Revision(target, data, (Splice(0, 0, data),))


def _require_known(target: Target, document: Document, state: ReadState) -> None:
    path = target.path
    reading = state.reading(target.real_path)
    if reading is None or target.stat is None:
        raise ToolFailure(
            f"{path} exists and must be read first: it has not been read in this session. Read it, then send this "
            "again, or choose another name."
        )
    if not state.is_current(target.real_path, target.content or b"", target.stat):
        since = "after your last change, perhaps by a formatter" if reading.ours else "since you read it"
        raise ToolFailure(f"{path} was changed on disk {since}. Nothing was written. Read it again first.")
    unseen = reading.unseen(document.lines())
    if unseen is not None:
        raise ToolFailure(
            f"Only part of {path} has been read: lines {unseen[0]}-{unseen[1]} are unknown to you and would be lost. "
            f"Read on with offset={unseen[0]}, or use Edit."
        )
