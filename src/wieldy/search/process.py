"""Running a search program: its output handed on as it comes, its time bounded, its end certain."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from wieldy.core.record import record
from wieldy.schema.pattern import pattern

CHUNK = 262_144
KEPT_COMPLAINTS = 16_384
_UNREADABLE = pattern(rb"^rg: (.+): .+\(os error \d+\)$", re.MULTILINE)

# Takes a piece of the output; true means: enough, stop the program.
Feed: TypeAlias = Callable[[bytes], bool]


@record
class Ending:
    """How a program ended. `code` is None when it was stopped, by the clock or because there was enough."""

    code: int | None
    out_of_time: bool
    complaint: str
    unreadable: int


async def run(argv: Sequence[str | bytes], *, cwd: str, env: Mapping[str, str], seconds: float, feed: Feed) -> Ending:
    """Run a program without input. It is dead when this returns, also when this is cancelled."""
    complaints = _Complaints()
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
        env=env,
        limit=CHUNK,
        start_new_session=True,
    )
    assert process.stdout is not None and process.stderr is not None
    enough = out_of_time = finished = False
    try:
        async with asyncio.timeout(seconds):
            # Both are awaited to the end, whichever fails: nobody else may read a pipe meanwhile.
            stopped, heard = await asyncio.gather(
                _read(process, process.stdout, feed),
                _drain(process.stderr, complaints.feed),
                return_exceptions=True,
            )
            for result in (stopped, heard):
                if isinstance(result, BaseException):
                    raise result
            enough = stopped is True
            await process.wait()
            finished = True
    except TimeoutError:
        out_of_time = True
    finally:
        if not finished:
            _kill(process)
            # A pipe that is full keeps the loop from seeing its end: read on until nothing comes.
            await _drain(process.stdout, lambda _: False)
            await _drain(process.stderr, complaints.feed)
            await process.wait()
    code = None if enough or out_of_time else process.returncode
    return Ending(code, out_of_time, complaints.text, complaints.unreadable)


def _kill(process: asyncio.subprocess.Process) -> None:
    try:
        process.kill()
    except ProcessLookupError:
        return


async def _read(process: asyncio.subprocess.Process, stream: asyncio.StreamReader, feed: Feed) -> bool:
    """Hand on what comes; whatever ends that before the stream does also ends the program."""
    try:
        return await _drain(stream, feed)
    finally:
        if not stream.at_eof():
            _kill(process)


async def _drain(stream: asyncio.StreamReader, feed: Feed) -> bool:
    while piece := await stream.read(CHUNK):
        if feed(piece):
            return True
    return False


class _Complaints:
    """What a program says on stderr: the beginning in words, the files it could not read in number."""

    def __init__(self) -> None:
        self.kept = b""
        self.unreadable = 0
        self._open_line = b""

    def feed(self, piece: bytes) -> bool:
        self.kept += piece[: KEPT_COMPLAINTS - len(self.kept)]
        whole, newline, self._open_line = (self._open_line + piece).rpartition(b"\n")
        self.unreadable += len(_UNREADABLE.findall(whole)) if newline else 0
        self._open_line = self._open_line[-KEPT_COMPLAINTS:]
        return False

    @property
    def text(self) -> str:
        return self.kept.decode("utf-8", "replace").strip()
