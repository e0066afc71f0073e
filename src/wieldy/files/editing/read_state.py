"""What the model has seen of each file: which lines, of which content. Editing leans on it to tell fresh from stale."""

from __future__ import annotations

import os
import threading
import time
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from wieldy.core.workspace import Workspace
    from wieldy.files.editing.document import Document


Lines: TypeAlias = tuple[int, int]

MEMORY = 64 << 20
LARGEST_KEPT = 16 << 20
HASHED_AT_ONCE = 1 << 18
# Two writes this close together may carry the same time stamp, so a stamp this young proves nothing.
STAMP_GRAIN_NS = 50_000_000


class Reading(Struct, frozen=True):
    """One file as the model knows it. `digest` stands for the content once that is no longer held."""

    path: str
    stamp: tuple[int, int, int, int]
    seen_at: int
    size: int
    digest: bytes | None = None
    shown: tuple[Lines, ...] = ()
    whole: bool = False
    ours: bool = False

    def shows(self, first: int, last: int) -> bool:
        """Whether these lines were shown, in one piece or in adjoining ones."""
        return any(a <= first and last <= b for a, b in self.shown)

    def knows_all(self, lines: Callable[[], int]) -> bool:
        """Whether every line was shown; `lines` counts those there are, if it comes to that."""
        return self.whole or (bool(self.shown) and self.shown[0][0] <= 1 and self.unseen(lines()) is None)

    def unseen(self, lines: int) -> Lines | None:
        """The first stretch of a file of so many lines that was never shown."""
        if self.whole:
            return None
        seen = 0
        for first, last in self.shown:
            if first > seen + 1:
                return seen + 1, first - 1
            seen = max(seen, last)
        return (seen + 1, lines) if seen < lines else None


