"""The input of a tool as it was written down once: what follows from its declarations is found out anew only for odd inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from wieldy.schema.parameters import Parameters

if TYPE_CHECKING:
    from wieldy.schema.flat import Accept


def described(parameters: Parameters) -> dict[str, Any]:
    """What is to be written down."""
    row: dict[str, Any] = {"schema": parameters.schema}
    if parameters.aliases:
        row["aliases"] = parameters.aliases
    if not parameters.by_its_names:
        row["renamed"] = True
    return row


class Written(Parameters):
    """Plain inputs are taken as the written schema says; any other is for the `declared` parameters."""

    __slots__ = ("_declared",)

    def __init__(self, row: Mapping[str, Any], declared: Callable[[], Parameters]) -> None:
        by_its_names = "renamed" not in row
        super().__init__(row["schema"], row.get("aliases", {}), None, self._plain, by_its_names=by_its_names)
        self._declared = declared

    def _plain(self) -> Accept | None:
        from wieldy.schema.flat import flat_object

        return flat_object(self.schema) if self.by_its_names else None

    def _build(self) -> Callable[[Any], Any]:
        return self._declared().accept
