"""What the model has seen of each file: which lines, of which content. Edits check it to tell fresh from stale."""

from __future__ import annotations

import os
import threading
import time
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b, file_digest
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from wieldy.core.filesystem import LOCAL_FILES, FileSystem

if TYPE_CHECKING:
    from wieldy.files.detection import Encoding


LineRange: TypeAlias = tuple[int, int]
FileStamp: TypeAlias = tuple[int, int, int, int]

GONE: FileStamp = (0, 0, 0, 0)
MAX_MEMORY = 64 << 20
LARGEST_KEPT = 16 << 20
# Two writes this close together may carry the same time stamp, so a stamp this young proves nothing.
STAMP_GRAIN_NS = 50_000_000
MAX_COMPARED_FILES = 200


class ReadRecord(Struct, frozen=True):
    """One file as the model knows it: the lines shown, or that it is known as a `whole`, and the encoding it was read in.
    `digest` stands for the content once that is no longer held. `told` is the stamp of a change the model was told of."""

    path: str
    stamp: FileStamp
    seen_at: int
    size: int
    digest: bytes | None = None
    line_ranges: tuple[LineRange, ...] = ()
    whole: bool = False
    written_by_us: bool = False
    encoding: Encoding | None = None
    told: FileStamp | None = None

    def shows(self, first: int, last: int) -> bool:
        """Whether these lines were shown, in one piece or in adjoining ones."""
        return any(a <= first and last <= b for a, b in self.line_ranges)

    def knows_all(self, count_lines: Callable[[], int]) -> bool:
        """Whether every line was shown; `count_lines` is called only if it matters."""
        return self.whole or (
            bool(self.line_ranges) and self.line_ranges[0][0] <= 1 and self.unseen(count_lines()) is None
        )

    def unseen(self, lines: int) -> LineRange | None:
        """The first lines of a file of so many lines that were never shown."""
        if self.whole:
            return None
        seen = 0
        for first, last in self.line_ranges:
            if first > seen + 1:
                return seen + 1, first - 1
            seen = max(seen, last)
        return (seen + 1, lines) if seen < lines else None

    def describe_staleness(self) -> str:
        """Since when the content on disk differs, in words."""
        return "after your last change, perhaps by a formatter" if self.written_by_us else "since you read it"


