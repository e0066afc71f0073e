"""Find the text that the model wants replaced: exactly, or with differences that cannot change which place is meant."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, islice, pairwise
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct

from wieldy.core.errors import ToolFailure
from wieldy.files.editing.document import Document, Span, SplitsCharacter, normalize_newlines
from wieldy.files.editing.folding import fold, fold_text
from wieldy.files.editing.hints import describe_closest
from wieldy.files.editing.restyling import IndentShift, restyle, shift_between
from wieldy.files.editing.splicing import Splice, replace_span

Tier: TypeAlias = Literal["exact", "typography", "trailing-space", "indentation"]
TIERS: tuple[Tier, ...] = get_args(Tier)
TIER_DIFFERENCES = {
    "typography": "quotes, dashes, spaces or Unicode forms written differently",
    "trailing-space": "different white space at line ends",
    "indentation": "a different indentation",
}
LARGEST_TOLERANT = 4_000_000
MAX_COUNTED = 10_000
MAX_LISTED = 12
_LINE_NUMBER = re.compile(r"^[ \t]*\d+(?:\t|→)")


NOT_FOUND = "the text to replace is not in the file"


class NotFound(ToolFailure):
    """The text is not in the file."""


class WrongCount(ToolFailure):
    """The text is in the file, but not as often as expected."""


class Replacement(Struct, frozen=True):
    """A request of the model: `old` becomes `new`, so many times or everywhere."""

    old: str
    new: str
    expected: int = 1
    everywhere: bool = False


class TextMatches(Struct, frozen=True):
    """The splices that carry out a replacement, where the old text was, and the tier that found it."""

    splices: tuple[Splice, ...]
    spans: tuple[Span, ...]
    tier: Tier
    note: str = ""


def parse_tolerance(setting: Any) -> tuple[Tier, ...]:
    """The tiers that the setting `edit.tolerance` allows: `all`, `exact`, or a list; exact matching is always on."""
    if setting in (None, "all"):
        return TIERS
    names = list(setting) if isinstance(setting, list | tuple) else [setting]
    unknown = [name for name in names if name not in TIERS]
    if unknown:
        raise ToolFailure(
            f'The setting edit.tolerance names {unknown[0]!r}; it can be "all", "exact" or a list of '
            f"{', '.join(TIERS[1:])}."
        )
    return tuple(tier for tier in TIERS if tier == "exact" or tier in names)


def find_text(document: Document, replacement: Replacement, tiers: Sequence[Tier] = TIERS) -> TextMatches:
    """The splices that carry out a replacement. Raises `NotFound` or `WrongCount`; never guesses."""
    document.codec.require(document.with_returns(replacement.new))
    old = document.normalize(replacement.old)
    try:
        spans = _find_exact(document, old, replacement)
        if spans:
            splices = tuple(replace_span(document, span, replacement.new) for span in spans)
            return TextMatches(splices, tuple(spans), "exact")
        _refuse_line_numbers(document, replacement)
        return _find_by_tiers(document, old, replacement, tiers)
    except SplitsCharacter:
        raise NotFound(
            "old_string begins or ends inside a character of the file.", "Include the whole character."
        ) from None


def _find_exact(document: Document, old: str, replacement: Replacement) -> list[Span]:
    spans = list(islice(document.find(old, overlapping=True), MAX_COUNTED))
    if not spans or (replacement.everywhere and replacement.expected == 1):
        return list(document.find(old)) if spans else []
    _require_count(document, spans, replacement)
    if len(spans) > 1 and any(one.end > other.start for one, other in pairwise(spans)):
        raise WrongCount("Places where old_string occurs overlap.", "Send a longer old_string that tells them apart.")
    return spans


def _find_by_tiers(document: Document, old: str, replacement: Replacement, tiers: Sequence[Tier]) -> TextMatches:
    if len(document.data) > LARGEST_TOLERANT:
        raise NotFound(
            "old_string was not found. The file is over 4 MB, so only exact matches are looked for.",
            "Read the part you want to change again.",
            person=NOT_FOUND,
        )
    for tier in tiers:
        matches = [] if tier == "exact" else find_tolerant(document, old, tier, tiers)
        if not matches:
            continue
        if tier == "typography" and replacement.everywhere and replacement.expected == 1:
            # It looks the same everywhere; looser matches must be asked for by their number.
            matches = _without_overlaps(matches)
        else:
            how = f" if one overlooks {TIER_DIFFERENCES[tier]}"
            _require_count(document, [match.span for match in matches], replacement, how)
        splices = [splice for match in matches if (splice := _splice_match(document, match, replacement.new))]
        if len(splices) == len(matches):
            spans = tuple(match.span for match in matches)
            return TextMatches(tuple(splices), spans, tier, _tolerance_note(document, tier, matches))
    raise NotFound(f"old_string was not found in the file. {describe_closest(document, old)}", person=NOT_FOUND)


class TolerantMatch(Struct, frozen=True):
    """Where a text was found but for some differences: its bytes, its form in the file and as sent, and the tiers that
    overlooked the differences. `at_end`: a final line end was sent where the file has none."""

    span: Span
    file_text: str
    sent_text: str
    overlooked: tuple[Tier, ...]
    shift: IndentShift | None = None
    at_end: bool = False


def find_tolerant(document: Document, old: str, tier: Tier, allowed: Sequence[Tier] = TIERS) -> list[TolerantMatch]:
    """Every place that is `old` but for what a tier overlooks and, if need be, what the stricter allowed tiers do."""
    if tier == "typography":
        return list(_find_folded(document, old))
    search = _LineSearch(document, old, tier, "trailing-space" in allowed)
    matches = list(search.matches(folding=False))
    if not matches and "typography" in allowed and not (document.text.isascii() and old.isascii()):
        matches = list(search.matches(folding=True))
    return matches


def _find_folded(document: Document, old: str) -> Iterator[TolerantMatch]:
    if document.text.isascii() and old.isascii():
        return
    folded, needle = fold(document.text), fold_text(old)
    at = folded.text.find(needle) if needle else -1
    while at >= 0:
        start, end = folded.source_start(at), folded.source_end(at + len(needle))
        if start is not None and end is not None:
            yield TolerantMatch(document.byte_span(start, end), document.text[start:end], old, ("typography",))
        at = folded.text.find(needle, at + 1)


class _LineSearch:
    """Finds whole lines, ignoring white space at their ends or their indentation."""

    def __init__(self, document: Document, old: str, tier: Tier, trailing: bool) -> None:
        self.document = document
        self.old = old
        self.tier = tier
        self.trailing = trailing
        self.lines = document.text.split("\n")
        self.sent = (old[:-1] if old.endswith("\n") else old).split("\n")

    def matches(self, *, folding: bool) -> Iterator[TolerantMatch]:
        """Every match, comparing lines as they are or folded."""
        if not any(line.strip() for line in self.sent):
            return
        overlooked: tuple[Tier, ...] = ("typography", self.tier) if folding else (self.tier,)
        lines = fold_text(self.document.text).split("\n") if folding else self.lines
        sent = [fold_text(line) for line in self.sent] if folding else self.sent
        if self.trailing:
            lines, sent = [line.rstrip(" \t") for line in lines], [line.rstrip(" \t") for line in sent]
        if self.tier == "trailing-space":
            candidates = self._by_trailing_space(sent, lines, within=not folding)
        else:
            candidates = self._by_indentation(
                [line.lstrip(" \t") for line in sent], [line.lstrip(" \t") for line in lines]
            )
        for index, offset, shift in candidates:
            match = self._match(index, offset, shift, overlooked)
            if self.trailing or not match.at_end:
                yield match

    def _by_trailing_space(
        self, sent: list[str], lines: list[str], *, within: bool
    ) -> Iterator[tuple[int, int, IndentShift | None]]:
        """The first line may begin within a line of the file, the others are whole."""
        first, rest = sent[0], sent[1:]
        for index in (at - 1 for at in _find_lines(rest, lines) if at) if rest else range(len(lines)):
            if lines[index] == first:
                yield index, 0, None
            elif within and first and lines[index].endswith(first):
                yield index, len(lines[index]) - len(first), None

    def _by_indentation(self, sent: list[str], lines: list[str]) -> Iterator[tuple[int, int, IndentShift | None]]:
        for index in _find_lines(sent, lines):
            shift = shift_between(self.sent, self.lines[index : index + len(sent)])
            if shift is not None and shift != IndentShift():
                yield index, 0, shift

    @cached_property
    def _starts(self) -> list[int]:
        return list(accumulate((len(line) + 1 for line in self.lines), initial=0))

    def _match(self, index: int, offset: int, shift: IndentShift | None, overlooked: tuple[Tier, ...]) -> TolerantMatch:
        text = self.document.text
        start, end = self._starts[index] + offset, self._starts[index + len(self.sent)]
        ends_line = self.old.endswith("\n")
        at_end = ends_line and end > len(text)
        if not ends_line or at_end:
            end -= 1
        sent = self.old[:-1] if at_end else self.old
        return TolerantMatch(self.document.byte_span(start, end), text[start:end], sent, overlooked, shift, at_end)


def _find_lines(needle: list[str], lines: list[str]) -> Iterator[int]:
    """Every index at which consecutive lines are those of `needle`."""
    if len(lines) >= sys.maxunicode:
        return
    # Each different line becomes one character, so that a search for lines is a search for a substring.
    ids: dict[str, str] = {}
    text = "".join([ids.setdefault(line, chr(len(ids) + 1)) for line in lines])
    pattern = "".join([ids.get(line, "\0") for line in needle])
    at = text.find(pattern)
    while at >= 0:
        yield at
        at = text.find(pattern, at + 1)


def _without_overlaps(matches: list[TolerantMatch]) -> list[TolerantMatch]:
    separate: list[TolerantMatch] = []
    for match in matches:
        if not separate or match.span.start >= separate[-1].span.end:
            separate.append(match)
    return separate


def _splice_match(document: Document, match: TolerantMatch, new: str) -> Splice | None:
    new = new.replace("\r\n", "\n")
    if match.at_end and new.endswith("\n"):
        new = new[:-1]
    styled = restyle(match.sent_text, match.file_text, new, match.shift)
    return None if styled is None else replace_span(document, match.span, styled)


def _tolerance_note(document: Document, tier: Tier, matches: list[TolerantMatch]) -> str:
    where = _list_lines([document.line_number(match.span.start) for match in matches])
    first = matches[0]
    differences = [TIER_DIFFERENCES[name] for name in first.overlooked]
    if first.shift is not None:
        differences[-1] = f"{differences[-1]} (the file has {first.shift.description})"
    if first.at_end and first.sent_text == first.file_text:
        differences[-1] = "the missing line end at the end of the file"
    style = "unchanged lines keep theirs" if tier == "trailing-space" else "new_string was given the file's style"
    return f"old_string matched only when overlooking {' and '.join(differences)} ({where}); {style}."


def _require_count(document: Document, spans: list[Span], replacement: Replacement, how: str = "") -> None:
    count, expected = len(spans), replacement.expected
    if count == expected:
        return
    where = _list_lines([document.line_number(span.start) for span in spans[: MAX_LISTED + 1]])
    times = "once" if count == 1 else f"at least {count} times" if count == MAX_COUNTED else f"{count} times"
    if expected != 1:
        raise WrongCount(
            f"old_string occurs {times}{how} ({where}), but expected_replacements is {expected}. Nothing was changed.",
            "Correct the number, or old_string.",
            person=f"the text to replace occurs {times}, {expected} were expected",
        )
    advice = "Add surrounding lines to old_string to name one place"
    every = f", or set expected_replacements to {count} to change all of them" if count < MAX_COUNTED else ""
    raise WrongCount(
        f"old_string occurs {times}{how} ({where}), not once. Nothing was changed.",
        f"{advice}{every}.",
        person=f"the text to replace occurs {times} ({where}), not once",
    )


def _list_lines(numbers: list[int]) -> str:
    listed = [str(number) for number in dict.fromkeys(numbers[:MAX_LISTED])]
    more = " …" if len(numbers) > MAX_LISTED else ""
    return f"line{'s' if len(listed) > 1 else ''} {', '.join(listed)}{more}"


def _refuse_line_numbers(document: Document, replacement: Replacement) -> None:
    cleaned = without_line_numbers(replacement.old)
    if cleaned is None:
        return
    reason = "old_string contains the line numbers of Read's output, which are not part of the file."
    count = len(list(islice(document.find(cleaned), MAX_COUNTED)))
    if count == 0 and len(document.data) <= LARGEST_TOLERANT:
        closest = describe_closest(document, cleaned)
        raise NotFound(f"{reason} Without them it was not found either. {closest}", person=NOT_FOUND)
    if count != 1:
        more = f" and with surrounding lines, for it occurs {count} times" if count else ""
        raise NotFound(reason, f"Send it without them{more}:\n{cleaned}", person=NOT_FOUND)
    new = without_line_numbers(replacement.new)
    with_new = f"\nnew_string:\n{new}" if new is not None else ""
    next_step = f"Without them it occurs exactly once; send\nold_string:\n{cleaned}{with_new}"
    raise NotFound(reason, next_step, person=NOT_FOUND)


def without_line_numbers(text: str) -> str | None:
    """A text without the line numbers before its lines; None where not every line has one."""
    lines = normalize_newlines(text).split("\n")
    last = lines.pop() if lines[-1] == "" and len(lines) > 1 else None
    if not all(_LINE_NUMBER.match(line) for line in lines):
        return None
    cleaned = "\n".join(_LINE_NUMBER.sub("", line, count=1) for line in lines)
    return cleaned if last is None else cleaned + "\n"
