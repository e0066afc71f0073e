"""Reading: a slice from the middle of a gigabyte, and everyday small files, each beside the plainest Python for it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from bench.claim import Claim, best_of

from wieldy.files.editing.read_state import ReadState
from wieldy.files.reading.read_file import OpenFile, Reader, read_page

GIGABYTE = 1 << 30
LINES = 2000
TIMES = 10
LINE = b"2026-11-15 22:00:00 INFO worker: a line of log as they stand in files of this size\n"


def claims() -> Iterator[Claim]:
    """Every claim; the large file is made once and deleted at the end."""
    with tempfile.TemporaryDirectory(prefix="wieldy-bench-") as folder:
        yield from _small(Path(folder))
        yield from _large(Path(folder) / "large.log")


def _small(folder: Path) -> Iterator[Claim]:
    for name, lines, page_bound, bound in (("20 lines", 20, 3.0, 6.0), ("2000 lines", 2000, 2.5, 4.0)):
        path = str(folder / name)
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"line {n} with some text in it, about sixty characters\n" for n in range(lines))
        reader = Reader(1, LINES, "", False, ReadState(), None, lambda: False)

        def bare(path: str = path) -> str:
            with open(path, encoding="utf-8", errors="replace") as file:
                return "".join([f"{number}\t{line}" for number, line in enumerate(file, 1)])

        def ours(path: str = path, reader: Reader = reader) -> object:
            return reader.read(path)

        def page(path: str = path) -> object:
            with OpenFile(path) as file:
                return read_page(file).numbered

        plain, paged, whole = (best / TIMES for best in best_of(150, *map(repeated, (bare, page, ours))))
        detail = f"{paged * 1e6:.0f} µs beside {plain * 1e6:.0f} µs"
        yield Claim(f"a page of {name} beside open + number the lines", paged / plain, page_bound, detail=detail)
        detail = f"{whole * 1e6:.0f} µs beside {plain * 1e6:.0f} µs"
        yield Claim(f"… with type, encoding, digest and read state ({name})", whole / plain, bound, detail=detail)


def repeated(work: Callable[[], object]) -> Callable[[], object]:
    """The work done many times, so that one measure is long enough to be one."""
    return lambda: [work() for _ in range(TIMES)]


def _large(path: Path) -> Iterator[Claim]:
    with open(path, "wb") as file:
        block = LINE * 100_000
        for _ in range(GIGABYTE // len(block)):
            file.write(block)
    middle = os.stat(path).st_size // len(LINE) // 2

    def plain() -> list[bytes]:
        with open(path, "rb") as file:
            return list(islice(file, middle, middle + LINES))

    def ours() -> list[str]:
        with OpenFile(str(path)) as file:
            return read_page(file, first=middle + 1).lines

    assert [line.decode().rstrip("\n") for line in plain()] == ours()
    scan, paged = best_of(3, plain, ours)
    detail = f"{paged:.2f} s beside {scan:.2f} s"
    yield Claim("2000 lines from the middle of 1 GB beside a plain line scan", paged / scan, 1.5, detail=detail)
    grown = _peak(path, middle) - _peak(path, 0)
    yield Claim("memory for the middle of 1 GB beyond its first page", grown, 2.0, unit=" MB")


def _peak(path: Path, skipped: int) -> float:
    """The peak memory, in MB, of a process that reads one page."""
    program = (
        "import resource, sys\n"
        "from wieldy.files.reading.read_file import OpenFile\n"
        "from wieldy.files.reading.read_file import read_page\n"
        "with OpenFile(sys.argv[1]) as file: read_page(file, first=int(sys.argv[2]) + 1)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = [sys.executable, "-c", program, str(path), str(skipped)]
    return float(subprocess.run(run, env=env, capture_output=True, check=True).stdout)
