"""A second place to stand in a project: a folder of its own to be in, and residents of its own where it must not share."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import TypeVar

from wieldy.core.event import Event
from wieldy.core.workspace import Workspace

T = TypeVar("T")


class Annex(Workspace):
    """The same project, settings and residents as `house`, but for the kinds of resident in `own`.

    It begins in the folder where the house stands now; neither moves the other.
    """

    def __init__(
        self,
        house: Workspace,
        *,
        session_dir: str | os.PathLike[str],
        own: Collection[type],
        emit: Callable[[Event], None],
    ) -> None:
        super().__init__(house.root, session_dir=session_dir, settings=house.settings, env=house.env, emit=emit)
        self.cwd = house.cwd
        self.extra_roots = house.extra_roots
        self._house = house
        self._own = frozenset(own)

    def resident(self, kind: type[T]) -> T:
        """The one `kind` of this annex where it has its own, else that of the house."""
        return super().resident(kind) if kind in self._own else self._house.resident(kind)
