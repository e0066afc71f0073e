"""The journal on disk: contents kept once and compressed, records in order, both made durable by one append.

A folder of numbered files. Only the last one grows; writers take turns by a lock, readers need none.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from wieldy.edit.disk import LOCAL, Disk, pwrite_all, sync_folder
from wieldy.journal.delta import Delta
from wieldy.journal.locks import Held
from wieldy.journal.record import Entry, Settled
from wieldy.journal.segment import SUFFIX, Piece, Segment, Unreadable, segment_path, whole

SEGMENT_BYTES = 16 << 20
SEGMENT_SECONDS = 86_400.0


class Added:
    """A record that is in the file, and on the medium once `sync` has returned. To be closed by whoever began it."""

    def __init__(self, fd: int, disk: Disk) -> None:
        self._fd = fd
        self._disk = disk

    def sync(self) -> None:
        """Wait for the medium."""
        self._disk.sync(self._fd)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)


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
        self._lock = f"{folder}/lock"
        self._disk = disk
        self._segment_bytes = segment_bytes
        self._clock = clock
        self._mutex = threading.RLock()
        self._segments: dict[int, Segment] = {}

    def append(
        self,
        record: Entry | Settled,
        contents: Mapping[bytes, bytes] = MappingProxyType({}),
        deltas: Mapping[bytes, Delta] = MappingProxyType({}),
        *,
        durable: bool,
    ) -> None:
        """Add a record after the contents it names; `deltas` tell some of them as changes of others.
        On failure nothing is added."""
        os.close(self._add(record, contents, deltas, durable=durable))

    def begin(
        self, record: Entry, contents: Mapping[bytes, bytes], deltas: Mapping[bytes, Delta] = MappingProxyType({})
    ) -> Added:
        """Add a record as `append` does, without waiting for the medium."""
        return Added(self._add(record, contents, deltas, durable=False), self._disk)

    def refresh(self) -> dict[str, Entry]:
        """Take in what other processes have added to the last file; the entries in it whose end is not recorded."""
        with self._mutex:
            segment = self._last()
            return {} if segment is None else dict(segment.pending)

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
        with self._mutex, Held((self._lock,)):
            for path in paths:
                with suppress(FileNotFoundError):
                    self._disk.unlink(str(path))
            gone = set(map(str, paths))
            self._segments = {n: segment for n, segment in self._segments.items() if segment.path not in gone}

    def _add(
        self, record: Entry | Settled, contents: Mapping[bytes, bytes], deltas: Mapping[bytes, Delta], *, durable: bool
    ) -> int:
        """Add to the last file, and return its descriptor."""
        foreseen, pieces = self._made_ready(contents, deltas) if contents else (None, {})
        with self._mutex, Held((self._lock,)):
            segment = self._current()
            if contents and segment is not foreseen:
                pieces = segment.pieces(contents, deltas)
            return self._extend(segment, pieces, record, durable=durable)

    def _current(self) -> Segment:
        """The file to append to, its torn end cut off; a new one when it is full or old."""
        segment = self._last()
        if segment is None:
            return self._begin(1)
        if segment.torn:
            fd = self._disk.open(segment.path, os.O_RDWR)
            try:
                self._disk.truncate(fd, segment.end)
            finally:
                os.close(fd)
        old = segment.begun is not None and self._clock() - segment.begun >= SEGMENT_SECONDS
        if segment.end < self._segment_bytes and not old:
            return segment
        following = self._begin(segment.number + 1)
        for entry in list(segment.pending.values()):
            self._carry(entry, segment, following)
        return following

    def _carry(self, entry: Entry, old: Segment, new: Segment) -> None:
        """An entry that is still under way moves on with its contents, for recovery looks at the last file alone."""
        names = {name for path in entry.paths for name in (path.before, path.after) if name is not None}
        pieces: dict[bytes, Piece] = {}
        for digest in map(bytes.fromhex, sorted(names)):
            with suppress(Unreadable):  # recovery will say so
                pieces[digest] = whole(old.content(digest))
        os.close(self._extend(new, pieces, entry, durable=True))

    def _begin(self, number: int) -> Segment:
        segment = self._segments[number] = Segment(self._place, number)
        os.close(self._disk.open(segment.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            sync_folder(self._disk, fd)
        finally:
            os.close(fd)
        return segment

    def _extend(
        self,
        segment: Segment,
        pieces: Mapping[bytes, Piece],
        record: Entry | Settled,
        *,
        durable: bool,
    ) -> int:
        """Add to a file, and return its descriptor."""
        data, places = segment.extended(pieces, record)
        fd = self._disk.open(segment.path, os.O_WRONLY | os.O_NOFOLLOW)
        try:
            pwrite_all(self._disk, fd, data, segment.end)
            if durable:
                self._disk.sync(fd)
        except BaseException:
            with suppress(OSError):
                self._disk.truncate(fd, segment.end)
            os.close(fd)
            raise
        segment.grew(len(data), places, record)
        return fd

    def _made_ready(
        self, contents: Mapping[bytes, bytes], deltas: Mapping[bytes, Delta]
    ) -> tuple[Segment | None, Mapping[bytes, Piece]]:
        """The contents as they would be added to the file that is the last one now, so that nobody has to wait while
        they are compressed."""
        with self._mutex:
            segment = self._segments[max(self._segments)] if self._segments else None
        return segment, {} if segment is None else segment.pieces(contents, deltas)

    def _last(self) -> Segment | None:
        """The last file, read to its end."""
        last = self._segments[max(self._segments)] if self._segments else None
        if last is None or not last.read_on():
            self._segments.clear()  # where there was one, someone removed the journal: begin anew
            numbers = self._numbers()
            if not numbers:
                return None
            last = self._segment(numbers[-1])
            last.read_on()
        while os.access(last.following, os.F_OK):
            last = self._segment(last.number + 1)
            last.read_on()
        return last

    def _segment(self, number: int) -> Segment:
        return self._segments.setdefault(number, Segment(self._place, number))

    def _numbers(self) -> list[int]:
        try:
            names = os.listdir(self.folder)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return []  # whoever wants to write is told when it fails
        return sorted(int(name[: -len(SUFFIX)]) for name in names if name.endswith(SUFFIX))
