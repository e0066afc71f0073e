"""Find tools by words: BM25 over names, descriptions and parameter names."""

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
MIN_PREFIX_LENGTH = 3

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")


def split_words(text: str) -> Iterator[str]:
    """The words of a text or of a name in any style, in lower case and without a plural s."""
    for match in _WORD.finditer(text):
        word = match[0].lower()
        yield word[:-1] if len(word) > 3 and word[-1] == "s" and word[-2] != "s" else word


class ToolIndex:
    """An inverted index of tools. A query touches only the tools that share a word with it."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self.tools: Sequence[Tool] = tuple(tools)
        counts = [_count_words(tool) for tool in self.tools]
        lengths = [sum(count.values()) for count in counts]
        mean = sum(lengths) / len(lengths) if lengths else 1.0
        postings: dict[str, list[tuple[int, int]]] = {}
        for number, count in enumerate(counts):
            for word, times in count.items():
                postings.setdefault(word, []).append((number, times))
        self._scores: dict[str, list[tuple[int, float]]] = {}
        for word, posting in postings.items():
            rarity = math.log(1 + (len(counts) - len(posting) + 0.5) / (len(posting) + 0.5))
            self._scores[word] = [
                (number, rarity * times * (K1 + 1) / (times + K1 * (1 - B + B * lengths[number] / mean)))
                for number, times in posting
            ]
        self._vocabulary = sorted(self._scores)

    def search(self, query: str, most: int) -> list[Tool]:
        """Return the best tools, best first; equal scores are ordered by name."""
        totals: dict[int, float] = {}
        for word in dict.fromkeys(split_words(query)):
            for number, score in self._score(word):
                totals[number] = totals.get(number, 0.0) + score
        best = sorted(totals, key=lambda number: (-totals[number], self.tools[number].name))
        return [self.tools[number] for number in best[:most]]

    def _score(self, word: str) -> Iterable[tuple[int, float]]:
        exact = self._scores.get(word)
        if exact is not None or len(word) < MIN_PREFIX_LENGTH:
            return exact or ()
        # `repo` finds `repository`: each tool counts once, by its best word with this prefix.
        best: dict[int, float] = {}
        for longer in self._with_prefix(word):
            for number, score in self._scores[longer]:
                best[number] = max(score / 2, best.get(number, 0.0))
        return best.items()

    def _with_prefix(self, prefix: str) -> Iterator[str]:
        for index in range(bisect_left(self._vocabulary, prefix), len(self._vocabulary)):
            if not self._vocabulary[index].startswith(prefix):
                return
            yield self._vocabulary[index]


def _count_words(tool: Tool) -> Counter[str]:
    count = Counter(split_words(tool.description))
    for word in split_words(tool.name):
        count[word] += NAME_WEIGHT
    properties = tool.schema.get("properties")
    for name in properties if isinstance(properties, dict) else ():
        count.update(split_words(name))
    return count
