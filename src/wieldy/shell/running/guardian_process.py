"""The guardian's own life: it waits for the owner's end, then ends every process that carries the mark."""

from __future__ import annotations

import os
import select

CALM_MS = 1_000
"""Until then the processor is wanted by the owner's first commands. Afterwards all that is needed at the end is loaded, as our
own files may be gone by that time."""


def watch(mark: str, owner: str) -> None:
    """Keep watch, and do what is to be done once the owner has left."""
    vigil = Vigil(int(owner))
    left = vigil.owner_left(CALM_MS)
    from wieldy.shell.running.reaper import Tree, end

    if not left:
        vigil.owner_left()
    end(Tree(mark, frozenset(vigil.groups)), limit=30.0)


class Vigil:
    """Waits for the end of a process that holds the other end of our input. `groups` are the shells it told us of."""

    def __init__(self, owner: int) -> None:
        self.groups: set[int] = set()
        self._owner = owner
        self._notes = b""
        self._poll = select.poll()
        self._poll.register(0, select.POLLIN | select.POLLHUP)
        os.set_blocking(0, False)
        try:
            # A fork of the owner may hold the pipe open after its death: the handle on the process itself is not fooled.
            self._poll.register(os.pidfd_open(owner), select.POLLIN)
        except (OSError, AttributeError):
            return

    def owner_left(self, most_ms: int | None = None) -> bool:
        """Wait for it; False when nothing was heard for so long."""
        left = os.getppid() != self._owner
        while not left:
            events = self._poll.poll(most_ms)
            if not events:
                return False
            left = self._hear() or any(descriptor != 0 for descriptor, _ in events) or os.getppid() != self._owner
        self._hear()
        return True

    def _hear(self) -> bool:
        """Take in what was told; whether that was the last of it."""
        over = False
        try:
            while news := os.read(0, 65536):
                self._notes += news
            over = True
        except BlockingIOError:
            pass
        *lines, self._notes = self._notes.split(b"\n")
        for line in lines:
            (self.groups.add if line[:1] == b"+" else self.groups.discard)(int(line[1:]))
        return over
