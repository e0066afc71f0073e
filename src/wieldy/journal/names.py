"""The names of contents. What one change left at a path is what the next one finds there, and is not hashed again; of what
comes next only that is hashed which lies behind the first difference."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from wieldy.core.record import record
from wieldy.journal.frame import HASH, NAME_SIZE, digest_of

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

REMEMBERED = 32
LARGEST = 1 << 20
STRIDE = 1 << 14


@record
class Named:
    """A content's name, and the states that its hash went through: after each stride, unless the content is large."""

    name: bytes
    states: tuple[Hash, ...]


class Names:
    """Hashes contents, and remembers the last one at each of some paths."""

    def __init__(self) -> None:
        self._last: OrderedDict[str, tuple[bytes, Named]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, path: str, data: bytes) -> Named:
        """The name of what is, or will be, at a path."""
        known = self._last.get(path)
        return known[1] if known is not None and known[0] == data else self._hashed(path, data, ())

    def of_next(self, path: str, data: bytes, last: Named, alike: int) -> Named:
        """The name of what will be there instead of `last`, where the first `alike` bytes stay the same."""
        return self._hashed(path, data, last.states[: alike // STRIDE])

    def _hashed(self, path: str, data: bytes, states: tuple[Hash, ...]) -> Named:
        """Go on from the last of some states, and remember what comes of it."""
        if len(data) > LARGEST:
            return Named(digest_of(data), ())
        going = states[-1].copy() if states else HASH()
        passed, rest = list(states), memoryview(data)[len(states) * STRIDE :]
        for start in range(0, len(rest) - STRIDE + 1, STRIDE):
            going.update(rest[start : start + STRIDE])
            passed.append(going.copy())
        going.update(rest[len(rest) // STRIDE * STRIDE :])
        named = Named(going.digest()[:NAME_SIZE], tuple(passed))
        with self._lock:
            self._last[path] = data, named
            self._last.move_to_end(path)
            if len(self._last) > REMEMBERED:
                self._last.popitem(last=False)
        return named
