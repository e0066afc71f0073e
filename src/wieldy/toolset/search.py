"""Finds tools by words: BM25 over the words of their names, descriptions and parameters."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from wieldy.core.tool import Tool

K1 = 1.2
B = 0.6
NAME_WEIGHT = 3
SHORTEST_PREFIX = 3

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")


def words(text: str) -> Iterator[str]:
    """The words of a text or of a name in any style, in lower case and without a plural s."""
    for found in _WORD.finditer(text):
        word = found[0].lower()
        yield word[:-1] if len(word) > 3 and word[-1] == "s" and word[-2] != "s" else word


class Index:
    """Tools prepared for searching. A query touches only the tools that share a word with it."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self.tools: Sequence[Tool] = tuple(tools)
        counts = [_counted(tool) for tool in self.tools]
        lengths = [sum(count.values()) for count in counts]
        mean = sum(lengths) / len(lengths) if lengths else 1.0
        postings: dict[str, list[tuple[int, int]]] = {}
        for number, count in enumerate(counts):
            for word, times in count.items():
                postings.setdefault(word, []).append((number, times))
        self._scores: dict[str, list[tuple[int, float]]] = {}
        for word, found in postings.items():
            rarity = math.log(1 + (len(counts) - len(found) + 0.5) / (len(found) + 0.5))
            self._scores[word] = [
                (number, rarity * times * (K1 + 1) / (times + K1 * (1 - B + B * lengths[number] / mean)))
                for number, times in found
            ]
        self._vocabulary = sorted(self._scores)

    def search(self, query: str, most: int) -> list[Tool]:
        """The tools that fit best, best first; among equals the order of their names decides."""
        totals: dict[int, float] = {}
        for word in dict.fromkeys(words(query)):
            for number, score in self._found(word):
                totals[number] = totals.get(number, 0.0) + score
        best = sorted(totals, key=lambda number: (-totals[number], self.tools[number].name))
        return [self.tools[number] for number in best[:most]]

    def _found(self, word: str) -> Iterable[tuple[int, float]]:
        exact = self._scores.get(word)
        if exact is not None or len(word) < SHORTEST_PREFIX:
            return exact or ()
        # `repo` finds `repository`: each tool counts once, by its best word that begins so.
        best: dict[int, float] = {}
        for longer in self._beginning_with(word):
            for number, score in self._scores[longer]:
                best[number] = max(score / 2, best.get(number, 0.0))
        return best.items()

    def _beginning_with(self, word: str) -> Iterator[str]:
        for at in range(bisect_left(self._vocabulary, word), len(self._vocabulary)):
            if not self._vocabulary[at].startswith(word):
                return
            yield self._vocabulary[at]


def _counted(tool: Tool) -> Counter[str]:
    count = Counter(words(tool.description))
    for word in words(tool.name):
        count[word] += NAME_WEIGHT
    properties = tool.schema.get("properties")
    for name in properties if isinstance(properties, dict) else ():
        count.update(words(name))
    return count
