"""One flag that says: stop. Threads look at it; whoever is waiting is told."""

from __future__ import annotations

from collections.abc import Callable


class Abort:
    """Set once, never cleared."""

    __slots__ = ("_listeners", "aborted", "reason")

    def __init__(self) -> None:
        self.aborted = False
        self.reason = ""
        self._listeners: dict[int, Callable[[], None]] = {}

    def set(self, reason: str = "interrupted by the user") -> None:
        """Raise the flag and tell the listeners. Later calls change nothing."""
        if self.aborted:
            return
        self.aborted, self.reason = True, reason
        for listener in list(self._listeners.values()):
            listener()
        self._listeners.clear()

    def listen(self, listener: Callable[[], None]) -> int:
        """Have `listener` called when the flag goes up, or now if it is up. Returns what `forget` takes."""
        if self.aborted:
            listener()
        key = id(listener)
        self._listeners[key] = listener
        return key

    def forget(self, key: int) -> None:
        """Stop telling a listener."""
        self._listeners.pop(key, None)
