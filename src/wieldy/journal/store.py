"""The journal on disk: contents kept once and compressed, records in order, both made durable by one append.

A folder of numbered files. Only the last one grows; writers take turns by a lock, readers need none.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from wieldy.edit.disk import LOCAL, Disk, pwrite_all, sync_folder
from wieldy.journal.frame import packed
from wieldy.journal.record import Entry, Settled, encode
from wieldy.journal.segment import SUFFIX, Segment, Unreadable, segment_path

SEGMENT_BYTES = 16 << 20
SEGMENT_SECONDS = 86_400.0
FASTEST = 1


class Store:
    """Append and look up. Safe for many threads and processes at once."""

    def __init__(
        self,
        folder: Path,
        *,
        disk: Disk = LOCAL,
        segment_bytes: int = SEGMENT_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = folder
        self._place = str(folder)
        self._disk = disk
        self._segment_bytes = segment_bytes
        self._clock = clock
        self._mutex = threading.RLock()
        self._segments: dict[int, Segment] = {}

    def append(self, record: Entry | Settled, contents: Mapping[bytes, bytes] | None = None, *, durable: bool) -> None:
        """Add a record after the contents it names. On failure nothing is added."""
        wanted = contents or {}
        ready = {digest: _blob(digest, wanted[digest]) for digest in self._unknown(wanted)}
        with self._mutex, self._turn():
            segment = self._current()
            missing = [digest for digest in wanted if digest not in segment.blobs]
            pieces = [ready.get(digest) or _blob(digest, wanted[digest]) for digest in missing]
            pieces.append(packed("entry" if isinstance(record, Entry) else "settled", encode(record)))
            self._extend(segment, b"".join(pieces), durable)

    def refresh(self) -> dict[str, Entry]:
        """Take in what other processes have added to the last file; the entries in it whose end is not recorded."""
        with self._mutex:
            segment = self._last()
            if segment is None:
                return {}
            segment.read_on()
            return dict(segment.pending)

    def records(self) -> Iterator[Entry | Settled]:
        """Everything that is kept, oldest first."""
        with self._mutex:
            segments = [self._segment(number) for number in self._numbers()]
            for segment in segments:
                segment.read_on()
        for segment in segments:
            yield from segment.records

    def content(self, name: str) -> bytes:
        """The content of this name (a digest in hexadecimal)."""
        digest = bytes.fromhex(name)
        with self._mutex:
            for _, segment in sorted(self._segments.items(), reverse=True):
                if digest in segment.blobs:
                    return segment.content(digest)
        raise Unreadable("the journal no longer keeps this content: it was too old or too large")

    def sizes(self) -> list[tuple[Path, int, float]]:
        """The files that are complete, oldest first, with size and time of the last change."""
        paths = [Path(segment_path(self._place, number)) for number in self._numbers()][:-1]
        return [(path, stat.st_size, stat.st_mtime) for path in paths for stat in (path.stat(),)]

    def drop(self, paths: list[Path]) -> None:
        """Forget whole files of the past."""
        with self._mutex, self._turn():
            for path in paths:
                with suppress(FileNotFoundError):
                    self._disk.unlink(str(path))
            gone = set(map(str, paths))
            self._segments = {n: segment for n, segment in self._segments.items() if segment.path not in gone}

    def _current(self) -> Segment:
        """The file to append to, its torn end cut off; a new one when it is full or old."""
        segment = self._last()
        if segment is None:
            return self._begin(1)
        if segment.read_on() > segment.end:
            fd = self._disk.open(segment.path, os.O_RDWR)
            try:
                self._disk.truncate(fd, segment.end)
            finally:
                os.close(fd)
        if segment.end < self._segment_bytes and self._clock() - _begun(segment, self._clock) < SEGMENT_SECONDS:
            return segment
        following = self._begin(segment.number + 1)
        for entry in list(segment.pending.values()):
            self._carry(entry, segment, following)
        return following

    def _carry(self, entry: Entry, old: Segment, new: Segment) -> None:
        """An entry that is still under way moves on with its contents, for recovery looks at the last file alone."""
        names = {name for path in entry.paths for name in (path.before, path.after) if name is not None}
        digests = [bytes.fromhex(name) for name in sorted(names)]
        pieces = [packed("blob", old.packed(digest), digest) for digest in digests if digest in old.blobs]
        self._extend(new, b"".join(pieces) + packed("entry", encode(entry)), True)

    def _begin(self, number: int) -> Segment:
        segment = self._segments[number] = Segment(self._place, number)
        os.close(self._disk.open(segment.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            sync_folder(self._disk, fd)
        finally:
            os.close(fd)
        return segment

    def _extend(self, segment: Segment, data: bytes, durable: bool) -> None:
        fd = self._disk.open(segment.path, os.O_WRONLY | os.O_NOFOLLOW)
        try:
            pwrite_all(self._disk, fd, data, segment.end)
            if durable:
                self._disk.sync(fd)
        except OSError:
            with suppress(OSError):
                self._disk.truncate(fd, segment.end)
            raise
        finally:
            os.close(fd)
        segment.read_on()

    def _unknown(self, digests: Iterable[bytes]) -> list[bytes]:
        with self._mutex:
            segment = self._last()
            return [digest for digest in digests if segment is None or digest not in segment.blobs]

    def _last(self) -> Segment | None:
        if self._segments and not os.path.exists(self._segments[max(self._segments)].path):
            self._segments.clear()  # someone removed the journal: begin anew
        if not self._segments:
            numbers = self._numbers()
            if not numbers:
                return None
            return self._segment(numbers[-1])
        last = self._segments[max(self._segments)]
        while os.path.exists(segment_path(self._place, last.number + 1)):
            last = self._segment(last.number + 1)
        return last

    def _segment(self, number: int) -> Segment:
        return self._segments.setdefault(number, Segment(self._place, number))

    def _numbers(self) -> list[int]:
        try:
            names = os.listdir(self.folder)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return []  # whoever wants to write is told when it fails
        return sorted(int(name[: -len(SUFFIX)]) for name in names if name.endswith(SUFFIX))

    @contextmanager
    def _turn(self) -> Iterator[None]:
        path = f"{self._place}/lock"
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            fd = os.open(path, flags, 0o600)
        except FileNotFoundError:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(path, flags, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


def _blob(digest: bytes, data: bytes) -> bytes:
    return packed("blob", zlib.compress(data, FASTEST), digest)


def _begun(segment: Segment, clock: Callable[[], float]) -> float:
    return next((record.at for record in segment.records if isinstance(record, Entry)), clock())
