"""A change tried before anyone is asked about it: what cannot be made is refused, what can be is kept until it may run."""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import TYPE_CHECKING

from wieldy.core.failure import Refusal, ToolFailure
from wieldy.edit.change import Prepare, prepared
from wieldy.edit.readstate import ReadState
from wieldy.edit.revision import SMALL, Revision

if TYPE_CHECKING:
    from wieldy.core.workspace import Workspace

KEPT = 16


def refusing(prepare: Prepare) -> Prepare:
    """The same, but what cannot be made is refused: nothing has run."""

    def prepare_or_refuse(at_once: bool) -> Revision:
        try:
            return prepare(at_once)
        except ToolFailure as failure:
            raise Refusal("check", failure.message, data=failure.data) from failure

    return prepare_or_refuse


class Rehearsals:
    """The changes of one workspace that were tried and have not run yet.

    One that is taken may be out of date by then; the journal finds that out, because `before` no longer fits.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._state = workspace.resident(ReadState)
        self._roots = workspace.roots
        self._kept: OrderedDict[str, tuple[object, Revision]] = OrderedDict()

    async def rehearse(self, call_id: str, wish: object, prepare: Prepare, real: str) -> None:
        """Try a change. Looks only at files the model knows or may look for: what is elsewhere is not told before
        permission is given. `real` is where the path leads: the file that `prepare` will look at, and no other."""
        if self._state.reading(real) is None and not self._is_inside(real):
            return
        revision = await prepared(refusing(prepare))
        if len(revision.after) + len(revision.before or b"") < SMALL:
            self._kept[call_id] = wish, revision
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)

    def take(self, call_id: str, wish: object) -> Revision | None:
        """The change a call was tried with, if it still asks for the same."""
        kept = self._kept.pop(call_id, None)
        return kept[1] if kept is not None and kept[0] == wish else None

    def _is_inside(self, real: str) -> bool:
        return any(real == root or real.startswith(root.rstrip(os.sep) + os.sep) for root in self._roots)
