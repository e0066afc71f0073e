from __future__ import annotations

import asyncio
import os
import sys
import threading
import tracemalloc
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from wieldy import LocalBackend
from wieldy.files.search.ripgrep import run_process
from wieldy.shell.backends.local import LocalProcess

PYTHON = (sys.executable, "-I", "-S", "-c")


async def start(code: str, feed, seconds: float = 20.0, cwd: str = "/"):
    return await run_process([*PYTHON, code], cwd=cwd, env=os.environ, seconds=seconds, consume=feed)


class OutputCollector:
    """Collects output; `enough` lines stop the program. The programs here print their process id first."""

    def __init__(self, enough: int = 0) -> None:
        self.output = b""
        self.enough = enough
        self.has_output = asyncio.Event()

    def __call__(self, piece: bytes) -> bool:
        self.output += piece
        self.has_output.set()
        return bool(self.enough) and self.output.count(b"\n") >= self.enough

    def program_is_gone(self) -> bool:
        try:
            os.kill(int(self.output.split(b"\n")[0]), 0)
        except ProcessLookupError:
            return True
        return False


PRINT_PID = "import os, time; print(os.getpid(), flush=True)\n"


@pytest.mark.asyncio
async def test_output_comes_in_order_and_the_code_is_kept():
    collector = OutputCollector()
    result = await start("print('a' * 300000); raise SystemExit(1)", collector)
    assert collector.output == b"a" * 300_000 + b"\n"
    assert (result.exit_code, result.timed_out) == (1, False)


@pytest.mark.asyncio
async def test_a_program_that_never_ends_is_stopped_when_there_is_enough():
    collector = OutputCollector(enough=5)
    result = await start(PRINT_PID + "while True: print('y')", collector)
    assert result.exit_code is None and not result.timed_out
    assert collector.program_is_gone()


@pytest.mark.asyncio
async def test_what_came_before_the_time_was_up_is_kept():
    collector = OutputCollector()
    result = await start(PRINT_PID + "print('early', flush=True); time.sleep(60)", collector, seconds=1.0)
    assert result.timed_out and collector.output.endswith(b"early\n")
    assert collector.program_is_gone()


@pytest.mark.asyncio
async def test_cancelling_kills_the_program():
    collector = OutputCollector()
    task = asyncio.ensure_future(start(PRINT_PID + "time.sleep(60)", collector))
    await collector.has_output.wait()
    assert not collector.program_is_gone()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert collector.program_is_gone()


@pytest.mark.asyncio
async def test_a_flood_on_both_pipes_neither_blocks_nor_fills_memory():
    code = "import sys\nfor _ in range(200): sys.stderr.write('e' * 100000 + '\\n'); sys.stdout.write('o' * 100000)"
    size = 0

    def feed(piece: bytes) -> bool:
        nonlocal size
        size += len(piece)
        return False

    tracemalloc.start()
    result = await start(code, feed)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size == 20_000_000 and result.exit_code == 0
    assert peak < 6_000_000
    assert len(result.stderr) <= 16_384


@pytest.mark.asyncio
async def test_a_reader_that_fails_ends_the_program_and_is_heard():
    collector = OutputCollector()

    def feed(piece: bytes) -> bool:
        collector(piece)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await start(PRINT_PID + "while True: print('y')", feed)
    assert collector.program_is_gone()


@pytest.mark.asyncio
async def test_unreadable_files_are_counted_across_pieces():
    code = "import sys\nfor n in range(3000): sys.stderr.write(f'rg: ./f{n}: Permission denied (os error 13)\\n')"
    result = await start(code, lambda piece: False)
    assert result.unreadable == 3000


@pytest.mark.asyncio
async def test_a_program_that_closes_its_output_and_sleeps_is_stopped_by_the_clock():
    result = await start("import os, time; os.close(1); os.close(2); time.sleep(60)", lambda piece: False, seconds=0.5)
    assert result.timed_out


@pytest.mark.asyncio
async def test_a_program_that_has_just_ended_is_stopped_without_a_warning(caplog):
    def enough_when_it_has_ended(piece: bytes) -> bool:
        try:
            while b") Z" not in Path(f"/proc/{int(piece)}/stat").read_bytes():
                pass
        except OSError:
            pass  # it is gone, or there is no /proc
        return True

    for _ in range(80):
        argv = ["sh", "-c", "echo $$; sleep 0.01"]
        await run_process(argv, cwd="/", env=os.environ, seconds=20.0, consume=enough_when_it_has_ended)
    assert caplog.messages == []


class SlowBackend(LocalBackend):
    """A backend that takes its time to start a program, as one behind a network does."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked, self.may_start = threading.Event(), threading.Event()
        self.started: SimpleQueue[LocalProcess] = SimpleQueue()

    def spawn(self, *args: Any, **kwargs: Any) -> LocalProcess:
        self.is_asked.set()
        self.may_start.wait()
        process = super().spawn(*args, **kwargs)
        self.started.put(process)
        return process


@pytest.mark.asyncio
async def test_a_program_that_a_backend_starts_after_a_cancellation_is_ended(tmp_path: Path) -> None:
    backend = SlowBackend()
    argv = [sys.executable, "-c", "import time; time.sleep(20)"]
    search = asyncio.create_task(
        run_process(argv, cwd=str(tmp_path), env={}, seconds=60, consume=lambda piece: True, backend=backend)
    )
    await asyncio.to_thread(backend.is_asked.wait)
    search.cancel()
    await asyncio.sleep(0)
    backend.may_start.set()
    with pytest.raises(asyncio.CancelledError):
        await search
    process = await asyncio.to_thread(backend.started.get)
    assert await asyncio.to_thread(process.wait) < 0


@pytest.mark.asyncio
@pytest.mark.parametrize("cancellations", [1, 2, 5])
async def test_pipes_are_closed_however_often_a_search_is_cancelled_while_it_ends(
    tmp_path: Path, cancellations: int
) -> None:
    """As when a call is abandoned and its session closed, while the killed program still gives its memory back."""
    os.mkfifo(tmp_path / "held")
    collector = OutputCollector()
    # The kill does not reach what holds the pipes open.
    holder = "import os; os.setsid(); open('held').read(1)"
    code = f"{PRINT_PID}import subprocess, sys\nsubprocess.Popen([*{PYTHON!r}, {holder!r}])\ntime.sleep(60)"
    await start("pass", OutputCollector(), cwd=str(tmp_path))  # what a loop keeps open from its first process on
    before = len(os.listdir("/dev/fd"))
    search = asyncio.create_task(start(code, collector, cwd=str(tmp_path)))
    await collector.has_output.wait()
    writer = await asyncio.to_thread(os.open, tmp_path / "held", os.O_WRONLY)
    for _ in range(cancellations):
        search.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not search.done()
    os.write(writer, b"x")
    os.close(writer)
    with pytest.raises(asyncio.CancelledError):
        await search
    assert collector.program_is_gone()
    for _ in range(1000):  # uvloop closes pipes in its next rounds
        if len(os.listdir("/dev/fd")) <= before:
            break
        await asyncio.sleep(0.01)
    assert len(os.listdir("/dev/fd")) <= before
