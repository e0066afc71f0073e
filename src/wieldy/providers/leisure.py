"""What of an answer may wait a moment when nobody follows it piece by piece.

To wake the listener for each of a thousand pieces takes several times what is done with them.
"""

from __future__ import annotations

import re

LONGEST = 0.1  # seconds that a piece waits for company

_ENDS = (b"\n\n", b"\n\n\r\n")  # of an event; of one that came as a chunk


class Leisure:
    """Looks at what comes over one connection. Only whole events may wait, and none with anything `notable` in it."""

    __slots__ = ("_notable", "_since", "_whole", "silence")

    def __init__(self, notable: re.Pattern[bytes], silence: float) -> None:
        self.silence = silence
        self._notable = notable
        self._since = 0.0
        self._whole = False

    def allows(self, data: bytes, now: float) -> bool:
        """Whether this, which came after all that was looked at before, may wait."""
        before, self._whole = self._whole, data.endswith(_ENDS)
        if before and self._whole and now - self._since < LONGEST and self._notable.search(data) is None:
            return True
        self._since = now
        return False
