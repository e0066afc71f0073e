"""The names of contents. What one change left at a path is what the next one finds there, and is not hashed again."""

from __future__ import annotations

import threading
from collections import OrderedDict

from wieldy.journal.frame import digest_of

REMEMBERED = 32
LARGEST = 1 << 20


class Names:
    """Hashes contents, and remembers the last one at each of some paths."""

    def __init__(self) -> None:
        self._last: OrderedDict[str, tuple[bytes, bytes]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, path: str, data: bytes) -> bytes:
        """The digest of what is, or will be, at a path."""
        known = self._last.get(path)
        if known is not None and known[0] == data:
            return known[1]
        digest = digest_of(data)
        if len(data) <= LARGEST:
            with self._lock:
                self._last[path] = data, digest
                self._last.move_to_end(path)
                if len(self._last) > REMEMBERED:
                    self._last.popitem(last=False)
        return digest
