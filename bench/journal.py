"""What it costs to record every change: a journaled write beside a bare one, and a long journal."""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.claim import Claim, best_of

from wieldy.core.workspace import Workspace
from wieldy.files.apply_edit import write_changes
from wieldy.files.journal.entries import ChangeOrigin, FileChange
from wieldy.files.journal.journal import Journal
from wieldy.files.journal.undo import history, redo, undo
from wieldy.files.writing.commit import commit_writes
from wieldy.files.writing.writers import LocalWriter

ROUNDS = 40
EDITS = 20_000
ORIGIN = ChangeOrigin("bench", "call", "Edit")


def claims() -> Iterator[Claim]:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place, "project")
        root.mkdir()
        yield written("10 KB", 10_000, root)
        yield written("1 MB", 1_000_000, root)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place, "project")
        root.mkdir()
        yield from long_journal(root)


def journal_of(root: Path) -> Journal:
    return Journal(Workspace(root, session_dir=root, env={"WIELDY_HOME": str(root.parent / "home")}))


def start(root: Path) -> None:
    """What a program does with a journal when it starts."""
    journal = journal_of(root)
    journal.recover()
    if journal.retention.is_due():
        journal.retention.sweep()


def written(label: str, size: int, root: Path) -> Claim:
    """A bare atomic write with a synced append of the compressed content is what a journaled write cannot do without."""
    bare, kept, log = root / "bare", root / "kept", root / "log"
    journal = journal_of(root)

    def append(before: bytes, after: bytes) -> None:
        commit_writes((LocalWriter().plan_write(LocalWriter().read_target(str(bare)), after, alone=True),))
        with open(log, "ab") as file:
            file.write(zlib.compress(after, 1))
            file.flush()
            os.fsync(file.fileno())

    def keep(before: bytes, after: bytes) -> None:
        write_changes(journal, [FileChange(str(kept), before, after)], ORIGIN)

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


def long_journal(root: Path) -> Iterator[Claim]:
    """Undo, history and start in a journal of many edits."""
    path = root / "a"
    path.write_bytes(b"0")
    write_changes(journal_of(root), [FileChange(str(path), b"0", b"1")], ORIGIN)
    [short] = best_of(7, lambda: start(root))
    store = journal_of(root).store
    for number in range(1, EDITS):
        store.record([FileChange(str(path), b"%d" % number, b"%d" % (number + 1))], ORIGIN)
    path.write_bytes(b"%d" % EDITS)
    store.close()

    def undo_and_redo() -> None:
        undo(journal_of(root))
        redo(journal_of(root))

    [both] = best_of(7, undo_and_redo)
    yield Claim(f"undo and redo of the last of {EDITS} edits", both * 1e3, 100, unit=" ms")
    [listed] = best_of(7, lambda: history(journal_of(root), 20))
    yield Claim(f"the history of the last 20 of {EDITS} edits", listed * 1e3, 50, unit=" ms")
    [long] = best_of(7, lambda: start(root))
    yield Claim(f"a start beside {EDITS} edits rather than one", long / short, 2, detail=f"{long * 1e3:.2f} ms")