class ReadState:
    """The readings of one workspace, one for each real file however its path was spelled."""

    def __init__(self, workspace: Workspace | None = None, *, memory: int = MEMORY) -> None:
        self._readings: dict[str, Reading] = {}
        self._spellings: dict[str, list[str]] = {}
        self._contents: OrderedDict[str, bytes] = OrderedDict()
        self._documents: dict[str, Document] = {}
        self._memory = memory
        self._held = 0
        self._lock = threading.Lock()

    def saw(
        self,
        path: str,
        *,
        data: bytes | None,
        stat: os.stat_result,
        first: int,
        last: int,
        complete: bool,
        is_real: bool = False,
    ) -> None:
        """Lines `first` to `last` were shown. `data` is the whole file, or None where it was too large to load; `complete`
        says that the lines shown are all there are, `is_real` that no part of the path was a link when it was opened."""
        new = _reading(path, data, stat)
        with self._lock:
            key = self._key(path, stat, is_real=is_real)
            known = self._readings.get(key)
            if known is not None and not known.ours and self._matches(key, known, data, stat):
                new = replace(new, shown=known.shown, whole=known.whole)
            shown = _joined((*new.shown, (first, last))) if last >= first else new.shown
            self._keep(key, replace(new, shown=shown, whole=new.whole or complete), data)

    def wrote(
        self,
        path: str,
        *,
        data: bytes,
        stat: os.stat_result,
        whole: bool = True,
        document: Document | None = None,
    ) -> None:
        """Our own tools gave the file this content: it counts as read, though no lines of it were shown. Not `whole`
        where parts of it were never seen; `document` is what is known of the content."""
        with self._lock:
            key = self._key(path, stat)
            self._keep(key, _reading(path, data, stat, ours=True, whole=whole), data)
            if document is not None and key in self._contents:
                self._documents[key] = document

    def forget(self, path: str) -> None:
        """The file is gone, or what is known of it no longer holds."""
        with self._lock:
            key = self._key(path)
            if self._readings.pop(key, None) is not None:
                self._spellings[_folded(key)].remove(key)
                self._drop(key)

    def reading(self, path: str) -> Reading | None:
        """What is known of a file, if anything."""
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

    def document(self, path: str, data: bytes) -> Document | None:
        """What is known of `data`, just read, if it is the content that was seen and anything is known of it."""
        with self._lock:
            known = self._documents.get(self._key(path))
            return None if known is None or known.data != data else known.afresh()

    def is_current(self, path: str, data: bytes, stat: os.stat_result) -> bool:
        """Whether `data`, just read, is the content that was seen. Time stamps count only where no content is known."""
        with self._lock:
            key = self._key(path)
            known = self._readings.get(key)
            return known is not None and self._matches(key, known, data, stat)

    def unchanged(self, path: str, first: int, last: int) -> bool:
        """Whether these lines were shown already and the file is still the same."""
        with self._lock:
            key = self._key(path)
            known, held = self._readings.get(key), self._contents.get(key)
        if known is None or not known.shows(first, last):
            return False
        try:
            stat = os.stat(path)
            content_known = held is not None or known.digest is not None
            if known.stamp == _stamp(stat) and (not content_known or stat.st_ctime_ns + STAMP_GRAIN_NS < known.seen_at):
                return True
            if not content_known or stat.st_size != known.size:
                return False
            with open(path, "rb") as file:
                if held is not None:
                    return file.read() == held
                return _digest_of_file(file) == known.digest
        except OSError:
            return False

    def _matches(self, key: str, known: Reading, data: bytes | None, stat: os.stat_result) -> bool:
        held = self._contents.get(key)
        if data is None or (held is None and known.digest is None):
            return known.stamp == _stamp(stat)
        if held is not None:
            return held == data
        return known.size == len(data) and known.digest == digest_of(data)

    def _keep(self, key: str, reading: Reading, data: bytes | None) -> None:
        if key not in self._readings:
            self._spellings.setdefault(_folded(key), []).append(key)
        self._drop(key)
        self._readings[key] = reading
        if data is None:
            return
        self._contents[key] = data
        self._held += len(data)
        if len(data) > min(LARGEST_KEPT, self._memory):
            self._forget_content(key)
        while self._held > self._memory:
            self._forget_content(next(iter(self._contents)))

    def _forget_content(self, key: str) -> None:
        self._readings[key] = replace(self._readings[key], digest=digest_of(self._contents[key]))
        self._drop(key)

    def _drop(self, key: str) -> None:
        self._documents.pop(key, None)
        self._held -= len(self._contents.pop(key, b""))

    def _key(self, path: str, stat: os.stat_result | None = None, *, is_real: bool = False) -> str:
        """The name the file is known by: its real path, or a spelling of it that differs only in case or Unicode form
        and leads to the same file. `stat` is the file's own: a path that leads to another one by now keeps its name."""
        if path in self._readings:
            return path
        real = path if is_real else _real(path, stat)
        if real in self._readings:
            return real
        for other in self._spellings.get(_folded(real), ()):
            try:
                if os.path.samefile(real, other):
                    return other
            except OSError:
                continue
        return real


def _real(path: str, stat: os.stat_result | None) -> str:
    try:
        real = os.path.realpath(path)
        if stat is None or real == path or os.path.samestat(os.stat(real), stat):
            return real
    except OSError:
        pass
    return path


def digest_of(data: bytes) -> bytes:
    """A content's fingerprint."""
    return blake2b(data, digest_size=16).digest()


def _digest_of_file(file: BinaryIO) -> bytes:
    going = blake2b(digest_size=16)
    while block := file.read(HASHED_AT_ONCE):
        going.update(block)
    return going.digest()


def _reading(
    path: str, data: bytes | None, stat: os.stat_result, *, ours: bool = False, whole: bool = False
) -> Reading:
    size = stat.st_size if data is None else len(data)
    return Reading(path, _stamp(stat), time.time_ns(), size, ours=ours, whole=whole)


def _stamp(stat: os.stat_result) -> tuple[int, int, int, int]:
    return stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def _joined(ranges: Iterable[Lines]) -> tuple[Lines, ...]:
    joined: list[Lines] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    return tuple(joined)
