"""`wieldy -p` as a program, beside the least an agent can be: start to first request, hello, and fifty tool turns."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from bench.claim import Claim

ROUNDS = 15
TURNS = 50
HERE = Path(__file__).parent


class Mock:
    """The mock model as a process of its own."""

    def __init__(self, folder: Path, turns: int, tool: str = "Read", input: str | None = None) -> None:
        self.turns = turns
        self.stamps = folder / f"stamps{turns}"
        port = folder / f"port{turns}"
        command = [
            sys.executable,
            "-S",
            str(HERE / "agents" / "mock_model.py"),
            str(port),
            str(self.stamps),
            str(turns),
        ]
        self.process = subprocess.Popen([*command, tool, input or f'{{"file_path": "{folder}/project/a.txt"}}'])
        while not port.exists() or not port.read_text():
            time.sleep(0.01)
        self.url = f"http://127.0.0.1:{port.read_text()}"

    def requests(self) -> list[tuple[float, float]]:
        """When each request had arrived, and when its answer was gone; and forget them."""
        for _ in range(200):  # who has the whole answer may be gone before the model has written down when it was sent
            told = [line.split() for line in self.stamps.read_text().splitlines()]
            rows = [(float(row[0]), float(row[1])) for row in told if len(row) == 3]
            if len(rows) > self.turns:
                break
            time.sleep(0.01)
        os.truncate(self.stamps, 0)
        return rows


@contextmanager
def mocks() -> Iterator[tuple[Path, Mock, Mock]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "project").mkdir()
        (folder / "project" / "a.txt").write_text("a line\n" * 20)
        hello, tools = Mock(folder, 0), Mock(folder, TURNS)
        try:
            yield folder / "project", hello, tools
        finally:
            for mock in (hello, tools):
                mock.process.kill()
                mock.process.wait()


def run(command: list[str], folder: Path, mock: Mock) -> tuple[float, float, list[float]]:
    """Start to first request, start to end, and the gaps between an answer's end and the next request."""
    started = time.time()
    subprocess.run(
        command, cwd=folder, env=surroundings(folder), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True
    )
    wall = time.time() - started
    stamps = mock.requests()
    gaps = [later[0] - earlier[1] for earlier, later in pairwise(stamps)]
    return stamps[0][0] - started, wall, gaps


MEASURED = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)
"""


def peak(command: list[str], folder: Path) -> float:
    """Megabytes a command takes at most; from a small parent, because a child's count begins with its parent's."""
    measuring = [sys.executable, "-S", "-c", MEASURED, *command]
    done = subprocess.run(measuring, cwd=folder, env=surroundings(folder), capture_output=True, text=True, check=True)
    return float(done.stdout)


def surroundings(folder: Path) -> dict[str, str]:
    env = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), "WIELDY_HOME": str(folder.parent / "home")}
    return {**env, "ANTHROPIC_API_KEY": "none", "PYTHONPATH": str(HERE.parent / "src")}


def ours(mock: Mock) -> list[str]:
    model = ["--model", "anthropic/m", "--base-url", mock.url]
    return [sys.executable, "-m", "wieldy", "-p", "hello", *model]


def bare(mock: Mock) -> list[str]:
    return [sys.executable, "-S", str(HERE / "agents" / "bare_agent.py"), mock.url, "hello"]


def claims() -> Iterator[Claim]:
    with mocks() as (folder, hello, tools):
        first, wall, floor_first, floor_wall = [], [], [], []
        for _ in range(ROUNDS):
            told = run(ours(hello), folder, hello)
            first.append(told[0])
            wall.append(told[1])
            told = run(bare(hello), folder, hello)
            floor_first.append(told[0])
            floor_wall.append(told[1])
        mean, floor_mean = [], []
        for _ in range(3):
            mean.append(_mean(run(ours(tools), folder, tools)[2]))
            floor_mean.append(_mean(run(bare(tools), folder, tools)[2]))
        hello_memory, memory = peak(ours(hello), folder), peak(ours(tools), folder)
    beside = f"{min(floor_first) * 1e3:.0f} ms of the bare agent"
    yield Claim("start to first request", min(first) * 1e3, 120, unit=" ms", detail=beside)
    ratio = min(first) / min(floor_first)
    yield Claim("start to first request beside the bare agent", ratio, 5.5, detail=f"{min(first) * 1e3:.0f} ms")
    beside = f"{min(floor_wall) * 1e3:.0f} ms of the bare agent"
    yield Claim("hello, start to end", min(wall) * 1e3, 150, unit=" ms", detail=beside)
    ratio = min(wall) / min(floor_wall)
    yield Claim("hello, start to end, beside the bare agent", ratio, 6, detail=f"{min(wall) * 1e3:.0f} ms")
    extra = (min(mean) - min(floor_mean)) * 1e3
    detail = f"{min(mean) * 1e3:.2f} ms a turn beside {min(floor_mean) * 1e3:.2f} ms"
    yield Claim("our part of a read turn, of fifty", extra, 2.0, unit=" ms", detail=detail)
    yield Claim("memory of hello", hello_memory, 45, unit=" MB")
    yield Claim("memory of fifty turns", memory, 45, unit=" MB")


def _mean(gaps: list[float]) -> float:
    return sum(gaps) / len(gaps)
