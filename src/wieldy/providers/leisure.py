"""What of an answer may wait a moment when nobody follows it piece by piece.

To wake the listener for each of a thousand pieces takes several times what is done with them.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

LONGEST = 0.1  # seconds that a piece waits for company

_ENDS = (b"\n\n", b"\n\n\r\n")  # of an event; of one that came as a chunk
_NEVER = float("-inf")


class Signs(Struct, frozen=True):
    """How a wire shows that it says more than words: what is `notable` in events, and the fewest bytes of an `ending`.

    An ending is all that has to come, after whole events with nothing notable in them, before an answer or a call in it
    is over. It is known by the form of those events; 1 where they say nothing of it.
    """

    notable: tuple[bytes, ...]
    ending: Callable[[bytes], int]


class Leisure:
    """Looks at what comes over one connection. Only whole events may wait, and none with anything notable in it.

    It is `calm` while there is nothing but such events.
    """

    __slots__ = ("_notable", "_since", "_whole", "calm", "ending", "silence")

    def __init__(self, signs: Signs, silence: float) -> None:
        self.silence = silence
        self.ending = signs.ending
        self.calm = False
        self._notable = signs.notable
        self._since = 0.0
        self._whole = False

    def allows(self, data: bytes, now: float) -> bool:
        """Whether this, which came after all that was looked at before, may wait."""
        before, self._whole = self._whole, data.endswith(_ENDS)
        self.calm = before and self._whole and not self._is_notable(data)
        if self.calm and now - self._since < LONGEST:
            return True
        self._since = now
        return False

    def _is_notable(self, data: bytes) -> bool:
        for sign in self._notable:  # noqa: SIM110 - a pattern of them all takes three times as long
            if sign in data:
                return True
        return False

    def is_over(self) -> None:
        """What comes next has waited already."""
        self._since = _NEVER
