"""The last lines that somebody said, within a bound."""

from __future__ import annotations

from collections import deque


class Tail:
    """Takes bytes in any pieces and keeps the last of them."""

    def __init__(self, most: int = 16_384) -> None:
        self._most = most
        self._pieces: deque[bytes] = deque()
        self._held = 0

    def add(self, piece: bytes) -> None:
        """Take a piece; the oldest are dropped."""
        piece = piece[-self._most :]
        self._pieces.append(piece)
        self._held += len(piece)
        while self._held - len(self._pieces[0]) >= self._most:
            self._held -= len(self._pieces.popleft())

    @property
    def text(self) -> str:
        """What is held, from the start of a line on."""
        whole = b"".join(self._pieces)
        if len(whole) > self._most:
            whole = whole[-self._most :].partition(b"\n")[2] or whole[-self._most :]
        return whole.decode("utf-8", "replace")

    def last_lines(self, count: int = 5) -> str:
        """The last few lines that are not blank."""
        lines = [line.rstrip() for line in self.text.splitlines() if line.strip()]
        return "\n".join(line[:500] for line in lines[-count:])
