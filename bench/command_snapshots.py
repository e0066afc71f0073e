"""What it costs to watch a project around a shell command.

By default in 20 000 files. With WIELDY_BENCH_LARGE=1 also in 100 000 and 1 000 000 files and in 10 000 files of 200 KB: trees
that take a minute and some gigabytes to make.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.claim import Claim

COMMANDS = 6
FOLDER_FILES = 50
LARGE_VARIABLE = "WIELDY_BENCH_LARGE"


def claims() -> Iterator[Claim]:
    with tempfile.TemporaryDirectory() as place:
        root = make_tree(Path(place, "tree"), 20_000, 4_000)
        measured = measure(root)
        walks = 2 * bare_walk(str(root))
        yield seconds_claim("the first command in 20 000 files: extra time", measured["first"], 1.0)
        ratio = measured["later"] / walks
        detail = f"{measured['later'] * 1e3:.0f} ms beside {walks * 1e3:.0f} ms"
        yield Claim("a later command in 20 000 files beside two bare walks with stat", ratio, 2, detail=detail)
        yield Claim("a command whose writes are known, in 20 000 files", measured["known"] * 1e3, 50, unit=" ms")
    if os.environ.get(LARGE_VARIABLE):
        yield from large_claims()


def large_claims() -> Iterator[Claim]:
    for label, count, size, in_git, bound in (
        ("100 000 files", 100_000, 2_000, False, 0.5),
        ("100 000 files in git", 100_000, 2_000, True, 0.5),
        ("10 000 files of 200 KB", 10_000, 200_000, False, 0.5),
        ("1 000 000 files", 1_000_000, 0, False, 1.0),
    ):
        with tempfile.TemporaryDirectory() as place:
            root = make_tree(Path(place, "tree"), count, size)
            if in_git:
                commit(root)
            measured = measure(root)
            walks = 2 * bare_walk(str(root))
            detail = f"{measured['uncovered']:.0f} paths named as not covered; two bare walks take {walks:.2f} s"
            yield seconds_claim(f"a command in {label}: extra time", measured["later"], bound, detail)
            yield seconds_claim(f"the first command in {label}: extra time", measured["first"], 2 * bound)
            yield Claim(f"a command in {label}: extra memory", measured["memory"], 100, unit=" MB")


def seconds_claim(text: str, value: float, bound: float, detail: str = "") -> Claim:
    return Claim(text, value, bound, unit=" s", detail=detail)


def make_tree(root: Path, count: int, size: int) -> Path:
    for number in range(count // FOLDER_FILES):
        folder = root / f"package{number % 40}" / f"module{number}"
        folder.mkdir(parents=True)
        for file in range(FOLDER_FILES):
            content = f"{number} {file}\n".encode()
            (folder / f"file_{file}.py").write_bytes(content + b"x" * (size - len(content)))
    return root


def commit(root: Path) -> None:
    git = ("git", "-c", "user.name=bench", "-c", "user.email=bench@example.com", "-c", "gc.auto=0")
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "all")):
        subprocess.run([*git, *arguments], cwd=root, check=True)
    time.sleep(0.2)
    subprocess.run([*git, "status"], cwd=root, check=True, stdout=subprocess.DEVNULL)


def bare_walk(root: str) -> float:
    """The seconds that nothing but listing folders and the stat of each file takes; the best of some."""

    def walk() -> None:
        pending = [root]
        while pending:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    else:
                        entry.stat(follow_symlinks=False)

    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        walk()
        best = min(best, time.perf_counter() - start)
    return best


def measure(root: Path) -> dict[str, float]:
    """Times and memory of a process that does nothing else."""
    command = [sys.executable, "-m", "bench.command_snapshots", str(root)]
    here = Path(__file__).parents[1]
    result: dict[str, float] = json.loads(subprocess.run(command, cwd=here, check=True, capture_output=True).stdout)
    return result


async def measure_here(root: str) -> dict[str, float]:
    from wieldy.engine.workspace_services import open_workspace
    from wieldy.files.journal.command_snapshots import CommandSnapshot

    with tempfile.TemporaryDirectory() as home:
        workspace = open_workspace(root, session_dir=f"{home}/session", env={**os.environ, "WIELDY_HOME": home})
        workspace.services.command_snapshots  # noqa: B018 - its imports do not count
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        times, computing, uncovered = [], [], 0
        for number in range(COMMANDS):
            start, computed = time.perf_counter(), time.process_time()
            snapshot = await CommandSnapshot.take(workspace, None, call_id=str(number), tool="Bash")
            await snapshot.record_changes()
            times.append(time.perf_counter() - start)
            computing.append(time.process_time() - computed)
            uncovered = len(snapshot.uncovered)
        start = time.perf_counter()
        snapshot = await CommandSnapshot.take(workspace, (f"{root}/new",), call_id="known", tool="Bash")
        await snapshot.record_changes()
        known = time.perf_counter() - start
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
        await workspace.aclose()
    return {
        "first": times[0],
        "later": min(times[1:]),
        "computing": min(computing[1:]),
        "known": known,
        "memory": memory / 1024,
        "uncovered": uncovered,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure_here(sys.argv[1]))))
