"""Run a program without input and stream its output to a consumer, bounded in time."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, TypeAlias

from msgspec import Struct

from wieldy.core.backend import Backend, BackendProcess, end_and_reap, spawn_on
from wieldy.core.realpath import open_resolved_folder
from wieldy.core.subprocesses import kill_process, limit_memory
from wieldy.core.threads import in_thread, run_in_background

CHUNK = 262_144
MAX_STDERR = 16_384
_UNREADABLE = re.compile(rb"^rg: (.+): .+\(os error \d+\)$", re.MULTILINE)

# Takes a chunk of output; returns true when it has enough and the program may be stopped.
Consumer: TypeAlias = Callable[[bytes], bool]


class ProcessResult(Struct, frozen=True):
    """How a program ended. `exit_code` is None when it was stopped, by the clock or because the consumer had enough;
    `unreadable` counts the files that ripgrep could not read."""

    exit_code: int | None
    timed_out: bool
    stderr: str
    unreadable: int


async def run_process(
    argv: Sequence[str | bytes],
    *,
    cwd: str,
    env: Mapping[str, str],
    seconds: float,
    consume: Consumer,
    backend: Backend | None = None,
    is_resolved: bool = False,
) -> ProcessResult:
    """Run a program, on a backend if one is given. With `is_resolved`, a symlink on the way to `cwd` is an error; a backend
    cannot check that. The program is dead when this returns, also when this is cancelled; one that a
    backend is about to start then is ended once it has started."""
    errors = _ErrorOutput()
    process = await (
        _start_remote(backend, argv, cwd, env)
        if backend is not None
        else _start_in(argv, cwd, env)
        if is_resolved
        else _start(argv, cwd, env)
    )
    enough = timed_out = finished = False
    try:
        async with asyncio.timeout(seconds):
            # Both are awaited to the end, whichever fails: nobody else may read a pipe meanwhile.
            output, error_output = await asyncio.gather(
                _read_or_kill(process, process.stdout, consume),
                _drain(process.stderr, errors.consume),
                return_exceptions=True,
            )
            for result in (output, error_output):
                if isinstance(result, BaseException):
                    raise result
            enough = output is True
            await process.wait()
            finished = True
    except TimeoutError:
        timed_out = True
    finally:
        if not finished:
            process.kill()
            # A full pipe keeps the loop from seeing its end: read on until nothing comes.
            await _drain(process.stdout, lambda _: False)
            await _drain(process.stderr, errors.consume)
            await process.wait()
    exit_code = None if enough or timed_out else process.returncode
    return ProcessResult(exit_code, timed_out, errors.text, errors.unreadable)


class _Child(Protocol):
    """A running program, of this machine or of a backend."""

    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader

    @property
    def returncode(self) -> int | None: ...

    def kill(self) -> None: ...

    async def wait(self) -> int: ...


class _LocalChild:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None and process.stderr is not None
        self.stdout, self.stderr = process.stdout, process.stderr
        self.process = process

    @property
    def returncode(self) -> int | None:
        return self.process.returncode

    def kill(self) -> None:
        kill_process(self.process)

    async def wait(self) -> int:
        return await self.process.wait()


async def _start_in(argv: Sequence[str | bytes], cwd: str, env: Mapping[str, str]) -> _Child:
    """Start a program in exactly this folder. Raises `PathChanged` where a symlink has come in between."""
    folder = open_resolved_folder(cwd)
    try:
        by_descriptor = f"/proc/self/fd/{folder}"
        return await _start(argv, by_descriptor if os.path.isdir(by_descriptor) else cwd, env)
    finally:
        os.close(folder)


async def _start(argv: Sequence[str | bytes], cwd: str, env: Mapping[str, str]) -> _Child:
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=cwd,
            env=dict(env),  # uvloop takes nothing but a dict
            limit=CHUNK,
            start_new_session=True,
        )
    )
    try:
        process = await asyncio.shield(starting)
    except asyncio.CancelledError:
        # asyncio would lose the process and its pipes.
        await asyncio.wait((starting,))
        if starting.exception() is None:
            child = _LocalChild(starting.result())
            child.kill()
            await child.process.communicate()
        raise
    limit_memory(process.pid)
    return _LocalChild(process)


class _RemoteChild:
    """A program of a backend. Threads wait for it and end it."""

    def __init__(self, process: BackendProcess, stdout: asyncio.StreamReader, stderr: asyncio.StreamReader) -> None:
        self.stdout, self.stderr = stdout, stderr
        self.returncode: int | None = None
        self._process = process
        self._ending: asyncio.Future[None] | None = None

    def kill(self) -> None:
        if self._ending is None:
            self._ending = asyncio.ensure_future(in_thread(self._process.end))

    async def wait(self) -> int:
        if self._ending is not None:
            await asyncio.wait((self._ending,))
            with suppress(OSError):
                self._ending.result()
        self.returncode = await in_thread(self._process.wait)
        return self.returncode


async def _start_remote(backend: Backend, argv: Sequence[str | bytes], cwd: str, env: Mapping[str, str]) -> _Child:
    process = await spawn_on(backend, argv, cwd=cwd, env=env, separate_stderr=True)
    assert process.stderr is not None
    try:
        return _RemoteChild(process, await _open_stream(process.stdout), await _open_stream(process.stderr))
    except BaseException:
        run_in_background(end_and_reap, process)
        raise


async def _open_stream(descriptor: int) -> asyncio.StreamReader:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=CHUNK, loop=loop)
    pipe = open(descriptor, "rb", buffering=0)  # noqa: ASYNC230, SIM115 - the transport closes it
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader, loop=loop), pipe)
    return reader


async def _read_or_kill(process: _Child, stream: asyncio.StreamReader, consume: Consumer) -> bool:
    """Pass on the output; whatever ends that before the stream does also ends the program."""
    try:
        return await _drain(stream, consume)
    finally:
        if not stream.at_eof():
            process.kill()


async def _drain(stream: asyncio.StreamReader, consume: Consumer) -> bool:
    while chunk := await stream.read(CHUNK):
        if consume(chunk):
            return True
    return False


class _ErrorOutput:
    """Keeps the beginning of stderr and counts the files that could not be read."""

    def __init__(self) -> None:
        self.beginning = b""
        self.unreadable = 0
        self._open_line = b""

    def consume(self, chunk: bytes) -> bool:
        self.beginning += chunk[: MAX_STDERR - len(self.beginning)]
        lines, newline, self._open_line = (self._open_line + chunk).rpartition(b"\n")
        self.unreadable += len(_UNREADABLE.findall(lines)) if newline else 0
        self._open_line = self._open_line[-MAX_STDERR:]
        return False

    @property
    def text(self) -> str:
        return self.beginning.decode("utf-8", "replace").strip()
