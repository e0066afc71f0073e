"""Where in a file the text is that the model wants replaced: exactly there, or not at all."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, islice, pairwise
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct

from wieldy.core.errors import ToolFailure
from wieldy.files.editing.document import Document, Span, SplitsCharacter, unix
from wieldy.files.editing.folding import fold, plain
from wieldy.files.editing.hints import closest
from wieldy.files.editing.restyling import IndentShift, restyled, shift_between
from wieldy.files.editing.splicing import Splice, splice, splices, unix_ends

Tier: TypeAlias = Literal["exact", "typography", "trailing-space", "indentation"]
TIERS: tuple[Tier, ...] = get_args(Tier)
LARGEST = 4_000_000
TOO_LARGE = "The file is over 4 MB, so only exact matches are looked for."


class Place(Struct, frozen=True):
    """Where a text was recognised: its bytes, its form in the file, and how that differs from what was sent."""

    span: Span
    found: str
    sent: str
    overlooked: tuple[Tier, ...]
    shift: IndentShift | None = None
    at_end: bool = False


def tiers(setting: Any) -> tuple[Tier, ...]:
    """The tiers a setting `edit.tolerance` allows: `all`, `exact`, or a list of names; exact matching is always on."""
    if setting in (None, "all"):
        return TIERS
    named = [setting] if isinstance(setting, str) else list(setting) if isinstance(setting, list | tuple) else [setting]
    unknown = [name for name in named if name not in TIERS]
    if unknown:
        raise ToolFailure(
            f'The setting edit.tolerance names {unknown[0]!r}; it can be "all", "exact" or a list of '
            f"{', '.join(TIERS[1:])}."
        )
    return tuple(tier for tier in TIERS if tier == "exact" or tier in named)


def recognised(document: Document, old: str, tier: Tier, allowed: Sequence[Tier] = TIERS) -> list[Place]:
    """Every place that is `old` but for what a tier forgives, and, if need be, what the stricter allowed tiers do."""
    if tier == "typography":
        return list(_by_folding(document, old))
    search = _Search(document, old, tier, "trailing-space" in allowed)
    places = list(search.places(folding=False))
    if not places and "typography" in allowed and not (document.text.isascii() and old.isascii()):
        places = list(search.places(folding=True))
    return places


def _holding(wanted: list[str], lines: list[str]) -> Iterator[int]:
    """Every index from which consecutive lines are those wanted."""
    if len(lines) >= sys.maxunicode:
        return
    # Each different line becomes one character, so that looking for lines is looking for a substring.
    ids: dict[str, str] = {}
    text = "".join([ids.setdefault(line, chr(len(ids) + 1)) for line in lines])
    needle = "".join([ids.get(line, "\0") for line in wanted])
    at = text.find(needle)
    while at >= 0:
        yield at
        at = text.find(needle, at + 1)


def _by_folding(document: Document, old: str) -> Iterator[Place]:
    if document.text.isascii() and old.isascii():
        return
    text, needle = fold(document.text), plain(old)
    at = text.text.find(needle) if needle else -1
    while at >= 0:
        start, end = text.source_start(at), text.source_end(at + len(needle))
        if start is not None and end is not None:
            yield Place(document.span(start, end), document.text[start:end], old, ("typography",))
        at = text.text.find(needle, at + 1)


class _Search:
    """Looks for whole lines, with white space at their ends or the indentation left aside."""

    def __init__(self, document: Document, old: str, tier: Tier, trailing: bool) -> None:
        self.document = document
        self.old = old
        self.tier = tier
        self.trailing = trailing
        self.lines = document.text.split("\n")
        self.sent = (old[:-1] if old.endswith("\n") else old).split("\n")

    def places(self, *, folding: bool) -> Iterator[Place]:
        """Every place, comparing lines as they are or folded."""
        if not any(line.strip() for line in self.sent):
            return
        overlooked: tuple[Tier, ...] = ("typography", self.tier) if folding else (self.tier,)
        lines = plain(self.document.text).split("\n") if folding else self.lines
        sent = [plain(line) for line in self.sent] if folding else self.sent
        if self.trailing:
            lines, sent = [line.rstrip(" \t") for line in lines], [line.rstrip(" \t") for line in sent]
        if self.tier == "trailing-space":
            found = self._by_trailing_space(sent, lines, within=not folding)
        else:
            found = self._by_indentation([line.lstrip(" \t") for line in sent], [line.lstrip(" \t") for line in lines])
        for index, offset, shift in found:
            place = self._place(index, offset, shift, overlooked)
            if self.trailing or not place.at_end:
                yield place

    def _by_trailing_space(
        self, sent: list[str], lines: list[str], *, within: bool
    ) -> Iterator[tuple[int, int, IndentShift | None]]:
        """The first line may begin within a line of the file, the others are whole."""
        first, rest = sent[0], sent[1:]
        for index in (at - 1 for at in _holding(rest, lines) if at) if rest else range(len(lines)):
            if lines[index] == first:
                yield index, 0, None
            elif within and first and lines[index].endswith(first):
                yield index, len(lines[index]) - len(first), None

    def _by_indentation(self, sent: list[str], lines: list[str]) -> Iterator[tuple[int, int, IndentShift | None]]:
        for index in _holding(sent, lines):
            shift = shift_between(self.sent, self.lines[index : index + len(sent)])
            if shift is not None and shift != IndentShift():
                yield index, 0, shift

    @cached_property
    def _starts(self) -> list[int]:
        return list(accumulate((len(line) + 1 for line in self.lines), initial=0))

    def _place(self, index: int, offset: int, shift: IndentShift | None, overlooked: tuple[Tier, ...]) -> Place:
        text = self.document.text
        start, end = self._starts[index] + offset, self._starts[index + len(self.sent)]
        ends_line = self.old.endswith("\n")
        # The last line of a file without final line end is found by a text that has one.
        at_end = ends_line and end > len(text)
        if not ends_line or at_end:
            end -= 1
        sent = self.old[:-1] if at_end else self.old
        return Place(self.document.span(start, end), text[start:end], sent, overlooked, shift, at_end)


COUNTED_AT_MOST = 10_000
LISTED_AT_MOST = 12
FORGIVEN = {
    "typography": "quotes, dashes, spaces or Unicode forms written differently",
    "trailing-space": "different white space at line ends",
    "indentation": "a different indentation",
}
_NUMBERED = re.compile(r"^[ \t]*\d+(?:\t|→)")


class NotFound(ToolFailure):
    """The text is not in the file."""


class WrongCount(ToolFailure):
    """The text is in the file, but not as often as was said."""


class Replacement(Struct, frozen=True):
    """What the model asks for: `old` becomes `new`, so many times or everywhere."""

    old: str
    new: str
    expected: int = 1
    everywhere: bool = False


class TextMatches(Struct, frozen=True):
    """The splices a replacement comes to, where the old text was, and the tier that found it."""

    splices: tuple[Splice, ...]
    spans: tuple[Span, ...]
    tier: Tier
    note: str = ""


def find_text(document: Document, wanted: Replacement, tiers: Sequence[Tier] = TIERS) -> TextMatches:
    """The splices that carry out a replacement. Raises `NotFound` or `WrongCount`; never guesses."""
    document.codec.require(wanted.new)
    old = unix(wanted.old)
    try:
        spans = _exact(document, old, wanted)
        if spans:
            return TextMatches(splices(document, spans, wanted.new), tuple(spans), "exact")
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


def _tolerant(document: Document, old: str, wanted: Replacement, tiers: Sequence[Tier]) -> TextMatches:
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
            return TextMatches(tuple(made), tuple(spans), tier, _note(document, tier, places))
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
