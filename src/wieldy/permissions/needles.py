"""Finds, among many patterns that may match anywhere in a text, the few whose fixed piece the text can hold at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")

WIDTH = 3
# In a longer text nearly every piece occurs, so looking for each needle is no slower than cutting the text up.
LONGEST = 400


class Needles(Generic[T]):
    """Things that each need a piece of text, filed by the three letters of it that the fewest others need."""

    def __init__(self, entries: Iterable[tuple[str, T]]) -> None:
        self._entries = list(entries)
        self._short = [at for at, (needle, _) in enumerate(self._entries) if len(needle) < WIDTH]
        common = Counter(piece for needle, _ in self._entries for piece in _pieces(needle))
        self._by_piece: dict[str, list[int]] = {}
        for at, (needle, _) in enumerate(self._entries):
            if len(needle) >= WIDTH:
                rarest = min(_pieces(needle), key=lambda piece: (common[piece], piece))
                self._by_piece.setdefault(rarest, []).append(at)

    def __bool__(self) -> bool:
        return bool(self._entries)

    def held_by(self, text: str) -> list[T]:
        """What needs nothing that the text does not hold, in the order given."""
        if not self._entries:
            return []
        near: Iterable[int] = range(len(self._entries))
        if len(text) <= LONGEST:
            there = self._by_piece
            hits = [piece for at in range(len(text) - WIDTH + 1) if (piece := text[at : at + WIDTH]) in there]
            if not hits:
                if not self._short:
                    return []
                near = self._short
            else:
                near = sorted({*self._short, *(at for piece in hits for at in there[piece])})
        return [thing for at in near for needle, thing in (self._entries[at],) if needle in text]


def _pieces(text: str) -> set[str]:
    return {text[at : at + WIDTH] for at in range(len(text) - WIDTH + 1)}
