"""Background shells: start them, read their new output, end them, and limit how many run."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

from msgspec import Struct

from wieldy.core.errors import ToolFailure
from wieldy.core.events import Notice
from wieldy.core.programs import own_python
from wieldy.core.text import truncate_line
from wieldy.core.threads import in_thread
from wieldy.core.workspace import Workspace
from wieldy.shell.running.output import Whole
from wieldy.shell.running.program_output import run_for_output
from wieldy.shell.running.session import CLOSE_TIMEOUT, ShellSession
from wieldy.shell.running.shell import Shell

MAX_REMEMBERED = 64
MAX_WAIT = 600.0
BURST_SECONDS = 0.1

ShellStatus = Literal["running", "exited", "killed"]


class BackgroundOutput(Struct, frozen=True):
    """The new output of a shell and its state. `omitted` counts bytes that are not in `text`."""

    text: str
    status: ShellStatus
    exit_code: int | None
    seconds: float
    total_bytes: int
    omitted: int
    path: str | None
    notes: tuple[str, ...] = ()


class ChangeWatch(Protocol):
    """Looks after the protected files while a command runs and when it has ended; returns notes for the model.

    A sandbox mounts the `mounts` read-only. `check` acts at once and leaves the telling to the next report; with `ask`, the
    person may take back what it did. `drop`: the command will not run. `outlive`: its end is that of the processes it left.
    """

    @property
    def mounts(self) -> tuple[str, ...]: ...

    def drop(self) -> None: ...

    def outlive(self, still_running: Callable[[], Awaitable[object]] | None) -> None: ...

    async def check(self) -> None: ...

    async def report(self, *, ask: bool = False) -> list[str]: ...

    async def finish(self, *, ask: bool = False) -> list[str]: ...


class BackgroundShell:
    """A shell in the background; `position` is how far its output has been read. `notes` are what its watch said last."""

    def __init__(
        self, id: str, shell: Shell, command: str, *, position: int = 0, watch: ChangeWatch | None = None
    ) -> None:
        self.watch = watch
        self.notes: list[str] = []
        self.id = id
        self.shell = shell
        self.command = command
        self.position = position
        self.killed = False
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def pid(self) -> int:
        """The process id of bash, or of the sandbox around it; also the id of its process group."""
        return self.shell.pid

    @property
    def status(self) -> ShellStatus:
        """Running until no more output can come."""
        if not self.finished.done():
            return "running"
        return "killed" if self.killed else "exited"

    @property
    def exit_code(self) -> int | None:
        """The code of bash itself, which may exit before its children."""
        return self.shell.exit.result() if self.shell.exit.done() else None


class BackgroundShells:
    """The background shells of a workspace: `workspace.services.background_shells`."""

    def __init__(self, workspace: Workspace, session: ShellSession) -> None:
        self._workspace = workspace
        self._session = session
        self._shells: dict[str, BackgroundShell] = {}
        self._watchers: set[asyncio.Task[None]] = set()
        self._count = 0

    def all(self) -> tuple[BackgroundShell, ...]:
        """Every remembered shell, oldest first."""
        return tuple(self._shells.values())

    @property
    def has_room(self) -> bool:
        """Whether one more shell may run in the background."""
        limit: int = self._workspace.setting("bash.maxBackground")
        return len(self._running()) < limit

    def _running(self) -> list[str]:
        return [each.id for each in self._shells.values() if not each.finished.done()]

    def require_room(self) -> None:
        """Raise `ToolFailure` if too many shells run in the background."""
        if not self.has_room:
            running = self._running()
            raise ToolFailure(
                f"{len(running)} background shells are running, which is the limit.",
                f"End one with KillShell first: {', '.join(running)}.",
            )

    def adopt(
        self, shell: Shell, command: str, *, position: int = 0, watch: ChangeWatch | None = None
    ) -> BackgroundShell:
        """Move a running shell to the background; the first `position` bytes of its output have been shown."""
        self._count += 1
        shell.in_background = True
        background = BackgroundShell(f"bash_{self._count}", shell, command, position=position, watch=watch)
        self._shells[background.id] = background
        task = asyncio.get_running_loop().create_task(self._watch(background))
        self._watchers.add(task)
        task.add_done_callback(self._watchers.discard)
        ended = [each.id for each in self._shells.values() if each.finished.done()]
        for id in ended[: max(len(self._shells) - MAX_REMEMBERED, 0)]:
            del self._shells[id]
        return background

    def find(self, id: str) -> BackgroundShell:
        """A shell by its id. Raises `ToolFailure` that lists the known ones."""
        if (background := self._shells.get(id)) is not None:
            return background
        known = ", ".join(f"{each.id} ({each.status})" for each in self._shells.values()) or "none"
        raise ToolFailure(f"There is no background shell `{id}`.", f"Known shells: {known}.")

    async def read_output(self, id: str, *, filter: str = "", wait: float = 0.0) -> BackgroundOutput:
        """The output since the last call; waits up to `wait` seconds for (matching) output or the end."""
        background = self.find(id)
        shell = background.shell
        deadline = time.monotonic() + min(max(wait, 0.0), MAX_WAIT)
        while True:
            finished, late = background.finished.done(), time.monotonic() >= deadline
            total = shell.capture.total
            whole: Whole = "all" if finished else "lines" if filter and not late else "characters"
            excerpt = shell.capture.since(background.position, whole)
            text = "\n".join(await matching_lines(filter, excerpt.text)) if filter else excerpt.text
            if text or finished or late:
                break
            await _wait_for_output(background, total, deadline)
        background.position = excerpt.end
        notes, background.notes = background.notes, []
        if background.watch is not None:
            notes += await background.watch.report(ask=True)
        path = str(shell.capture.path) if shell.capture.path else None
        return BackgroundOutput(
            text, background.status, background.exit_code, shell.seconds, total, excerpt.omitted, path, tuple(notes)
        )

    async def kill(self, id: str) -> BackgroundShell:
        """End a shell and everything it started, even after its own exit. Raises `ToolFailure` if a process survives."""
        background = self.find(id)
        background.killed = background.killed or not background.finished.done()
        survivors = await background.shell.terminate()
        if survivors:
            names = ", ".join(f"{process.name} (pid {process.pid})" for process in survivors)
            raise ToolFailure(f"{id} was signalled, but these processes are still there: {names}.")
        await asyncio.wait((background.finished,), timeout=2.0)
        return background

    async def aclose(self) -> None:
        """End all shells."""
        for background in self._shells.values():
            background.killed = background.killed or not background.finished.done()
        await self._session.aclose()
        watchers = list(self._watchers)
        if watchers:
            await asyncio.wait(watchers, timeout=CLOSE_TIMEOUT)
        for task in watchers:
            task.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)

    async def _watch(self, background: BackgroundShell) -> None:
        """Wait for the end of a shell and of its output, then close it and emit a notice."""
        shell = background.shell
        await asyncio.wait((shell.exit,))
        await asyncio.wait((shell.reader.eof,))
        await shell.close()
        if background.watch is not None:
            if await shell.leftovers():
                background.watch.outlive(shell.running)
            background.notes += await background.watch.finish()
        background.finished.set_result(None)
        code = shell.exit.result()
        how = "was ended" if background.killed else f"ended with exit code {code}"
        self._workspace.emit(
            Notice(
                text=f"Background shell {background.id} {how}: {truncate_line(background.command, 80)}",
                data={"shell_id": background.id, "status": background.status, "exit_code": code},
            )
        )


async def _wait_for_output(background: BackgroundShell, total: int, deadline: float) -> None:
    """Return a moment after more output came, at the end of the shell, or at the deadline."""
    shell = background.shell
    if shell.capture.total == total:
        left = max(deadline - time.monotonic(), 0)
        futures = (background.finished, shell.next_output())
        await asyncio.wait(futures, timeout=left, return_when=asyncio.FIRST_COMPLETED)
    if not background.finished.done():
        burst = min(BURST_SECONDS, max(deadline - time.monotonic(), 0))
        await asyncio.wait((background.finished,), timeout=burst)


FILTER_TIMEOUT = 2.0
MAX_LINE_CHARS = 2_000
_FILTER_CODE = """
import json, re, sys
pattern, lines = json.load(sys.stdin)
search = re.compile(pattern).search
json.dump([i for i, line in enumerate(lines) if search(line)], sys.stdout)
"""


async def matching_lines(pattern: str, text: str) -> list[str]:
    """The lines that match. Raises `ToolFailure` if the pattern is invalid or takes too long."""
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as problem:
        raise ToolFailure(f"The filter is no valid regular expression: {problem}.", "Send another, or none.") from None
    lines = text.split("\n")
    shortened = [line[:MAX_LINE_CHARS] for line in lines]
    if _is_linear(pattern):
        indexes = await in_thread(lambda: [index for index, line in enumerate(shortened) if compiled.search(line)])
    else:
        indexes = await _match_in_child(pattern, shortened)
    return [lines[index] for index in indexes]


def _is_linear(pattern: str) -> bool:
    """Whether matching is quick for certain: at most one repetition, and no backreference."""
    unescaped = re.sub(r"\\[^\d]", "", pattern)
    return sum(map(unescaped.count, "*+{?")) <= 1 and "\\" not in unescaped


async def _match_in_child(pattern: str, lines: list[str]) -> list[int]:
    """Match in a child process, which can be killed if the pattern backtracks forever."""
    command = own_python(_FILTER_CODE, installed=False)
    if command is None:
        raise ToolFailure("This filter is too complex to be run safely here.", "Use one with at most one repetition.")
    data = json.dumps([pattern, lines]).encode()
    output = await run_for_output(
        command, data, cwd=os.sep, env=os.environ, tag="WIELDY_FILTER", seconds=FILTER_TIMEOUT
    )
    if output.exit_code != 0:
        raise ToolFailure(f"The filter did not finish within {FILTER_TIMEOUT:g} s.", "Send a simpler pattern.")
    indexes: list[int] = json.loads(output.stdout)
    return indexes