class ReadState:
    """The readings of one workspace, one for each real file however its path was spelled."""

    def __init__(self, *, memory: int = MAX_MEMORY, files: FileSystem = LOCAL_FILES) -> None:
        self.files = files
        self._readings: dict[str, ReadRecord] = {}
        self._spellings: dict[str, list[str]] = {}
        self._contents: OrderedDict[str, bytes] = OrderedDict()
        self._max_memory = memory
        self._memory = 0
        self._lock = threading.Lock()
        self._unsaved: dict[str, None] = {}
        self.undone: dict[str, None] = {}
        """Files that undo has changed and that were forgotten for that; the model has not been told yet."""

    def take_unsaved(self) -> Iterator[tuple[str, ReadRecord | None]]:
        """What has changed here since the last time, by the key of each file; None for one that was forgotten."""
        with self._lock:
            keys, self._unsaved = self._unsaved, {}
            for key in keys:
                known = self._readings.get(key)
                if known is not None and known.digest is None and key in self._contents:
                    known = replace(known, digest=digest_of(self._contents[key]))
                yield key, known

    def restore(self, readings: Iterable[ReadRecord]) -> None:
        """Take over readings of an earlier process, named by their keys. Newer ones that are here win.

        Whether a file is still the same shows, as always, when it is used: by its digest.
        """
        with self._lock:
            for reading in readings:
                if reading.path not in self._readings:
                    self._spellings.setdefault(_fold_case(reading.path), []).append(reading.path)
                    self._readings[reading.path] = reading

    def find_changed(self) -> list[ReadRecord]:
        """The readings whose files have changed or gone since, each change once. Only the newest readings are compared."""
        with self._lock:
            readings = sorted(self._readings.items(), key=lambda item: -item[1].seen_at)[:MAX_COMPARED_FILES]
        changed = []
        for key, known in readings:
            try:
                stat: os.stat_result | None = self.files.stat(key)
            except (FileNotFoundError, NotADirectoryError):
                stat = None
            except OSError:
                continue
            stamp = GONE if stat is None else _stamp(stat)
            if stamp in (known.stamp, known.told):
                continue
            is_same = stat is not None and self._has_content(key, known, stat)
            updated = replace(known, stamp=stamp, told=None) if is_same else replace(known, told=stamp)
            with self._lock:
                if self._readings.get(key) is not known:
                    continue  # read or written meanwhile
                self._readings[key] = updated
                self._unsaved[key] = None
            if not is_same:
                changed.append(updated)
        return changed

    def record_read(
        self,
        path: str,
        *,
        data: bytes | None,
        stat: os.stat_result,
        first: int,
        last: int,
        complete: bool,
        encoding: Encoding | None = None,
    ) -> None:
        """Lines `first` to `last` were shown. `data` is the whole file, or None where it was too large to load; `complete`
        says that the lines shown are all there are."""
        new = _make_reading(path, data, stat)
        with self._lock:
            key = self._key(path, stat)
            known = self._readings.get(key)
            if known is not None and not known.written_by_us and self._matches(key, known, data, stat):
                new = replace(new, line_ranges=known.line_ranges, whole=known.whole)
            new = replace(new, encoding=encoding or (known and known.encoding))
            line_ranges = _merge_ranges((*new.line_ranges, (first, last))) if last >= first else new.line_ranges
            self._keep(key, replace(new, line_ranges=line_ranges, whole=new.whole or complete), data)

    def record_write(
        self, path: str, *, data: bytes, stat: os.stat_result, whole: bool = True, encoding: Encoding | None = None
    ) -> None:
        """Our own tools gave the file this content: it counts as read, though no lines of it were shown. Not `whole` where
        parts of it were never seen. The encoding stays the one it was read in unless another is given."""
        with self._lock:
            key = self._key(path, stat)
            known = self._readings.get(key)
            new = _make_reading(path, data, stat, written_by_us=True, whole=whole)
            self._keep(key, replace(new, encoding=encoding or (known and known.encoding)), data)

    def forget(self, path: str, *, by_undo: bool = False) -> None:
        """Drop what is known of a file that is gone or no longer the same."""
        with self._lock:
            key = self._key(path)
            if self._readings.pop(key, None) is not None:
                if by_undo:
                    self.undone[key] = None
                self._unsaved[key] = None
                self._spellings[_fold_case(key)].remove(key)
                self._drop_content(key)

    def reading(self, path: str) -> ReadRecord | None:
        with self._lock:
            return self._readings.get(self._key(path))

    def content(self, path: str) -> bytes | None:
        """The whole file as it was last seen or written, where it is still held."""
        with self._lock:
            key = self._key(path)
            data = self._contents.get(key)
            if data is not None:
                self._contents.move_to_end(key)
            return data

    def is_current(self, path: str, data: bytes | None, stat: os.stat_result) -> bool:
        """Whether `data`, just read, is the content that was seen. Time stamps count only where no content is known, or
        none (None) was loaded."""
        with self._lock:
            key = self._key(path)
            known = self._readings.get(key)
            return known is not None and self._matches(key, known, data, stat)

    def is_unchanged(self, path: str, first: int, last: int) -> bool:
        """Whether these lines were shown already and the file is still the same."""
        with self._lock:
            key = self._key(path)
            known, content = self._readings.get(key), self._contents.get(key)
        if known is None or not known.shows(first, last):
            return False
        try:
            stat = self.files.stat(path)
            content_known = content is not None or known.digest is not None
            if known.stamp == _stamp(stat) and (not content_known or stat.st_ctime_ns + STAMP_GRAIN_NS < known.seen_at):
                return True
        except OSError:
            return False
        return self._has_content(key, known, stat)

    def _has_content(self, path: str, known: ReadRecord, stat: os.stat_result) -> bool:
        """Whether a file still holds the content that was seen, where that is known."""
        content = self._contents.get(path)
        if stat.st_size != known.size or (content is None and known.digest is None):
            return False
        try:
            if content is not None:
                return self.files.read_start(path, len(content) + 1) == content
            if self.files is not LOCAL_FILES:
                return digest_of(self.files.read_start(path, known.size + 1)) == known.digest
            with open(path, "rb") as file:
                return file_digest(file, lambda: blake2b(digest_size=16)).digest() == known.digest
        except OSError:
            return False

    def _matches(self, key: str, known: ReadRecord, data: bytes | None, stat: os.stat_result) -> bool:
        content = self._contents.get(key)
        if data is None or (content is None and known.digest is None):
            return known.stamp == _stamp(stat)
        if content is not None:
            return content == data
        return known.size == len(data) and known.digest == digest_of(data)

    def _keep(self, key: str, reading: ReadRecord, data: bytes | None) -> None:
        if key not in self._readings:
            self._spellings.setdefault(_fold_case(key), []).append(key)
        self._drop_content(key)
        self._readings[key] = reading
        self._unsaved[key] = None
        self.undone.pop(key, None)
        if data is None:
            return
        self._contents[key] = data
        self._memory += len(data)
        if len(data) > min(LARGEST_KEPT, self._max_memory):
            self._forget_content(key)
        while self._memory > self._max_memory:
            self._forget_content(next(iter(self._contents)))

    def _forget_content(self, key: str) -> None:
        self._readings[key] = replace(self._readings[key], digest=digest_of(self._contents[key]))
        self._drop_content(key)

    def _drop_content(self, key: str) -> None:
        self._memory -= len(self._contents.pop(key, b""))

    def _key(self, path: str, stat: os.stat_result | None = None) -> str:
        """The key of a file: its real path, or a spelling of it that differs only in case or Unicode form and leads to the
        same file. `stat` is the file's own: a path that leads to another one by now is its own key."""
        if path in self._readings:
            return path
        if self.files is not LOCAL_FILES:
            return path  # what a backend reads and writes is named by its real path
        real = _realpath(path, stat)
        if real in self._readings:
            return real
        for other in self._spellings.get(_fold_case(real), ()):
            try:
                if os.path.samefile(real, other):
                    return other
            except OSError:
                continue
        return real


def _realpath(path: str, stat: os.stat_result | None) -> str:
    try:
        real = os.path.realpath(path)
        if stat is None or real == path or os.path.samestat(os.stat(real), stat):
            return real
    except OSError:
        pass
    return path


def digest_of(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def _make_reading(
    path: str, data: bytes | None, stat: os.stat_result, *, written_by_us: bool = False, whole: bool = False
) -> ReadRecord:
    size = stat.st_size if data is None else len(data)
    return ReadRecord(path, _stamp(stat), time.time_ns(), size, written_by_us=written_by_us, whole=whole)


def _stamp(stat: os.stat_result) -> FileStamp:
    return stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino


def _fold_case(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def _merge_ranges(ranges: Iterable[LineRange]) -> tuple[LineRange, ...]:
    merged: list[LineRange] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return tuple(merged)
