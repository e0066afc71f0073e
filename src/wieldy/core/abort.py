"""One flag that says: stop. Threads and callbacks look at it; coroutines are cancelled as well."""

from __future__ import annotations

from collections.abc import Callable


class Abort:
    """Set once, never cleared; whoever registered is told."""

    __slots__ = ("_listeners", "aborted", "reason")

    def __init__(self) -> None:
        self.aborted = False
        self.reason = ""
        self._listeners: list[Callable[[], None]] = []

    def set(self, reason: str = "interrupted by the user") -> None:
        """Raise the flag. Later calls change nothing."""
        if self.aborted:
            return
        self.aborted, self.reason = True, reason
        for listener in self._listeners:
            listener()
        self._listeners.clear()

    def on_abort(self, listener: Callable[[], None]) -> None:
        """Call `listener` when the flag goes up, or now if it is up."""
        if self.aborted:
            listener()
        else:
            self._listeners.append(listener)
