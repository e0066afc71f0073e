"""The settings of editing: how tolerant matching is, what a foreign change means, how large a file may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from msgspec import Struct

from wieldy.core.errors import ToolFailure
from wieldy.files.editing.matching import TIERS, Tier, tiers

if TYPE_CHECKING:
    from wieldy.core.workspace import Workspace


OnChange: TypeAlias = Literal["merge", "error", "markers"]
ON_CHANGE: tuple[OnChange, ...] = get_args(OnChange)
MAX_BYTES = 50_000_000


class EditSettings(Struct, frozen=True):
    """`edit.tolerance`, `edit.on_external_change` and `edit.max_bytes`."""

    tiers: tuple[Tier, ...] = TIERS
    on_change: OnChange = "merge"
    max_bytes: int = MAX_BYTES

    @staticmethod
    def of(workspace: Workspace) -> EditSettings:
        """The policy a workspace is set to."""
        if "edit" not in workspace.settings:
            return USUAL
        on_change: Any = workspace.setting("edit.on_external_change", "merge")
        if on_change not in ON_CHANGE:
            raise ToolFailure(
                f"The setting edit.on_external_change is {on_change!r}; it can be {', '.join(ON_CHANGE)}."
            )
        tolerance: Any = workspace.setting("edit.tolerance", None)
        return EditSettings(tiers(tolerance), on_change, workspace.setting("edit.max_bytes", MAX_BYTES))


USUAL = EditSettings()
