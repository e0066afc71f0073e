from __future__ import annotations

import asyncio
import os
import sys
import tracemalloc

import pytest

from wieldy.search.process import run_process

PYTHON = (sys.executable, "-I", "-S", "-c")


async def start(code: str, feed, seconds: float = 20.0, cwd: str = "/"):
    return await run_process([*PYTHON, code], cwd=cwd, env=os.environ, seconds=seconds, consume=feed)


class Heard:
    """Keeps what a program says; `enough` lines stop it. The programs here say their process id first."""

    def __init__(self, enough: int = 0) -> None:
        self.said = b""
        self.enough = enough
        self.something = asyncio.Event()

    def __call__(self, piece: bytes) -> bool:
        self.said += piece
        self.something.set()
        return bool(self.enough) and self.said.count(b"\n") >= self.enough

    def program_is_gone(self) -> bool:
        try:
            os.kill(int(self.said.split(b"\n")[0]), 0)
        except ProcessLookupError:
            return True
        return False


SAY_ID = "import os, time; print(os.getpid(), flush=True)\n"


@pytest.mark.asyncio
async def test_output_comes_in_order_and_the_code_is_kept():
    heard = Heard()
    ending = await start("print('a' * 300000); raise SystemExit(1)", heard)
    assert heard.said == b"a" * 300_000 + b"\n"
    assert (ending.exit_code, ending.timed_out) == (1, False)


@pytest.mark.asyncio
async def test_a_program_that_never_ends_is_stopped_when_there_is_enough():
    heard = Heard(enough=5)
    ending = await start(SAY_ID + "while True: print('y')", heard)
    assert ending.exit_code is None and not ending.timed_out
    assert heard.program_is_gone()


@pytest.mark.asyncio
async def test_what_came_before_the_time_was_up_is_kept():
    heard = Heard()
    ending = await start(SAY_ID + "print('early', flush=True); time.sleep(60)", heard, seconds=1.0)
    assert ending.timed_out and heard.said.endswith(b"early\n")
    assert heard.program_is_gone()


@pytest.mark.asyncio
async def test_cancelling_kills_the_program():
    heard = Heard()
    task = asyncio.ensure_future(start(SAY_ID + "time.sleep(60)", heard))
    await heard.something.wait()
    assert not heard.program_is_gone()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert heard.program_is_gone()


@pytest.mark.asyncio
async def test_a_flood_on_both_pipes_neither_blocks_nor_fills_memory():
    code = "import sys\nfor _ in range(200): sys.stderr.write('e' * 100000 + '\\n'); sys.stdout.write('o' * 100000)"
    size = 0

    def feed(piece: bytes) -> bool:
        nonlocal size
        size += len(piece)
        return False

    tracemalloc.start()
    ending = await start(code, feed)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size == 20_000_000 and ending.exit_code == 0
    assert peak < 6_000_000
    assert len(ending.stderr) <= 16_384


@pytest.mark.asyncio
async def test_a_reader_that_fails_ends_the_program_and_is_heard():
    heard = Heard()

    def feed(piece: bytes) -> bool:
        heard(piece)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await start(SAY_ID + "while True: print('y')", feed)
    assert heard.program_is_gone()


@pytest.mark.asyncio
async def test_unreadable_files_are_counted_across_pieces():
    code = "import sys\nfor n in range(3000): sys.stderr.write(f'rg: ./f{n}: Permission denied (os error 13)\\n')"
    ending = await start(code, lambda piece: False)
    assert ending.unreadable == 3000


@pytest.mark.asyncio
async def test_a_program_that_closes_its_output_and_sleeps_is_stopped_by_the_clock():
    ending = await start("import os, time; os.close(1); os.close(2); time.sleep(60)", lambda piece: False, seconds=0.5)
    assert ending.timed_out
