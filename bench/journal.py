"""What it costs to keep every change: a journaled write beside the bare atomic one, in syncs, in time and in space."""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.claim import Claim, best_of

from wieldy.core.workspace import Workspace
from wieldy.files.journal.entries import Change
from wieldy.files.journal.journal import Journal, Origin
from wieldy.files.writing.commit import write_atomically
from wieldy.files.writing.disk import LOCAL_DISK, Disk
from wieldy.testing.chaos import WatchedDisk

ROUNDS = 40
ORIGIN = Origin("bench", "call", "Edit")


def claims() -> Iterator[Claim]:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place, "project")
        root.mkdir()
        yield syncs(root)
        yield written("10 KB", 10_000, root)
        yield written("1 MB", 1_000_000, root)
        yield started(root)
        yield grown(root)


def journal_of(root: Path, disk: Disk = LOCAL_DISK) -> Journal:
    return Journal(Workspace(root, session_dir=root, env={"WIELDY_HOME": str(root.parent / "home")}), disk=disk)


def syncs(root: Path) -> Claim:
    path = root / "counted"
    path.write_bytes(b"old")
    journal_of(root).writer.apply([Change(str(path), b"old", b"older")], ORIGIN)
    bare: list[str] = []
    kept: list[str] = []
    write_atomically(str(path), b"new", disk=WatchedDisk(bare.append))
    journal_of(root, WatchedDisk(kept.append)).writer.apply([Change(str(path), b"new", b"newer")], ORIGIN)
    counts = kept.count("sync"), bare.count("sync")
    text = "more syncs for a journaled write than for a bare one"
    return Claim(text, counts[0] - counts[1], 1, unit="", detail=f"{counts[0]} beside {counts[1]}")


def written(label: str, size: int, root: Path) -> Claim:
    """Three syncs and one compression of the new content are what a journaled write cannot do without."""
    bare, kept, log = root / "bare", root / "kept", root / "log"
    journal = journal_of(root)

    def append(before: bytes, after: bytes) -> None:
        write_atomically(str(bare), after)
        with open(log, "ab") as file:
            file.write(zlib.compress(after, 1))
            file.flush()
            os.fsync(file.fileno())

    def keep(before: bytes, after: bytes) -> None:
        journal.writer.apply([Change(str(kept), before, after)], ORIGIN)

    least, most = best_of(ROUNDS, rewriting(bare, append, size), rewriting(kept, keep, size))
    text = f"a journaled write of {label} beside a bare one and a synced append of its compressed content"
    return Claim(text, most / least, 2, detail=f"{most * 1e3:.2f} ms beside {least * 1e3:.2f} ms")


def rewriting(path: Path, write: Callable[[bytes, bytes], object], size: int) -> Callable[[], object]:
    """Work that gives a file new content each time."""
    path.write_bytes(b"first")
    state = [b"first"]

    def work() -> None:
        before, state[0] = state[0], os.urandom(size // 2).hex().encode()
        write(before, state[0])

    return work


def started(root: Path) -> Claim:
    """Finding out whether a crash left something, beside reading the journal's last file once."""
    last = max(journal_of(root).store.folder.glob("*.journal"))
    opened, read = best_of(7, lambda: journal_of(root).start_now(), last.read_bytes)
    detail = f"{opened * 1e3:.2f} ms beside {read * 1e3:.2f} ms, {last.stat().st_size / 1e6:.1f} MB"
    return Claim("starting on a journal beside reading its last file whole", opened / read, 2, detail=detail)


def grown(root: Path) -> Claim:
    """What small edits add to the journal, the whole copies now and then included."""
    edits, path = 66, root / "grown"
    content = os.urandom(50_000).hex().encode()
    path.write_bytes(content)
    journal = journal_of(root)
    size = _size(journal)
    for number in range(edits):
        before, content = content, content[:40_000] + b"edit %6d" % number + content[40_011:]
        journal.writer.apply([Change(str(path), before, content)], ORIGIN)
    each = (_size(journal) - size) / edits
    text = "what the journal grows by with a small edit beside the file's size"
    return Claim(text, each / len(content), 0.05, detail=f"{each / 1e3:.1f} KB beside {len(content) / 1e3:.0f} KB")


def _size(journal: Journal) -> int:
    return sum(file.stat().st_size for file in journal.store.folder.glob("*.journal"))
