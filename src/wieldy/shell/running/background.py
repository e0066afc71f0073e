"""Shells that go on while other calls are made: started, looked at, ended, and never more of them than agreed."""

from __future__ import annotations

import asyncio
import time
from typing import Literal

from msgspec import Struct

from wieldy.core.errors import ToolFailure
from wieldy.core.events import Notice
from wieldy.core.truncate import truncate_line
from wieldy.core.workspace import Workspace
from wieldy.shell.running.launch import Confine
from wieldy.shell.running.output import Whole, matching_lines
from wieldy.shell.running.shell import Shell
from wieldy.shell.running.shells import LAST_WAIT, ShellSession

MOST_RUNNING = 32
MOST_REMEMBERED = 64
LONGEST_WAIT = 600.0
BURST = 0.1

Status = Literal["running", "exited", "killed"]


class Look(Struct, frozen=True):
    """What a shell has printed since the last look, and how it stands. `omitted` counts bytes not in `text`."""

    text: str
    status: Status
    exit_code: int | None
    seconds: float
    total_bytes: int
    omitted: int
    path: str | None


class BackgroundShell:
    """One shell in the background, and how far it has been read."""

    def __init__(self, id: str, shell: Shell, command: str, *, seen: int = 0) -> None:
        self.id = id
        self.shell = shell
        self.command = command
        self.seen = seen
        self.killed = False
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def status(self) -> Status:
        """Running until nothing more can come from it."""
        if not self.over.done():
            return "running"
        return "killed" if self.killed else "exited"

    @property
    def exit_code(self) -> int | None:
        """The code of bash itself, which may be known while children of it still run."""
        return self.shell.exit.result() if self.shell.exit.done() else None


class BackgroundShells:
    """The background shells of a workspace: `workspace.service(BackgroundShells)`."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._session = workspace.service(ShellSession)
        self._shells: dict[str, BackgroundShell] = {}
        self._attending: set[asyncio.Task[None]] = set()
        self._count = 0

    def all(self) -> tuple[BackgroundShell, ...]:
        """Every shell that is remembered, oldest first."""
        return tuple(self._shells.values())

    def start(self, command: str, *, cwd: str, confine: Confine | None = None) -> BackgroundShell:
        """Start a command in the background. Raises `ToolFailure` when too many run already."""
        self._make_room()
        return self.adopt(self._session.start(command, cwd=cwd, confine=confine), command)

    def adopt(self, shell: Shell, command: str, *, seen: int = 0) -> BackgroundShell:
        """Go on with a shell that is already running; the first `seen` bytes of its output have been shown."""
        self._count += 1
        shell.in_background = True
        background = BackgroundShell(f"bash_{self._count}", shell, command, seen=seen)
        self._shells[background.id] = background
        task = asyncio.get_running_loop().create_task(self._attend(background))
        self._attending.add(task)
        task.add_done_callback(self._attending.discard)
        self._forget_the_oldest()
        return background

    def find(self, id: str) -> BackgroundShell:
        """A shell by its id. Raises `ToolFailure` that names those there are."""
        if (found := self._shells.get(id)) is not None:
            return found
        known = ", ".join(f"{each.id} ({each.status})" for each in self._shells.values()) or "none"
        raise ToolFailure(f"There is no background shell `{id}`. Known shells: {known}.")

    async def look(self, id: str, *, filter: str | None = None, wait: float = 0.0) -> Look:
        """New output since the last look; waits up to `wait` seconds for some (that matches), or for the end."""
        background = self.find(id)
        shell = background.shell
        deadline = time.monotonic() + min(max(wait, 0.0), LONGEST_WAIT)
        while True:
            over, late = background.over.done(), time.monotonic() >= deadline
            printed = shell.capture.total
            whole: Whole = "all" if over else "lines" if filter and not late else "characters"
            excerpt = shell.capture.since(background.seen, whole)
            text = "\n".join(await matching_lines(filter, excerpt.text)) if filter else excerpt.text
            if text or over or late:
                break
            await _news(background, printed, deadline)
        background.seen = excerpt.upto
        path = shell.capture.path
        return Look(
            text,
            background.status,
            background.exit_code,
            shell.seconds,
            printed,
            excerpt.omitted,
            str(path) if path else None,
        )

    async def kill(self, id: str) -> BackgroundShell:
        """End a shell and everything it started, even if it is over itself. Raises `ToolFailure` when something survives."""
        background = self.find(id)
        background.killed = background.killed or not background.over.done()
        survivors = await background.shell.end()
        if survivors:
            names = ", ".join(f"{process.name} (pid {process.pid})" for process in survivors)
            raise ToolFailure(f"{id} was signalled, but these processes are still there: {names}.")
        await asyncio.wait((background.over,), timeout=2.0)
        return background

    async def aclose(self) -> None:
        """End all of them."""
        for background in self._shells.values():
            background.killed = background.killed or not background.over.done()
        await self._session.aclose()
        attending = list(self._attending)
        if attending:
            await asyncio.wait(attending, timeout=LAST_WAIT)
        for task in attending:
            task.cancel()
        await asyncio.gather(*attending, return_exceptions=True)

    async def _attend(self, background: BackgroundShell) -> None:
        """Wait for the end of a shell and of its output, then close it and tell."""
        shell = background.shell
        await asyncio.wait((shell.exit,))
        await asyncio.wait((shell.drain.ended,))
        await shell.wind_up()
        background.over.set_result(None)
        code = shell.exit.result()
        how = "was ended" if background.killed else f"ended with exit code {code}"
        self._workspace.emit(
            Notice(
                text=f"Background shell {background.id} {how}: {_short(background.command)}",
                data={"shell_id": background.id, "status": background.status, "exit_code": code},
            )
        )

    def _make_room(self) -> None:
        most = self._workspace.setting("bash.max_background", MOST_RUNNING)
        running = [each.id for each in self._shells.values() if not each.over.done()]
        if len(running) >= most:
            raise ToolFailure(
                f"{len(running)} background shells are running, which is the limit. "
                f"End one with KillShell first: {', '.join(running)}."
            )

    def _forget_the_oldest(self) -> None:
        ended = [each.id for each in self._shells.values() if each.over.done()]
        for id in ended[: max(len(self._shells) - MOST_REMEMBERED, 0)]:
            del self._shells[id]


async def _news(background: BackgroundShell, printed: int, deadline: float) -> None:
    """Return a moment after more output came, when it is over, or at the deadline."""
    shell = background.shell
    if shell.capture.total == printed:
        left = max(deadline - time.monotonic(), 0)
        await asyncio.wait((background.over, shell.fresh()), timeout=left, return_when=asyncio.FIRST_COMPLETED)
    if not background.over.done():
        await asyncio.wait((background.over,), timeout=min(BURST, max(deadline - time.monotonic(), 0)))


def _short(command: str) -> str:
    return truncate_line(command, 80)
