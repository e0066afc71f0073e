"""What a table of programs says about one call: what it reads, writes and fetches, or that nobody can tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from wieldy.core.record import record
from wieldy.shell.scene import Scene
from wieldy.shell.words import Word


@record
class Call:
    """A program's name and arguments, and where it stands."""

    name: str
    args: tuple[Word, ...]
    scene: Scene


@record
class Judgement:
    """The effects of one call. Unless `known`, there may be others; `why` says what is not understood.

    `sweeps`: what it reads it reads whole, folders with all their files, except what is `spared`.
    """

    reads: tuple[Word, ...] = ()
    writes: tuple[Word, ...] = ()
    fetches: tuple[str, ...] = ()
    known: bool = True
    changes: bool = False
    sweeps: bool = False
    spared: tuple[Word, ...] = ()
    why: str = ""

    @property
    def read_only(self) -> bool:
        """Whether the call is proven to change nothing."""
        return self.known and not self.changes and not self.writes and not self.fetches


Judge: TypeAlias = Callable[[Call], Judgement]
NOTHING = Judgement()


def unknown(why: str) -> Judgement:
    """The judgement of a call that is not understood."""
    return Judgement(known=False, why=why)
