"""The permission modes: what each allows without asking and what it forbids."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from wieldy.core.text import did_you_mean

ModeName: TypeAlias = Literal["default", "acceptEdits", "plan", "bypassPermissions", "dontAsk"]


class Mode(Struct, frozen=True):
    """How a mode treats what no rule settles."""

    name: ModeName
    accepts_edits: bool = False
    accepts_all: bool = False
    read_only: bool = False
    asks: bool = True


MODES: dict[str, Mode] = {
    mode.name: mode
    for mode in (
        Mode("default"),  # asks before anything that is not plainly safe
        Mode("acceptEdits", accepts_edits=True),  # allows edits inside the workspace without asking
        Mode("plan", read_only=True),  # reads and plans, changes nothing
        Mode("bypassPermissions", accepts_all=True),  # asks only where a rule or a guard does
        Mode("dontAsk", asks=False),  # refuses what would be asked
    )
}
ALIASES = {"manual": "default"}


def find_mode(name: str) -> Mode:
    """Return the mode of this name. Raises `ValueError` that lists the names there are."""
    mode = MODES.get(ALIASES.get(name, name))
    if mode is not None:
        return mode
    raise ValueError(
        f"there is no permission mode `{name}`: choose one of {', '.join(MODES)}{did_you_mean(name, MODES)}"
    )
