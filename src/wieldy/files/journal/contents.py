"""Contents on their way into the journal: each is hashed and compressed once, ahead of time where it is known early."""

from __future__ import annotations

import threading
import zlib
from collections import deque

from wieldy.core.threads import run_in_background
from wieldy.files.journal.entries import content_hash

FAST_COMPRESSION = 1
# The new content of an edit is the old one of the next edit of that file, so a few recent ones are remembered.
MAX_REMEMBERED = 4
MAX_REMEMBERED_BYTES = 256 << 10


class JournalContent:
    """One content. Its hash and its compressed form are computed by whichever thread needs them first."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.hash = content_hash(data)
        self._compressed = b""
        self._lock = threading.Lock()

    def compress(self) -> bytes:
        with self._lock:
            self._compressed = self._compressed or zlib.compress(self.data, FAST_COMPRESSION)
            return self._compressed


class RecentContents:
    """The contents that were recorded last, or are about to be, newest first."""

    def __init__(self) -> None:
        self._recent: deque[JournalContent] = deque(maxlen=MAX_REMEMBERED)

    def get(self, data: bytes) -> JournalContent:
        for content in tuple(self._recent):
            if content.data == data:
                return content
        content = JournalContent(data)
        if len(data) <= MAX_REMEMBERED_BYTES:
            self._recent.appendleft(content)
        return content

    def prepare(self, data: bytes) -> None:
        """Hash a content that is likely to be recorded soon, and compress it in the background."""
        if len(data) <= MAX_REMEMBERED_BYTES:
            run_in_background(self.get(data).compress)
