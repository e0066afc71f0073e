"""Which deferred tools have been activated, in order. A session keeps the list and gives it back on resume."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from wieldy.core.workspace import Workspace


class Activations:
    """The activated tools of one workspace: `workspace.resident(Activations)`. Names are only ever appended."""

    def __init__(self, workspace: Workspace | None = None) -> None:
        self._names: dict[str, None] = {}
        self.on_change: Callable[[tuple[str, ...]], None] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, oldest first."""
        return tuple(self._names)

    def activate(self, names: Iterable[str]) -> tuple[str, ...]:
        """Activate tools; returns, and tells the listener, those that were not active before."""
        new = tuple(name for name in dict.fromkeys(names) if name not in self._names)
        self._names.update(dict.fromkeys(new))
        if new and self.on_change is not None:
            self.on_change(new)
        return new

    def restore(self, names: Iterable[str]) -> None:
        """Take back what an earlier run had activated; nobody is told."""
        self._names.update(dict.fromkeys(names))
