"""Tells a command's own file effects from those of its redirections, of which a rule for the command says nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from wieldy.core.effect import Effect, Writes
from wieldy.core.record import record

if TYPE_CHECKING:
    from wieldy.shell.analysis import Analysis
    from wieldy.shell.parts import Part


@record
class Split:
    """What a part writes through redirections, and whether it would only read without them."""

    redirected: frozenset[Effect] = frozenset()
    harmless_without: bool = False


NONE = Split()


def split(part: Part, analyse: Callable[[str], Analysis]) -> Split:
    """Judge the part's text, which holds no redirection, and compare what it writes with what the part writes."""
    writes = [effect for effect in part.effects if isinstance(effect, Writes)]
    if not writes:
        return NONE
    if not part.argv:
        return Split(frozenset(writes))
    alone = analyse(part.text)
    own = {effect for effect in alone.effects if isinstance(effect, Writes)}
    harmless = alone.verdict == "read_only" and part.known and not part.via
    if not own <= set(writes):
        # It runs in another folder, so its own files have other names; they come first.
        own = set(writes[: len(own)]) if part.known else set()
    return Split(frozenset(writes) - own, harmless)
