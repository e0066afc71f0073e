"""Finds, among many patterns that may match anywhere in a text, the few whose fixed piece the text can hold at all."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from typing import Generic, TypeVar

T = TypeVar("T")

WIDTH = 3
# So few are looked for one by one.
FEW = 16
# In a longer text nearly every piece occurs, so looking for each needle is no slower than cutting the text up.
LONGEST = 400


class Needles(Generic[T]):
    """Things that each need a piece of text, filed by the three letters of it that the fewest others need."""

    def __init__(self, entries: Iterable[tuple[str, T]]) -> None:
        self._entries = list(entries)
        self._short = [at for at, (needle, _) in enumerate(self._entries) if len(needle) < WIDTH]

    def __bool__(self) -> bool:
        return bool(self._entries)

    def held_by(self, text: str) -> list[T]:
        """What needs nothing that the text does not hold, in the order given."""
        if len(self._entries) <= FEW or len(text) > LONGEST:
            return [thing for needle, thing in self._entries if needle in text]
        near = self._short
        if self._any_piece.search(text):
            there = self._by_piece
            hits = {piece for at in range(len(text) - WIDTH + 1) if (piece := text[at : at + WIDTH]) in there}
            near = sorted({*near, *(at for piece in hits for at in there[piece])})
        return [thing for at in near for needle, thing in (self._entries[at],) if needle in text]

    @cached_property
    def _by_piece(self) -> dict[str, list[int]]:
        common = Counter(piece for needle, _ in self._entries for piece in _pieces(needle))
        filed: dict[str, list[int]] = {}
        for at, (needle, _) in enumerate(self._entries):
            if len(needle) >= WIDTH:
                rarest = min(_pieces(needle), key=lambda piece: (common[piece], piece))
                filed.setdefault(rarest, []).append(at)
        return filed

    @cached_property
    def _any_piece(self) -> re.Pattern[str]:
        """Finds out in one go whether there is any piece at all; mostly there is none."""
        endings: dict[str, list[str]] = {}
        for piece in self._by_piece:
            endings.setdefault(piece[0], []).append(re.escape(piece[1:]))
        return re.compile(
            "|".join(f"{re.escape(first)}(?:{'|'.join(rest)})" for first, rest in endings.items()) or "(?!)"
        )


def _pieces(text: str) -> set[str]:
    return {text[at : at + WIDTH] for at in range(len(text) - WIDTH + 1)}
