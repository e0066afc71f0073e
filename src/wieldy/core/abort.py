"""A flag that stops running work."""

from __future__ import annotations

from collections.abc import Callable


class Abort:
    """Set once, never cleared. Threads poll `aborted`; others register a listener."""

    __slots__ = ("_listeners", "aborted", "reason")

    def __init__(self) -> None:
        self.aborted = False
        self.reason = ""
        self._listeners: dict[int, Callable[[], None]] = {}

    def set(self, reason: str = "interrupted by the user") -> None:
        """Set the flag and call the listeners. Later calls change nothing."""
        if self.aborted:
            return
        self.aborted, self.reason = True, reason
        for listener in list(self._listeners.values()):
            listener()
        self._listeners.clear()

    def listen(self, listener: Callable[[], None]) -> int:
        """Call `listener` when the flag is set, or now if it is. Returns the key for `forget`."""
        if self.aborted:
            listener()
        key = id(listener)
        self._listeners[key] = listener
        return key

    def forget(self, key: int) -> None:
        """Remove a listener."""
        self._listeners.pop(key, None)
