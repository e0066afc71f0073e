"""All shells of one workspace: how they are started, what they are known by, and their common end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from wieldy.core.errors import ToolFailure
from wieldy.core.threads import in_thread
from wieldy.core.workspace import Workspace
from wieldy.shell.running.guardian import Guardian
from wieldy.shell.running.launch import (
    LONGEST_ARGUMENT,
    READ_FIRST,
    Confine,
    bash_command,
    command_environment,
    find_bash,
    launch,
)
from wieldy.shell.running.output import SHOWN, Capture
from wieldy.shell.running.process_tag import VARIABLE, brand, numbers
from wieldy.shell.running.reaper import Tree, end
from wieldy.shell.running.shell import BUFFER, Drain, Files, Shell, may_detach

LAST_WAIT = 2.0


class ShellSession:
    """The shells of a workspace: `workspace.service(ShellSession)`. Each carries a mark to find its processes by."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.token = os.urandom(8).hex()
        self.results = workspace.session_dir / "tool-results"
        self.guardian = Guardian(self.token)
        self._open: set[Shell] = set()
        self._count = 0
        self._closed = False

    @cached_property
    def _buffer(self) -> bytearray:
        """What all output is read into; a megabyte that many sessions never need."""
        return bytearray(BUFFER)

    @cached_property
    def folder(self) -> Path:
        """Where commands tell where they ended; made when it is first asked for."""
        folder = self.workspace.session_dir / "shell"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def make_ready(self) -> None:
        """Do before the first command what it would wait for."""
        if not self._closed:
            self.guardian.wake()

    def start(
        self,
        command: str,
        *,
        cwd: str,
        extra: Mapping[str, str] | None = None,
        confine: Confine | None = None,
        stays: bool = False,
    ) -> Shell:
        """Start a command. Raises `ToolFailure` when bash cannot be started at all.

        One that is known to end where it started (`stays`) is not asked where it ended, which saves a quarter of its time.
        """
        if self._closed:
            raise ToolFailure("The session is over; no more commands can be run.")
        text = _bytes(command)
        self._count += 1
        mark = f"{self.token}.{self._count}."
        surrounding = dict(self.workspace.env)
        own = {name: str(value) for name, value in self.workspace.setting("env", dict[str, str]()).items()}
        own |= extra or {}
        read_first = not (READ_FIRST.isdisjoint(own) and READ_FIRST.isdisjoint(surrounding))
        asked = not stays or read_first or may_detach(text)
        report = self.folder / f"{mark}cwd" if asked else None
        at_exit = _tell_directory(report) if report else None
        env = command_environment(surrounding, mark=mark, at_exit=at_exit) | own
        if asked:
            env[VARIABLE] = str(numbers(mark).start)
        # A sandboxed command may write to the folder of reports, but never to what another command will execute.
        script = self.folder.with_name(f"{mark}sh") if len(text) > LONGEST_ARGUMENT else None
        argv = bash_command(find_bash(surrounding.get("PATH")), text, script)
        if confine:
            argv, env = confine(argv, env)
        self.guardian.wake()  # first: at no instant is there a command that would outlive us
        try:
            started = launch(argv, cwd=cwd, env=env)
        except OSError as problem:
            raise ToolFailure(f"bash could not be started: {problem.strerror}. Nothing was run.") from None
        # Too late for what bash has started by now, but where there is no preamble that is nothing that hides.
        brand(started.process.pid, mark)
        capture = Capture(
            self.results / f"bash-{self.token[:6]}-{self._count}.txt",
            shown=max(self.workspace.setting("bash.max_output_chars", SHOWN), 1_000),
        )
        drain = Drain(started.output, capture, self._buffer)
        files = Files(report, script, cwd)
        shell = Shell(text, mark, started.process, drain, files, self)
        self._open.add(shell)
        self.guardian.note(shell.pid, running=True)
        return shell

    def ended(self, shell: Shell) -> None:
        """Take note that a shell has exited."""
        self.guardian.note(shell.pid, running=False)

    def closed(self, shell: Shell) -> None:
        """Take note that nothing more will come from a shell."""
        self._open.discard(shell)

    async def aclose(self) -> None:
        """End everything that any command of this workspace started and left running."""
        if self._closed:
            return
        self._closed = True
        if self._count:
            await self._end_all()
        await in_thread(self.guardian.dismiss)

    async def _end_all(self) -> None:
        roots = frozenset(shell.pid for shell in self._open if not shell.exit.done())
        await in_thread(end, Tree(f"{self.token}.", roots))
        for shell in list(self._open):
            # One that even SIGKILL does not end (it hangs in the kernel) must not hold up everything else.
            await asyncio.wait((shell.exit,), timeout=LAST_WAIT)
            await shell.wind_up()
        if "folder" in vars(self):
            await in_thread(_remove, self.folder)


def _remove(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:  # a command in a sandbox may have left anything there
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


def _bytes(command: str) -> bytes:
    try:
        text = command.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ToolFailure(
            "The command holds half of a surrogate pair, which is no character. Send it without."
        ) from None
    if b"\0" in text:
        raise ToolFailure("The command holds a NUL byte, which bash cannot take. Write it as $'\\\\0' or use printf.")
    return text


def _tell_directory(report: Path) -> str:
    """The EXIT trap: silent also under `set -x`, `set -C` and a DEBUG trap, and it leaves the exit code alone."""
    quoted = os.fspath(report).replace("'", "'\\''")
    return f"{{ builtin pwd -P >| '{quoted}'; }} >/dev/null 2>&1"


def starting_point(workspace: Workspace) -> str | None:
    """Make sure that the working directory exists; a notice where it had to fall back to the project root."""
    if os.path.isdir(workspace.cwd):
        return None
    gone, workspace.cwd = workspace.cwd, workspace.root
    return f"The working directory {gone} no longer exists; the command ran in {workspace.root}."


def arrive(workspace: Workspace, started_in: str, ended_in: str | None) -> str | None:
    """Move the workspace to where a command ended; a notice where that is not allowed."""
    if ended_in is None or ended_in == started_in or not os.path.isdir(ended_in):
        return None
    real = os.path.realpath(ended_in)
    if any(real == root or real.startswith(root.rstrip(os.sep) + os.sep) for root in workspace.roots):
        workspace.cwd = real
        return None
    workspace.cwd = workspace.root
    return f"The command ended in {real}, outside the allowed folders; the working directory is {workspace.root} again."
