"""One writer at a time for each file, among threads and processes alike. A lock goes when its holder dies."""

from __future__ import annotations

import fcntl
import hashlib
import os
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

# Paths share a fixed number of lock files: none has to be removed, and two unrelated paths rarely meet.
LOCK_FILES = 256


class Locks:
    """Locks by name, kept as files in a folder. Spellings that differ in case or Unicode form are one name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def holding(self, names: Iterable[str], *, wait: bool = True) -> Iterator[bool]:
        """Hold the locks of all these names at once. Without waiting it yields false, holding none, if one is taken."""
        with ExitStack() as stack:
            for number in sorted(set(map(_number, names))):
                fd = self._open(number)
                stack.callback(os.close, fd)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                except BlockingIOError:
                    stack.close()
                    yield False
                    return
            yield True

    def _open(self, number: int) -> int:
        path = f"{self._folder}/{number:02x}"
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            return os.open(path, flags, 0o600)
        except FileNotFoundError:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(path, flags, 0o600)


def _number(name: str) -> int:
    plain = unicodedata.normalize("NFC", name).casefold()
    return hashlib.blake2b(os.fsencode(plain), digest_size=1).digest()[0] % LOCK_FILES
