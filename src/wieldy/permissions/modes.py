"""The modes, as data: what each lets pass without asking and what it forbids."""

from __future__ import annotations

from typing import Literal, TypeAlias, cast

from msgspec import Struct

ModeName: TypeAlias = Literal["default", "acceptEdits", "plan", "bypassPermissions", "dontAsk"]


class Mode(Struct, frozen=True):
    """How what no rule settles is treated."""

    name: ModeName
    says: str
    accepts_edits: bool = False
    accepts_all: bool = False
    reads_only: bool = False
    asks: bool = True


MODES: dict[str, Mode] = {
    mode.name: mode
    for mode in (
        Mode("default", "asks before anything that is not plainly safe"),
        Mode("acceptEdits", "edits inside the workspace need no question", accepts_edits=True),
        Mode("plan", "looks and plans, changes nothing", reads_only=True),
        Mode("bypassPermissions", "asks only where a rule or a guard does", accepts_all=True),
        Mode("dontAsk", "what would be asked is refused", asks=False),
    )
}
ALIASES = {"manual": "default"}


def find_mode(name: str) -> Mode:
    """The mode of this name. Raises `ValueError` that lists the names there are."""
    found = MODES.get(ALIASES.get(name, name))
    if found is not None:
        return found
    from difflib import get_close_matches

    near = get_close_matches(name, MODES, n=1, cutoff=0.5)
    hint = f"; did you mean `{near[0]}`?" if near else ""
    raise ValueError(f"there is no permission mode `{name}`: choose one of {', '.join(MODES)}{hint}")


def next_mode(name: ModeName, *, bypass: bool = False) -> ModeName:
    """The mode after this one when a person cycles through them; bypass is reached only where it was asked for."""
    ring = ["default", "acceptEdits", "plan"] + (["bypassPermissions"] if bypass else [])
    return cast(ModeName, ring[(ring.index(name) + 1) % len(ring)] if name in ring else "default")
