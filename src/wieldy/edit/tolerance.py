"""The ways in which a text may differ from the file and still be recognised, from strict to loose."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal, TypeAlias, get_args

from wieldy.core.failure import ToolFailure
from wieldy.core.record import record
from wieldy.edit.document import Document, Span
from wieldy.edit.fold import fold, plain
from wieldy.edit.indent import Shift, shift_between

Tier: TypeAlias = Literal["exact", "typography", "trailing-space", "indentation"]
TIERS: tuple[Tier, ...] = get_args(Tier)
LARGEST = 4_000_000
TOO_LARGE = "The file is over 4 MB, so only exact matches are looked for."


@record
class Place:
    """Where a text was recognised: its bytes, its form in the file, and how that differs from what was sent."""

    span: Span
    found: str
    sent: str
    overlooked: tuple[Tier, ...]
    shift: Shift | None = None
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
    ) -> Iterator[tuple[int, int, Shift | None]]:
        """The first line may begin within a line of the file, the others are whole."""
        first, rest = sent[0], sent[1:]
        for index in (at - 1 for at in _holding(rest, lines) if at) if rest else range(len(lines)):
            if lines[index] == first:
                yield index, 0, None
            elif within and first and lines[index].endswith(first):
                yield index, len(lines[index]) - len(first), None

    def _by_indentation(self, sent: list[str], lines: list[str]) -> Iterator[tuple[int, int, Shift | None]]:
        for index in _holding(sent, lines):
            shift = shift_between(self.sent, self.lines[index : index + len(sent)])
            if shift is not None and shift != Shift():
                yield index, 0, shift

    @cached_property
    def _starts(self) -> list[int]:
        return list(accumulate((len(line) + 1 for line in self.lines), initial=0))

    def _place(self, index: int, offset: int, shift: Shift | None, overlooked: tuple[Tier, ...]) -> Place:
        text = self.document.text
        start, end = self._starts[index] + offset, self._starts[index + len(self.sent)]
        ends_line = self.old.endswith("\n")
        # The last line of a file without final line end is found by a text that has one.
        at_end = ends_line and end > len(text)
        if not ends_line or at_end:
            end -= 1
        sent = self.old[:-1] if at_end else self.old
        return Place(self.document.span(start, end), text[start:end], sent, overlooked, shift, at_end)
