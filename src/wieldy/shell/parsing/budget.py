"""How much work one command line may make: whoever waits for an answer must not wait long, whatever was written.

The numbers are shares of one budget, found by measuring; `bench/shell_analysis.py` holds them to it.
"""

from __future__ import annotations

from wieldy.shell.parsing.syntax import Unparsable

MAX_WORK = 1_400
MAX_UNROLLED_WORK = 350
AGAIN, COMPOUND, ANEW = 1, 3, 5


class TooMuch(Unparsable):
    """There is more in a command than can be looked at."""

    def __init__(self) -> None:
        super().__init__("more commands than can be looked at")


class Reading:
    """The commands a parser has come to, nested ones included. One that is there twice will be judged once."""

    __slots__ = ("_sources", "_work")

    def __init__(self) -> None:
        self._work = 0
        self._sources: set[str] = set()

    def compound(self) -> None:
        """Take note of a loop, a group or another command that holds commands."""
        self._spend(COMPOUND)

    def simple(self, source: str) -> None:
        """Take note of a simple command."""
        self._spend(AGAIN if source in self._sources else ANEW)
        self._sources.add(source)

    def _spend(self, work: int) -> None:
        self._work += work
        if self._work > MAX_WORK:
            raise TooMuch
