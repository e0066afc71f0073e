"""Copies of files as they were before a command, appended to one file in the journal's folder.

Only what a command turns out to have changed goes into the journal's database: writing a copy here takes a tenth of the
time. Each process has a folder of its own, a slot, which the next one takes over together with the copies in it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from wieldy.files.journal.store import ContentUnavailable

SLOTS = 64
# A slot with such a file had a process that died while a command ran: it waits for recovery.
RUNNING_PREFIX = "running-"
LOCK_NAME = "lock"
DIGEST_BYTES = 20
BUFFER_BYTES = 1 << 20


class FileCopies:
    """Contents by offset in one file. Not safe for two threads at once; failures to write are `OSError`s."""

    def __init__(self, folder: Path, lock: int, name: str = "copies") -> None:
        self.folder = folder
        self._lock = lock
        self._fd = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._written = os.fstat(self._fd).st_size
        self._buffer = bytearray()

    @property
    def size(self) -> int:
        return self._written + len(self._buffer)

    def add(self, content: bytes) -> int:
        """Append a content; returns its offset."""
        offset = self.size
        self._buffer += sha256(content).digest()[:DIGEST_BYTES]
        self._buffer += content
        if len(self._buffer) > BUFFER_BYTES:
            self.flush()
        return offset

    def flush(self) -> None:
        """Hand everything to the system, so that it outlives this process."""
        data, self._buffer = self._buffer, bytearray()
        position, self._written = self._written, self._written + len(data)  # an offset is never used twice
        done = 0
        while done < len(data):
            done += os.pwrite(self._fd, data[done:] if done else data, position + done)

    def read(self, offset: int, size: int) -> bytes:
        """The content of `size` bytes at an offset, verified."""
        if offset + DIGEST_BYTES + size > self._written:
            self.flush()
        record = os.pread(self._fd, DIGEST_BYTES + size, offset)
        content = record[DIGEST_BYTES:]
        if len(content) != size or sha256(content).digest()[:DIGEST_BYTES] != record[:DIGEST_BYTES]:
            raise ContentUnavailable("its copy is damaged")
        return content

    def reset(self) -> None:
        """Remove all copies. Only for one who holds no offset."""
        self._buffer, self._written = bytearray(), 0
        os.ftruncate(self._fd, 0)

    def compact(self, sizes: Mapping[int, int]) -> dict[int, int]:
        """Keep only the copies at these offsets, given with their sizes; returns the new offsets of those that are intact."""
        fresh = FileCopies(self.folder, self._lock, "copies.new")
        fresh.reset()
        moved = {}
        for offset, size in sizes.items():
            with suppress(ContentUnavailable):
                moved[offset] = fresh.add(self.read(offset, size))
        fresh.flush()
        os.replace(self.folder / "copies.new", self.folder / "copies")
        os.close(self._fd)
        self._fd, self._written, self._buffer = fresh._fd, fresh._written, bytearray()
        return moved

    def close(self) -> None:
        """Release the slot; the copies stay."""
        os.close(self._fd)
        os.close(self._lock)


def open_slot(folder: Path) -> FileCopies:
    """Take the first slot below a folder that no living process has and that needs no recovery. Raises `OSError`."""
    for number in range(SLOTS):
        slot = folder / str(number)
        slot.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (lock := try_lock(slot)) is None:
            continue
        try:
            if not awaits_recovery(slot):
                return FileCopies(slot, lock)
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)
    raise OSError(f"{SLOTS} processes are at work in this project")


def try_lock(slot: Path) -> int | None:
    """Lock a slot until the descriptor returned is closed; None if a living process has it."""
    lock = os.open(slot / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    except BaseException:
        os.close(lock)
        raise
    return lock


def awaits_recovery(slot: Path) -> bool:
    """Whether a slot that nobody has locked was left by a process that died while a command ran."""
    return any(slot.glob(f"{RUNNING_PREFIX}*"))


def slots(folder: Path) -> Iterator[Path]:
    """The slots that exist below a folder."""
    with suppress(OSError):
        yield from sorted(path for path in folder.iterdir() if path.is_dir())
