"""Where in a file the text is that the model wants replaced: exactly there, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, pairwise

from wieldy.core.failure import ToolFailure
from wieldy.core.record import record
from wieldy.edit.codec import SplitsCharacter
from wieldy.edit.document import Document, Span, unix
from wieldy.edit.hint import closest
from wieldy.edit.restyle import restyled
from wieldy.edit.splice import Splice, splice, splices, unix_ends
from wieldy.edit.tolerance import LARGEST, TIERS, TOO_LARGE, Place, Tier, recognised
from wieldy.schema.pattern import pattern

COUNTED_AT_MOST = 10_000
LISTED_AT_MOST = 12
FORGIVEN = {
    "typography": "quotes, dashes, spaces or Unicode forms written differently",
    "trailing-space": "different white space at line ends",
    "indentation": "a different indentation",
}
_NUMBERED = pattern(r"^[ \t]*\d+(?:\t|→)")


class NotFound(ToolFailure):
    """The text is not in the file."""


class WrongCount(ToolFailure):
    """The text is in the file, but not as often as was said."""


@record
class Replacement:
    """What the model asks for: `old` becomes `new`, so many times or everywhere."""

    old: str
    new: str
    expected: int = 1
    everywhere: bool = False


@record
class Located:
    """The splices a replacement comes to, where the old text was, and the tier that found it."""

    splices: tuple[Splice, ...]
    spans: tuple[Span, ...]
    tier: Tier
    note: str = ""


def locate(document: Document, wanted: Replacement, tiers: Sequence[Tier] = TIERS) -> Located:
    """The splices that carry out a replacement. Raises `NotFound` or `WrongCount`; never guesses."""
    document.codec.require(wanted.new)
    old = unix(wanted.old)
    try:
        spans = _exact(document, old, wanted)
        if spans:
            return Located(splices(document, spans, wanted.new), tuple(spans), "exact")
        _refuse_line_numbers(document, wanted)
        return _tolerant(document, old, wanted, tiers)
    except SplitsCharacter:
        raise NotFound(
            "old_string begins or ends inside a character of the file. Include the whole character."
        ) from None


def _exact(document: Document, old: str, wanted: Replacement) -> list[Span]:
    spans = list(islice(document.find(old, overlapping=True), COUNTED_AT_MOST))
    if not spans or (wanted.everywhere and wanted.expected == 1):
        return list(document.find(old)) if spans else []
    _require_count(document, spans, wanted)
    if len(spans) > 1 and any(one.end > other.start for one, other in pairwise(spans)):
        raise WrongCount("Places where old_string occurs overlap. Send a longer old_string that tells them apart.")
    return spans


def _tolerant(document: Document, old: str, wanted: Replacement, tiers: Sequence[Tier]) -> Located:
    if len(document.data) > LARGEST:
        raise NotFound(f"old_string was not found. {TOO_LARGE} Read the part you want to change again.")
    for tier in tiers:
        places = [] if tier == "exact" else recognised(document, old, tier, tiers)
        if not places:
            continue
        if tier == "typography" and wanted.everywhere and wanted.expected == 1:
            places = _apart(places)  # it looks the same everywhere; what is looser must be asked for by its number
        else:
            spans = [place.span for place in places]
            _require_count(document, spans, wanted, f" if one overlooks {FORGIVEN[tier]}")
        spans = [place.span for place in places]
        made = [spliced for place in places if (spliced := _spliced(document, place, wanted.new)) is not None]
        if len(made) == len(places):
            return Located(tuple(made), tuple(spans), tier, _note(document, tier, places))
    raise NotFound(f"old_string was not found in the file. {closest(document, old)}")


def _apart(places: list[Place]) -> list[Place]:
    """The places from the first on that do not overlap."""
    kept: list[Place] = []
    for place in places:
        if not kept or place.span.start >= kept[-1].span.end:
            kept.append(place)
    return kept


def _spliced(document: Document, place: Place, new: str) -> Splice | None:
    new = unix_ends(new)
    if place.at_end and new.endswith("\n"):
        new = new[:-1]
    styled = restyled(place.sent, place.found, new, place.shift)
    if styled is None:
        return None
    return splice(document, place.span, styled)


def _note(document: Document, tier: Tier, places: list[Place]) -> str:
    where = _listed([document.line_number(place.span.start) for place in places])
    first = places[0]
    overlooked = [FORGIVEN[name] for name in first.overlooked]
    if first.shift is not None:
        overlooked[-1] = f"{overlooked[-1]} (the file has {first.shift.words})"
    if first.at_end and first.sent == first.found:
        overlooked[-1] = "the missing line end at the end of the file"
    kept = "unchanged lines keep theirs" if tier == "trailing-space" else "new_string was given the file's style"
    return f"old_string matched only when overlooking {' and '.join(overlooked)} ({where}); {kept}."


def _require_count(document: Document, spans: list[Span], wanted: Replacement, how: str = "") -> None:
    found, expected = len(spans), wanted.expected
    if found == expected:
        return
    where = _listed([document.line_number(span.start) for span in spans[: LISTED_AT_MOST + 1]])
    count = f"at least {found}" if found == COUNTED_AT_MOST else f"{found}"
    times = "once" if count == "1" else f"{count} times"
    if expected != 1:
        raise WrongCount(
            f"old_string occurs {times}{how} ({where}), but expected_replacements is {expected}. "
            "Nothing was changed. Correct the number, or old_string."
        )
    ways = "add surrounding lines to old_string to name one place"
    every = f", or set expected_replacements to {found} to change all of them" if found < COUNTED_AT_MOST else ""
    raise WrongCount(f"old_string occurs {times}{how} ({where}), not once. Nothing was changed: {ways}{every}.")


def _listed(lines: list[int]) -> str:
    shown = [str(line) for line in dict.fromkeys(lines[:LISTED_AT_MOST])]
    more = " …" if len(lines) > LISTED_AT_MOST else ""
    return f"line{'s' if len(shown) > 1 else ''} {', '.join(shown)}{more}"


def _refuse_line_numbers(document: Document, wanted: Replacement) -> None:
    cleaned = without_line_numbers(wanted.old)
    if cleaned is None:
        return
    found = len(list(islice(document.find(cleaned), 2))) == 1
    start = "old_string contains the line numbers of Read's output, which are not part of the file."
    if not found:
        raise NotFound(f"{start} Send it without them:\n{cleaned}")
    new = without_line_numbers(wanted.new)
    with_new = f"\nnew_string:\n{new}" if new is not None else ""
    raise NotFound(f"{start} Without them it occurs exactly once; send\nold_string:\n{cleaned}{with_new}")


def without_line_numbers(text: str) -> str | None:
    """A text without the line numbers before its lines; None where not every line has one."""
    lines = unix(text).split("\n")
    last = lines.pop() if lines[-1] == "" and len(lines) > 1 else None
    if not all(_NUMBERED.match(line) for line in lines):
        return None
    cleaned = "\n".join(_NUMBERED.sub("", line, count=1) for line in lines)
    return cleaned if last is None else cleaned + "\n"
