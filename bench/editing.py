"""What an edit costs beside the bare work, what a large file costs in memory, and what a miss with its hint costs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

from bench.claim import Claim, best_awaited, seconds

from wieldy import Toolbox
from wieldy.core.errors import ToolFailure
from wieldy.files.apply_edit import write_changes
from wieldy.files.editing.document import Document
from wieldy.files.editing.matching import Replacement, find_text
from wieldy.files.journal.entries import ChangeOrigin, FileChange
from wieldy.files.journal.journal import Journal

LINES = 2_000
ROUNDS = 400
LARGE = 50_000_000


def claims() -> Iterator[Claim]:
    yield from edit_beside_bare_work()
    yield large_file_memory()
    yield miss_with_hint()


def source(lines: int) -> str:
    return "".join(f"    value_{n} = compute(argument_{n}, {n * 7919 % 10007})\n" for n in range(lines))


def edit_beside_bare_work() -> Iterator[Claim]:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WIELDY_HOME"] = f"{folder}/home"
        root = Path(folder) / "root"
        root.mkdir()
        for name in ("ours", "bare", "journaled"):
            (root / name).write_text(source(LINES) + "marker = 0\n")
        edit, bare, journaled = asyncio.run(_edits(root))
    detail = f"Edit {edit * 1e3:.2f} ms, bare {bare * 1e3:.2f} ms, the journaled write alone {journaled * 1e3:.2f} ms"
    yield Claim(f"Edit of {LINES} lines beside read, replace, fsync and rename", edit / bare, 3, detail=detail)


async def _edits(root: Path) -> list[float]:
    async with Toolbox(root, settings={}, mode="bypassPermissions") as box:
        await box.call("Read", {"file_path": "ours", "limit": 1})
        works = (
            _counting(partial(_edit, box)),
            _counting(partial(_bare, root / "bare")),
            _counting(partial(_journaled, box.workspace.services.journal, root / "journaled")),
        )
        for work in works:
            await work()
        return await best_awaited(ROUNDS, *works)


def _counting(work: Callable[[str, str], Awaitable[object]]) -> Callable[[], Awaitable[object]]:
    """Each run changes the marker line to another number."""
    count = iter(range(1_000_000))
    current = 0

    def run() -> Awaitable[object]:
        nonlocal current
        old, current = current, next(count) + 1
        return work(f"marker = {old}\n", f"marker = {current}\n")

    return run


async def _edit(box: Toolbox, old: str, new: str) -> None:
    result = await box.call("Edit", {"file_path": "ours", "old_string": old, "new_string": new})
    assert not result.is_error, result.text


async def _journaled(journal: Journal, path: Path, old: str, new: str) -> None:
    before = path.read_bytes()
    change = FileChange(str(path), before, before.replace(old.encode(), new.encode()))
    await journal.run(write_changes, journal, [change], ChangeOrigin("bench", "bench", "bench"))


async def _bare(path: Path, old: str, new: str) -> None:
    data = path.read_bytes().replace(old.encode(), new.encode())
    temp = path.with_suffix(".tmp")
    _synced(temp, data)
    os.rename(temp, path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def _synced(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(fd, data)
    os.fsync(fd)
    os.close(fd)


_LARGE_EDIT = """
import asyncio, os, resource, sys
from wieldy import Toolbox

async def main():
    async with Toolbox(sys.argv[1], settings={}, mode="bypassPermissions") as box:
        await box.call("Write", {"file_path": "small", "content": "x"})
        await box.call("Edit", {"file_path": "small", "old_string": "x", "new_string": "y"})
        await box.call("Read", {"file_path": "large", "limit": 5})
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = await box.call("Edit", {"file_path": "large", "old_string": "the needle", "new_string": "the \\u00e9dit"})
        assert not result.is_error, result.text
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)

asyncio.run(main())
"""


def large_file_memory() -> Claim:
    """The growth of the peak memory of a process of its own."""
    line = "some text with an accent é and a rare 😀 to make every character wide in memory\n".encode()
    half = line * (LARGE // len(line) // 2)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        root.mkdir()
        (root / "large").write_bytes((half + b"the needle\n" + half)[:LARGE])
        done = subprocess.run(
            [sys.executable, "-c", _LARGE_EDIT, str(root)],
            env={**os.environ, "WIELDY_HOME": f"{folder}/home", "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
    grown = int(done.stdout)
    return Claim("peak memory of an edit in a 50 MB file", grown / LARGE, 4, "× its size", f"{grown / 1e6:.0f} MB")


def miss_with_hint() -> Claim:
    import rapidfuzz.process

    assert rapidfuzz.process
    document = Document.of(source(5_000).encode())
    wanted = Replacement("    value_2500 = compute(argument_2500, 1)\n    value_2501 = compute(argument_X, 2)\n", "x")

    def miss() -> None:
        try:
            find_text(Document(document.data, document.encoding), wanted)
        except ToolFailure:
            return
        raise AssertionError("it was found")

    took = min(seconds(miss) for _ in range(7))
    return Claim("a miss with its hint in 5000 lines", took * 1e3, 50, " ms")
