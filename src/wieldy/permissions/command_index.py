"""Command rules filed by their first word or by a piece of text they need, so that a thousand cost one command a few look-ups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache

from wieldy.permissions.command import CommandPattern
from wieldy.permissions.needles import Needles
from wieldy.permissions.rule import Rule

NO_RULES: Sequence[Rule] = ()
# The same few parts, such as `cd src` or `head -20`, return in most commands of a session.
REMEMBERED = 512


class CommandIndex:
    """The command rules of any behaviour."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._exact: dict[str, list[Rule]] = {}
        self._by_word: dict[str, list[tuple[CommandPattern, Rule]]] = {}
        loose: list[tuple[str, tuple[CommandPattern, Rule]]] = []
        for rule in rules:
            if rule.kind != "command":
                continue
            pattern = CommandPattern(rule.specifier or "")
            if pattern.shape == "exact":
                self._exact.setdefault(pattern.literal, []).append(rule)
            elif pattern.first_word is not None:
                self._by_word.setdefault(pattern.first_word, []).append((pattern, rule))
            else:
                loose.append((pattern.needle, (pattern, rule)))
        self._loose = Needles(loose)
        self.covering = lru_cache(maxsize=REMEMBERED)(self._covering)

    @cached_property
    def forbidden_programs(self) -> frozenset[str]:
        """The programs that rules which deny or ask begin with."""
        exact = (literal.split()[:1] for literal, rules in self._exact.items() if _forbids(rules))
        fixed = ([word] for word, filed in self._by_word.items() if _forbids(rule for _, rule in filed))
        return frozenset(word for words in (*exact, *fixed) for word in words)

    @property
    def names_any(self) -> bool:
        """Whether any rule names a command with no pattern in it."""
        return bool(self._exact)

    def exactly(self, text: str) -> Sequence[Rule]:
        """The rules that name this very command, with no pattern in them."""
        return self._exact.get(text.strip(), NO_RULES)

    def _covering(self, text: str) -> Sequence[Rule]:
        """The rules that cover one simple command, those that name it first."""
        words = text.split(maxsplit=1)
        near = [*self._by_word.get(words[0] if words else "", ()), *self._loose.held_by(text)]
        exact = self._exact.get(text, NO_RULES)
        return [*exact, *(rule for pattern, rule in near if pattern.matches(text))] if near else exact


def _forbids(rules: Iterable[Rule]) -> bool:
    return any(rule.behavior != "allow" for rule in rules)
