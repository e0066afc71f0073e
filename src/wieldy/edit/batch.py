"""Several edits of one file as one: tried in memory in their order, and refused together when they get in each other's way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from wieldy.core.failure import ToolFailure
from wieldy.core.record import record
from wieldy.edit.document import Document, Span, unix
from wieldy.edit.locate import Located, NotFound, Replacement, locate
from wieldy.edit.splice import Splice, apply
from wieldy.edit.tolerance import TIERS, Tier


class EditsConflict(ToolFailure):
    """Two edits of a batch get in each other's way."""


@record
class Applied:
    """A splice of the original file, and the edit it belongs to."""

    splice: Splice
    edit: int


@record
class Batch:
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
            located = locate(current, edit, tiers)
        except NotFound as failure:
            raise _explained(failure, number, edits, document, applied) from failure
        except ToolFailure as failure:
            raise type(failure)(_numbered(number, edits, failure.message)) from failure
        _refuse_meeting(applied, located, number)
        applied = _merged(applied, located.splices, number)
        current = Document(apply(current.data, located.splices), document.encoding)
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


def _refuse_meeting(applied: list[Applied], located: Located, number: int) -> None:
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
