"""One bash at work: its output as it comes, its end, and the end of everything it started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
import subprocess
import threading
import time
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from wieldy.core.threads import in_thread
from wieldy.shell.running.output import Capture
from wieldy.shell.running.process_tag import last_born, may_have_left
from wieldy.shell.running.reaper import GRACE, Process, Tree, end, lasting, members

BUFFER = 1 << 20
READS_AT_ONCE = 8
QUIET = 0.1
LIMIT = 1.0


class Drain:
    """The read end of a pipe. `ended` comes true when nobody holds the other end any more."""

    def __init__(self, descriptor: int, capture: Capture, buffer: bytearray) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self.capture = capture
        self._view = memoryview(buffer)
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._read)

    def close(self) -> None:
        """Stop reading. Whoever still writes gets SIGPIPE."""
        if self._descriptor < 0:
            return
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = -1
        if not self.ended.done():
            self.ended.set_result(None)

    async def settle(self, *, quiet: float = QUIET, limit: float = LIMIT) -> None:
        """Take what is still on its way: until its end, until `quiet` seconds of nothing, for at most `limit` seconds."""
        self._read()
        deadline = time.monotonic() + limit
        while not self.ended.done() and (left := deadline - time.monotonic()) > 0:
            before = self.capture.total
            await asyncio.wait((self.ended,), timeout=min(quiet, left))
            if self.capture.total == before:
                return

    def _read(self) -> None:
        for _ in range(READS_AT_ONCE):
            if self._descriptor < 0:
                return
            try:
                count = os.readv(self._descriptor, (self._view,))
            except BlockingIOError:
                return
            except OSError:
                count = 0
            if not count:
                self.close()
                return
            self.capture.feed(self._view[:count])


PULSE = 0.25
HEARTBEAT = 5.0
TO_END = 0.25
LONGEST_PATH = 16 << 10

_LONE_AMPERSAND = re.compile(rb"(?<![&>])&(?![&>])")
_DETACHERS = (b"setsid", b"nohup", b"daemon", b"disown", b"coproc", b"screen", b"tmux")


class Pulse(Struct, frozen=True):
    """How far a command is, for a person who watches."""

    seconds: float
    bytes: int
    last_lines: str


class Files(Struct, frozen=True):
    """What serves one command: where bash says where it ended, and the text of a command too long to be an argument.

    Without a `report` it ends where it started.
    """

    report: Path | None
    script: Path | None
    started_in: str


class Keeper(Protocol):
    """Who started a shell and wants to know about it."""

    def ended(self, shell: Shell) -> None:
        """Bash has exited."""
        ...

    def closed(self, shell: Shell) -> None:
        """Nothing more will come."""
        ...


class Shell:
    """A started command. `exit` is its code once bash itself has ended, whoever still holds its output."""

    def __init__(
        self,
        command: bytes,
        mark: str,
        process: subprocess.Popen[bytes],
        drain: Drain,
        files: Files,
        keeper: Keeper,
    ) -> None:
        self.command = command
        self.mark = mark
        self.pid = process.pid
        self.capture = drain.capture
        self.drain = drain
        self.started = time.monotonic()
        self.last_output = self.started
        self.in_background = False
        self.exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._process = process
        self._files = files
        self._keeper = keeper
        self._pulsed = self.started
        self._shown_bytes = 0
        self._closed = False
        self._fresh: asyncio.Future[None] | None = None
        self._awaited: asyncio.Future[None] | None = None
        drain.capture.on_bytes = self._on_bytes
        self._watch_exit()

    @property
    def seconds(self) -> float:
        """How long it has been running."""
        return time.monotonic() - self.started

    @property
    def silent_seconds(self) -> float:
        """How long it has printed nothing."""
        return time.monotonic() - self.last_output

    async def pulse(self, deadline: float) -> Pulse | None:
        """The next sign of life, at a bounded rate; None once bash has ended or the deadline (monotonic) has passed."""
        await self._exit_by(min(self._pulsed + PULSE, deadline))
        if self._shown_bytes == self.capture.total:
            await self._news_by(min(self._pulsed + HEARTBEAT, deadline))
        if self.exit.done() or time.monotonic() >= deadline:
            return None
        self._pulsed, self._shown_bytes = time.monotonic(), self.capture.total
        return Pulse(self.seconds, self.capture.total, self.capture.last_lines())

    async def leftovers(self) -> list[Process]:
        """Processes the command left running. The process table is read only when there is a sign of any."""
        if not self.drain.ended.done():
            return await in_thread(members, Tree(self.mark))
        if not (_group_lives(self.pid) or may_detach(self.command) or self._may_have_hidden()):
            return []
        # Who has let go of the output may be ending too: a server whose port is taken, the inner half of bubblewrap.
        return await in_thread(lasting, Tree(self.mark), TO_END)

    async def end(self, grace: float = GRACE) -> list[Process]:
        """End bash and all it started, gently, then by force; returns what could not be ended."""
        roots = frozenset() if self.exit.done() else frozenset((self.pid,))
        survivors = await in_thread(end, Tree(self.mark, roots), grace=grace)
        await asyncio.wait((self.exit,), timeout=1.0)
        return survivors

    def final_directory(self) -> str | None:
        """Where bash stood when it ended; None where it could not say: after `exec`, or with an EXIT trap of the command."""
        if self._files.report is None:
            return self._files.started_in
        try:
            # The command may have put anything in its place: a pipe would block, a link would lead elsewhere.
            descriptor = os.open(self._files.report, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            said = os.read(descriptor, LONGEST_PATH) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
        finally:
            os.close(descriptor)
        return os.fsdecode(said.removesuffix(b"\n")) or None

    async def wind_up(self) -> None:
        """Let go of the output, complete the file that keeps it, remove the files that served the command. Once is enough."""
        if self._closed:
            return
        self._closed = True
        self.drain.close()
        with contextlib.suppress(OSError):
            if self._files.script:
                self._files.script.unlink()
            if self._files.report:
                self._files.report.unlink()
        self._keeper.closed(self)
        if self.capture.path:
            await in_thread(self.capture.finish)

    def fresh(self) -> asyncio.Future[None]:
        """A future of the next bytes."""
        if self._fresh is None or self._fresh.done():
            self._fresh = asyncio.get_running_loop().create_future()
        return self._fresh

    def _may_have_hidden(self) -> bool:
        """Whether there may be one that nothing else tells of. Who is not asked where it ended only reads: it hides nothing."""
        return self._files.report is not None and may_have_left(self.pid, self.mark, last_born())

    def _on_bytes(self) -> None:
        self.last_output = time.monotonic()
        if self._fresh is not None:
            _come_true(self._fresh)

    async def _exit_by(self, moment: float) -> None:
        if self.exit.done() or (left := moment - time.monotonic()) <= 0:
            return
        loop = asyncio.get_running_loop()
        # The exit itself ends this wait: by way of `asyncio.wait` it would take one more turn of the loop.
        self._awaited = loop.create_future()
        timer = loop.call_later(left, _come_true, self._awaited)
        try:
            await self._awaited
        finally:
            timer.cancel()

    async def _news_by(self, moment: float) -> None:
        if self.exit.done() or (left := moment - time.monotonic()) <= 0:
            return
        await asyncio.wait((self.exit, self.fresh()), timeout=left, return_when=asyncio.FIRST_COMPLETED)

    def _watch_exit(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            handle = os.pidfd_open(self.pid)
        except (OSError, AttributeError):
            threading.Thread(target=self._wait_in_thread, args=(loop,), daemon=True).start()
            return

        def on_exit() -> None:
            loop.remove_reader(handle)
            os.close(handle)
            self._ended(self._process.wait())

        loop.add_reader(handle, on_exit)

    def _wait_in_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        code = self._process.wait()
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._ended, code)

    def _ended(self, code: int) -> None:
        if not self.exit.done():
            self.exit.set_result(code)
        if self._awaited is not None:
            _come_true(self._awaited)
        self._keeper.ended(self)


def _come_true(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def may_detach(command: bytes) -> bool:
    """Whether a command speaks of leaving something running."""
    if b"&" in command and _LONE_AMPERSAND.search(command):
        return True
    lowered = command.lower()
    for word in _DETACHERS:  # noqa: SIM110 - a generator would take longer than all of it
        if word in lowered:
            return True
    return False


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


HURRIED = 0.3

How = Literal["exited", "timed out", "interrupted"]


class Ran(Struct, frozen=True):
    """A command that is over. `code` is None where we ended it; `directory` is where bash stood, if it could say."""

    how: How
    code: int | None
    text: str
    seconds: float
    silent_seconds: float
    total_bytes: int
    omitted: int
    path: str | None
    directory: str | None
    leftovers: tuple[Process, ...]


async def finished(shell: Shell) -> Ran:
    """The account of a shell that has exited by itself. Its output stays open while children of it hold the other end."""
    await shell.drain.settle()
    leftovers = tuple(await shell.leftovers())
    directory = shell.final_directory()
    if not leftovers or shell.drain.ended.done():
        await shell.wind_up()
    return _account(shell, "exited", directory, leftovers)


async def cut_short(shell: Shell, how: How) -> Ran:
    """End a shell and all it started, and give account of it."""
    silent = shell.silent_seconds
    survivors = tuple(await shell.end(HURRIED))
    await shell.drain.settle(quiet=0.02, limit=0.1)
    directory = shell.final_directory()
    await shell.wind_up()
    return _account(shell, how, directory, survivors, silent)


def _account(
    shell: Shell, how: How, directory: str | None, leftovers: tuple[Process, ...], silent: float | None = None
) -> Ran:
    excerpt = shell.capture.excerpt()
    path = shell.capture.path
    return Ran(
        how=how,
        code=shell.exit.result() if how == "exited" else None,
        text=excerpt.text,
        seconds=shell.seconds,
        silent_seconds=shell.silent_seconds if silent is None else silent,
        total_bytes=shell.capture.total,
        omitted=excerpt.omitted,
        path=str(path) if path else None,
        directory=directory,
        leftovers=leftovers,
    )
