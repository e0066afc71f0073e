"""One running bash: its output as it arrives, its exit, and the end of everything it started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from wieldy.core.threads import in_thread, run_waiting
from wieldy.shell.running.launch import NO_LIMITS, Limits, StartedProcess
from wieldy.shell.running.output import OutputCapture
from wieldy.shell.running.process_tag import available_mb, last_pid, may_have_descendants, running_processes
from wieldy.shell.running.reaper import (
    GRACE,
    HAS_PROC,
    Process,
    ProcessTree,
    end_tree,
    members,
    memory_mb,
    wait_for_members,
)

READ_BYTES = 1 << 20
READS_PER_EVENT = 8
PROGRESS_INTERVAL = 0.25
HEARTBEAT = 5.0
LEFTOVER_GRACE = 0.25
COUNT_DELAY = 0.05
MAX_COUNT_DELAY = 0.25
STOP_GRACE = 0.3
MAX_PATH_BYTES = 16 << 10

_LONE_AMPERSAND = re.compile(rb"(?<![&>])&(?![&>])")
_DETACHING_WORDS = (b"setsid", b"nohup", b"daemon", b"disown", b"coproc", b"screen", b"tmux")

EndReason = Literal["exited", "timed out", "interrupted"]


class ShellProgress(Struct, frozen=True):
    """How far a command is, for a progress display."""

    seconds: float
    bytes: int
    last_lines: str


class CommandFiles(Struct, frozen=True):
    """The files of one command: where bash reports its last directory, and the script of a very long command.

    Without a `directory_report` it ends where it started.
    """

    directory_report: Path | None
    script: Path | None
    start_directory: str


class CommandResult(Struct, frozen=True):
    """A command that has ended. `code` is None if we ended it; `directory` is where bash ended, if it could report that.

    `text` is all of its output. `stdout` is the same and `stderr` None unless the streams were captured apart.
    """

    reason: EndReason
    code: int | None
    text: str
    stdout: str
    stderr: str | None
    seconds: float
    silent_seconds: float
    total_bytes: int
    omitted: int
    path: str | None
    directory: str | None
    leftovers: tuple[Process, ...]


class OutputReader:
    """Reads pipes into captures: all output into the first, and of several pipes each into one of the others too.

    `eof` is done when no process holds a write end any more.
    """

    def __init__(
        self,
        pipes: Sequence[int],
        captures: Sequence[OutputCapture],
        buffer: bytearray,
        on_bytes: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.eof: asyncio.Future[None] = self._loop.create_future()
        self.capture, *self.streams = captures
        self._on_bytes = on_bytes
        own: Sequence[OutputCapture | None] = self.streams or [None]
        self._open = dict(zip(pipes, own, strict=True))
        self._view = memoryview(buffer)
        for pipe in pipes:
            os.set_blocking(pipe, False)
            self._loop.add_reader(pipe, self._read, pipe)

    def close(self) -> None:
        """Stop reading; processes that still write get SIGPIPE."""
        for pipe in list(self._open):
            self._close_pipe(pipe)

    async def drain(self, *, quiet: float = 0.1, limit: float = 1.0) -> None:
        """Read what is still in the pipe: until EOF, until `quiet` seconds without data, at most `limit` seconds."""
        for pipe in list(self._open):
            self._read(pipe)
        deadline = time.monotonic() + limit
        while not self.eof.done() and (left := deadline - time.monotonic()) > 0:
            before = self.capture.total
            await asyncio.wait((self.eof,), timeout=min(quiet, left))
            if self.capture.total == before:
                return

    def _close_pipe(self, pipe: int) -> None:
        del self._open[pipe]
        self._loop.remove_reader(pipe)
        os.close(pipe)
        if not self._open and not self.eof.done():
            self.eof.set_result(None)

    def _read(self, pipe: int) -> None:
        for _ in range(READS_PER_EVENT):
            if pipe not in self._open:
                return
            try:
                count = os.readv(pipe, (self._view,))
            except BlockingIOError:
                return
            except OSError:
                count = 0
            if not count:
                self._close_pipe(pipe)
                return
            if (own := self._open[pipe]) is not None:
                own.feed(self._view[:count])
            self.capture.feed(self._view[:count])
            self._on_bytes()


class Shell:
    """A started command. `exit` becomes the code of bash itself, even if children still hold its output."""

    def __init__(
        self,
        command: bytes,
        tag: str,
        process: StartedProcess,
        make_reader: Callable[[Callable[[], None]], OutputReader],
        files: CommandFiles,
        *,
        on_exit: Callable[[Shell], None],
        on_close: Callable[[Shell], None],
        limits: Limits = NO_LIMITS,
    ) -> None:
        self.command = command
        self.tag = tag
        self.pid = process.pid
        self.reader = make_reader(self._on_bytes)
        self.capture = self.reader.capture
        self.started = time.monotonic()
        self.last_output = self.started
        self.in_background = False
        self.exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._process = process
        self._files = files
        self._on_exit = on_exit
        self._on_close = on_close
        self._last_progress = self.started
        self._reported_bytes = 0
        self._closed = False
        self._next_output: asyncio.Future[None] | None = None
        self.exceeded: Literal["processes", "memory"] | None = None
        """The limit of all its processes together that it was ended for."""
        self.peak_mb = 0
        """The memory that its largest process used, where that is known."""
        self.limits = limits
        self._counting: asyncio.Task[None] | None = None
        self._watch_exit()
        if (limits.processes or limits.memory_mb) and HAS_PROC:
            self._count_later(COUNT_DELAY, running_processes(), available_mb())

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def silent_seconds(self) -> float:
        """How long it has printed nothing."""
        return time.monotonic() - self.last_output

    async def next_progress(self, deadline: float) -> ShellProgress | None:
        """The next progress, at a bounded rate; None once bash has exited or the deadline (monotonic) has passed."""
        await self._wait_until(min(self._last_progress + PROGRESS_INTERVAL, deadline))
        if self._reported_bytes == self.capture.total:
            await self._wait_until(min(self._last_progress + HEARTBEAT, deadline), self.next_output())
        if self.exit.done() or time.monotonic() >= deadline:
            return None
        self._last_progress, self._reported_bytes = time.monotonic(), self.capture.total
        return ShellProgress(self.seconds, self.capture.total, self.capture.last_lines())

    def next_output(self) -> asyncio.Future[None]:
        """A future that is done at the next output."""
        if self._next_output is None or self._next_output.done():
            self._next_output = asyncio.get_running_loop().create_future()
        return self._next_output

    async def leftovers(self) -> list[Process]:
        """The processes that the command left running. Reads the process table only if something hints at any."""
        if self._counting is not None:
            await asyncio.wait((self._counting,))
        if not self.reader.eof.done():
            return await self.running()
        # A command without a directory report only reads: it hides no process.
        may_hide = self._files.directory_report is not None and may_have_descendants(self.pid, self.tag, last_pid())
        if not (may_hide or _group_exists(self.pid) or may_detach(self.command)):
            return []
        # A process that closed the output may be ending too: a server whose port is taken, the inner half of bubblewrap.
        return await in_thread(wait_for_members, ProcessTree(self.tag), LEFTOVER_GRACE)

    async def running(self) -> list[Process]:
        """The processes of the command that are running."""
        return await in_thread(members, ProcessTree(self.tag))

    async def terminate(self, grace: float = GRACE) -> list[Process]:
        """End bash and everything it started; returns what could not be ended."""
        roots = frozenset() if self.exit.done() else frozenset((self.pid,))
        survivors = await in_thread(end_tree, ProcessTree(self.tag, roots), grace=grace)
        await asyncio.wait((self.exit,), timeout=1.0)
        return survivors

    async def final_directory(self) -> str | None:
        """Where bash ended; None if it could not report that: after `exec`, or with an EXIT trap of the command."""
        if self._files.directory_report is None:
            return self._files.start_directory
        try:
            # The command may have put anything in its place: a pipe would block, a link would lead elsewhere.
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self._files.directory_report, flags)
        except OSError:
            return None
        try:
            path = os.read(descriptor, MAX_PATH_BYTES) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
        finally:
            os.close(descriptor)
        return os.fsdecode(path.removesuffix(b"\n")) or None

    async def close(self) -> None:
        """Stop reading, complete the output file and remove the command's files. May be called twice."""
        if self._closed:
            return
        self._closed = True
        if self._counting is not None:
            await asyncio.wait((self._counting,))
        self.reader.close()
        with contextlib.suppress(OSError):
            if self._files.script:
                self._files.script.unlink()
            if self._files.directory_report:
                self._files.directory_report.unlink()
        self._on_close(self)
        for capture in (self.capture, *self.reader.streams):
            if capture.path:
                await in_thread(capture.finish)

    def _on_bytes(self) -> None:
        self.last_output = time.monotonic()
        if self._next_output is not None and not self._next_output.done():
            self._next_output.set_result(None)

    async def _wait_until(self, moment: float, *events: asyncio.Future[Any]) -> None:
        """Wait until this time, the exit, or one of the events."""
        if not self.exit.done() and (left := moment - time.monotonic()) > 0:
            futures: list[asyncio.Future[Any]] = [self.exit, *events]
            await asyncio.wait(futures, timeout=left, return_when=asyncio.FIRST_COMPLETED)

    def _count_later(self, delay: float, processes: int, memory: int) -> None:
        """Count its processes and their memory from time to time: no system tells when it is too much, and root has no limit
        of its own. The numbers are those of the whole machine before it started."""

        def count() -> None:
            if self.exit.done() or self._closed:
                return
            # What the whole machine has is read at once, and most commands take little of it.
            limits, free = self.limits, available_mb()
            many = limits.processes and running_processes() - processes > limits.processes // 2
            if many or (limits.memory_mb and memory - free > limits.memory_mb // 4):
                self._counting = asyncio.get_running_loop().create_task(again())
            else:
                self._count_later(min(2 * delay, MAX_COUNT_DELAY), processes, max(memory, free))

        async def again() -> None:
            if not await self._end_if_too_many() and not self.exit.done():
                self._count_later(min(2 * delay, MAX_COUNT_DELAY), processes, memory)

        asyncio.get_running_loop().call_later(delay, count)

    async def _end_if_too_many(self) -> bool:
        found = await in_thread(members, ProcessTree(self.tag))
        if 0 < self.limits.processes < len(found):
            self.exceeded = "processes"
        elif 0 < self.limits.memory_mb < memory_mb(found):
            self.exceeded = "memory"
        else:
            return False
        await self.terminate(0)
        return True

    def _watch_exit(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            pidfd = os.pidfd_open(self.pid)
        except (OSError, AttributeError):
            run_waiting(self._wait_in_thread, loop)
            return

        def on_exit() -> None:
            loop.remove_reader(pidfd)
            os.close(pidfd)
            self._exited(self._process.wait())

        loop.add_reader(pidfd, on_exit)

    def _wait_in_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        code = self._process.wait()
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._exited, code)

    def _exited(self, code: int) -> None:
        self.peak_mb = getattr(self._process, "peak_mb", 0)
        if not self.exit.done():
            self.exit.set_result(code)
        self._on_exit(self)


def may_detach(command: bytes) -> bool:
    """Whether a command's text suggests that it leaves something running."""
    if b"&" in command and _LONE_AMPERSAND.search(command):
        return True
    lowered = command.lower()
    return any(word in lowered for word in _DETACHING_WORDS)


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


async def collect_result(shell: Shell) -> CommandResult:
    """The result of a shell that has exited. Its output stays open while children hold it."""
    await shell.reader.drain()
    leftovers = tuple(await shell.leftovers())
    directory = await shell.final_directory()
    if not leftovers or shell.reader.eof.done():
        await shell.close()
    return _result(shell, "exited", directory, leftovers, shell.silent_seconds)


async def stop_and_collect(shell: Shell, reason: EndReason) -> CommandResult:
    """End a shell and everything it started, and return its result."""
    silent_seconds = shell.silent_seconds
    survivors = tuple(await shell.terminate(STOP_GRACE))
    await shell.reader.drain(quiet=0.02, limit=0.1)
    directory = await shell.final_directory()
    await shell.close()
    return _result(shell, reason, directory, survivors, silent_seconds)


def _result(
    shell: Shell, reason: EndReason, directory: str | None, leftovers: tuple[Process, ...], silent_seconds: float
) -> CommandResult:
    excerpt = shell.capture.excerpt()
    path, streams = shell.capture.path, shell.reader.streams
    return CommandResult(
        reason=reason,
        code=shell.exit.result() if reason == "exited" else None,
        text=excerpt.text,
        stdout=streams[0].excerpt().text if streams else excerpt.text,
        stderr=streams[1].excerpt().text if streams else None,
        seconds=shell.seconds,
        silent_seconds=silent_seconds,
        total_bytes=shell.capture.total,
        omitted=excerpt.omitted,
        path=str(path) if path else None,
        directory=directory,
        leftovers=leftovers,
    )
