"""The journal on disk: contents kept once and compressed, entries in order, both made durable by one append.

A folder of numbered files. Only the last one grows; writers take turns by a lock, readers need none.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from types import MappingProxyType

from wieldy.core.failure import WieldyError
from wieldy.edit.disk import LOCAL, Disk, pwrite_all, sync_folder
from wieldy.journal.delta import Delta
from wieldy.journal.locks import Held
from wieldy.journal.record import Entry, Settlement
from wieldy.journal.segment import MARKS, SUFFIX, UNDER_WAY, Piece, Segment, Unreadable, segment_path, whole

SEGMENT_BYTES = 16 << 20
ROOM_BYTES = 1 << 16
LEAST_ROOM = 1 << 12
SEGMENT_SECONDS = 86_400.0


class Unsettled(WieldyError):
    """There are entries whose writers may have died."""


class Added:
    """An entry that is in the file, and on the medium once `sync` has returned. To be closed by whoever began it."""

    def __init__(self, store: Store, segment: Segment, name: str, fd: int) -> None:
        self._store = store
        self._segment = segment
        self._name = name
        self._fd = fd

    def sync(self) -> None:
        """Wait for the medium."""
        self._store.disk.sync_content(self._fd)

    def settle(self, how: Settlement) -> None:
        """Write down how it ended. No medium is waited for."""
        self._store.settle(self._name, how, self._segment, self._fd)

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
        self.disk = disk
        self._segment_bytes = segment_bytes
        self._clock = clock
        self._mutex = threading.RLock()
        self._segments: dict[int, Segment] = {}

    def append(
        self, entry: Entry, contents: Mapping[bytes, bytes], deltas: Mapping[bytes, Delta] = MappingProxyType({})
    ) -> None:
        """Add an entry of what is already done, after the contents it names, and wait for the medium; `deltas` tell some
        contents as changes of others. On failure nothing is added."""
        self._add(entry, contents, deltas, MARKS["done"], durable=True).close()

    def begin(
        self,
        entry: Entry,
        contents: Mapping[bytes, bytes],
        deltas: Mapping[bytes, Delta] = MappingProxyType({}),
        beside: Container[str] | None = None,
    ) -> Added:
        """Add an entry of what is about to be done in the same way, without waiting for the medium. With `beside`, raises
        `Unsettled` where others than these are under way."""
        return self._add(entry, contents, deltas, UNDER_WAY, beside=beside)

    def settle(self, name: str, how: Settlement, segment: Segment, fd: int) -> None:
        """Write down how an entry ended that was added to a file, which is open."""
        with self._mutex:
            self._mark(segment, fd, name, how)
        if os.access(segment.following, os.F_OK):
            self.settle_last(name, how)  # whoever made that file may have taken the entry along before
        else:
            self._make_room(segment, fd)

    def settle_last(self, name: str, how: Settlement) -> None:
        """Write down how an entry ended that is under way, to judge by the last file."""
        with self._mutex, Held((self._lock,)):
            if (last := self._last(os.O_RDWR)) is None:
                return
            segment, fd = last
            try:
                self._mark(segment, fd, name, how)
            finally:
                os.close(fd)

    def refresh(self) -> dict[str, Entry]:
        """Take in what other processes have written to the last file; the entries in it that have not ended."""
        with self._mutex:
            try:
                last = self._last(os.O_RDONLY)
            except PermissionError:
                return {}  # whoever wants to write is told when it fails
            if last is None:
                return {}
            os.close(last[1])
            return last[0].pending

    def entries(self) -> Iterator[tuple[Entry, Settlement | None]]:
        """Everything that is kept, oldest first, and how each ended."""
        with self._mutex:
            segments = map(self._read, self._numbers())
            return chain.from_iterable([list(segment.entries) for segment in segments])

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
                    self.disk.unlink(str(path))
            gone = set(map(str, paths))
            self._segments = {n: segment for n, segment in self._segments.items() if segment.path not in gone}

    def _add(
        self,
        entry: Entry,
        contents: Mapping[bytes, bytes],
        deltas: Mapping[bytes, Delta],
        mark: bytes,
        *,
        durable: bool = False,
        beside: Container[str] | None = None,
    ) -> Added:
        foreseen, pieces = self._made_ready(contents, deltas)
        with self._mutex, Held((self._lock,)):
            segment, fd = self._current()
            try:
                if beside is not None and any(name not in beside for name in segment.under_way):
                    raise Unsettled
                if segment is not foreseen:
                    pieces = segment.pieces(contents, deltas)
                self._extend(segment, fd, pieces, entry, mark, durable=durable)
            except BaseException:
                os.close(fd)
                raise
            return Added(self, segment, entry.id, fd)

    def _current(self) -> tuple[Segment, int]:
        """The file to append to, open, its torn end cut off; a new one when it is full or old."""
        last = self._last(os.O_RDWR)
        if last is None:
            return self._begin(1)
        segment, fd = last
        try:
            if segment.torn:
                self._cut(segment, fd)
            old = segment.begun is not None and self._clock() - segment.begun >= SEGMENT_SECONDS
            return self._followed(segment, fd) if old or segment.end >= self._segment_bytes else last
        except BaseException:
            os.close(fd)
            raise

    def _followed(self, segment: Segment, fd: int) -> tuple[Segment, int]:
        """The file that comes after one, which is closed; what is still under way moves on with its contents."""
        following, new = self._begin(segment.number + 1)
        try:
            segment.read_from(fd)  # from now on, who ends an entry sees that there is another file
            for entry in segment.pending.values():
                self._carry(entry, segment, following, new)
            with suppress(OSError):
                self._cut(segment, fd)  # nobody will need the room in it
        except BaseException:
            os.close(new)
            raise
        os.close(fd)
        return following, new

    def _cut(self, segment: Segment, fd: int) -> None:
        """Have a file end with its last frame."""
        self.disk.truncate(fd, segment.end)
        segment.torn = False

    def _carry(self, entry: Entry, old: Segment, new: Segment, fd: int) -> None:
        """Recovery looks at the last file alone: it must have all that it takes."""
        names = {name for path in entry.paths for name in (path.before, path.after) if name is not None}
        pieces: dict[bytes, Piece] = {}
        for digest in map(bytes.fromhex, sorted(names)):
            with suppress(Unreadable):  # recovery will say so
                pieces[digest] = whole(old.content(digest))
        self._extend(new, fd, pieces, entry, UNDER_WAY, durable=True)

    def _begin(self, number: int) -> tuple[Segment, int]:
        segment = self._segments[number] = Segment(self._place, number)
        new = self.disk.open(segment.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                sync_folder(self.disk, folder)
            finally:
                os.close(folder)
        except BaseException:
            os.close(new)
            raise
        return segment, new

    def _extend(
        self, segment: Segment, fd: int, pieces: Mapping[bytes, Piece], entry: Entry, mark: bytes, *, durable: bool
    ) -> None:
        addition = segment.extended(pieces, entry, mark)
        try:
            pwrite_all(self.disk, fd, addition.data, segment.end)
            if durable:
                self.disk.sync_content(fd)
        except BaseException:
            with suppress(OSError):
                self.disk.truncate(fd, segment.end)
            raise
        segment.grew(addition, entry, mark)

    def _mark(self, segment: Segment, fd: int, name: str, how: Settlement) -> None:
        at = segment.mark_of(name)
        if at is not None:
            pwrite_all(self.disk, fd, MARKS[how], at)
            segment.ended(name, how)

    def _make_room(self, segment: Segment, fd: int) -> None:
        """Have room for some entries more, so that it takes less to sync them. Made when one has ended, for nobody waits
        for the medium then, and nothing that is under way can lack the space."""
        if segment.size >= segment.end + LEAST_ROOM:
            return
        with self._mutex, Held((self._lock,)):
            if segment.read_from(fd) and not segment.torn and segment.size < segment.end + LEAST_ROOM:
                self.disk.lengthen(fd, segment.size, segment.end + ROOM_BYTES - segment.size)

    def _made_ready(
        self, contents: Mapping[bytes, bytes], deltas: Mapping[bytes, Delta]
    ) -> tuple[Segment | None, Mapping[bytes, Piece]]:
        """The contents as they would be added to the file that is the last one now, so that nobody has to wait while
        they are compressed."""
        with self._mutex:
            segment = self._segments[max(self._segments)] if self._segments else None
        return segment, {} if segment is None else segment.pieces(contents, deltas)

    def _last(self, flags: int) -> tuple[Segment, int] | None:
        """The last file, read to its end, and a descriptor of it, which is the caller's to close."""
        last = self._segments[max(self._segments)] if self._segments else None
        fd = None if last is None else self._reached(last, flags)
        if last is None or fd is None:
            self._segments.clear()  # where there was one, someone removed the journal: begin anew
            numbers = self._numbers()
            if not numbers:
                return None
            last = self._segments[numbers[-1]] = Segment(self._place, numbers[-1])
            fd = self._reached(last, flags)
        while fd is not None and os.access(last.following, os.F_OK):
            os.close(fd)
            last = self._segments[last.number + 1] = Segment(self._place, last.number + 1)
            fd = self._reached(last, flags)
        return None if fd is None else (last, fd)

    def _reached(self, segment: Segment, flags: int) -> int | None:
        """A descriptor of a file, which was read to its end; None where it is gone, or another one than was known."""
        opened = os.open if flags == os.O_RDONLY else self.disk.open
        try:
            fd = opened(segment.path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            if segment.read_from(fd):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        return None

    def _read(self, number: int) -> Segment:
        """The file of a number, read to its end; another one than was known by that number is read anew."""
        known = self._segments.get(number)
        if known is None or not known.read_on():
            known = self._segments[number] = Segment(self._place, number)
            known.read_on()
        return known

    def _numbers(self) -> list[int]:
        try:
            names = os.listdir(self.folder)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return []  # whoever wants to write is told when it fails
        return sorted(int(name[: -len(SUFFIX)]) for name in names if name.endswith(SUFFIX))
