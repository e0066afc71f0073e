"""A command that runs on a backend: the same as `Shell`, with what a backend can do of it.

The backend ends everything that a command started; what the command leaves running is known only by output that stays open.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from wieldy.core.backend import Backend, BackendProcess
from wieldy.core.errors import ToolFailure
from wieldy.core.threads import in_thread, run_waiting
from wieldy.core.workspace import Workspace
from wieldy.shell.running.launch import MAX_ARGUMENT_BYTES, NONINTERACTIVE, command_environment, find_bash
from wieldy.shell.running.reaper import GRACE, Process
from wieldy.shell.running.shell import MAX_PATH_BYTES, CommandFiles, OutputReader, Shell

LOST_CODE = 255
"""The exit code of a command whose end is not known; ssh uses the same."""
_UNNAMED = Process(pid=0, parent=0, group=0, session=0, started=0, name="something that it started")


class RemoteShell(Shell):
    """A started command of a backend. `report` is the file there in which bash writes the folder it ends in."""

    def __init__(
        self,
        backend: Backend,
        command: bytes,
        process: BackendProcess,
        make_reader: Callable[[Callable[[], None]], OutputReader],
        *,
        cwd: str,
        report: str | None,
        on_close: Callable[[Shell], None],
    ) -> None:
        self._backend = backend
        self._remote = process
        self._report = report
        files = CommandFiles(None, None, cwd)
        super().__init__(command, "", process, make_reader, files, on_exit=lambda shell: None, on_close=on_close)

    async def leftovers(self) -> list[Process]:
        return [] if self.reader.eof.done() else [_UNNAMED]

    async def terminate(self, grace: float = GRACE) -> list[Process]:
        with suppress(OSError):  # it cannot be reached: nothing more can be done from here
            await in_thread(self._remote.end)
        await asyncio.wait((self.exit,), timeout=1.0)
        return []

    async def final_directory(self) -> str | None:
        return self._files.start_directory if self._report is None else await in_thread(self._read_report)

    def _read_report(self) -> str | None:
        assert self._report is not None
        try:
            path = self._backend.read(self._report, 0, MAX_PATH_BYTES)
            version = self._backend.stat(self._report, follow=False).version
            self._backend.delete(self._report, expected=version)
        except Exception:  # an EXIT trap of the command, `exec`, or a lost connection: it stays where it was
            return None
        return os.fsdecode(path.removesuffix(b"\n")) or None

    def _watch_exit(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            run_waiting(self._wait_in_thread, loop)
        except RuntimeError as error:
            loop.call_soon(self._lost, str(error))

    def _wait_in_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            end = partial(self._exited, self._remote.wait())
        except Exception as error:  # of a backend that is not ours: the command is not waited for any more
            end = partial(self._lost, str(error) or type(error).__name__)
        with suppress(RuntimeError):  # the loop is closed: it is not awaited any more
            loop.call_soon_threadsafe(end)

    def _lost(self, why: str) -> None:
        self.capture.feed(memoryview(f"\n[how the command ended is not known: {why}]\n".encode()))
        self._exited(LOST_CODE)


def remote_command(backend: Backend, workspace: Workspace, text: bytes, report: str | None) -> list[str | bytes]:
    """The arguments of bash for a command. Raises `ToolFailure` for one that is too long."""
    if len(text) > MAX_ARGUMENT_BYTES:
        raise ToolFailure(
            f"The command is {len(text):,} bytes long, more than {MAX_ARGUMENT_BYTES:,}. Write it to a file with Write, and "
            "run that."
        )
    bash = find_bash(workspace.env.get("PATH")) if backend.has_host_programs else "bash"
    # On the same line as the command, so that bash counts its lines as they are.
    trap = b"" if report is None else f"trap 'builtin pwd -P >| {report} 2>/dev/null' EXIT; ".encode()
    return [bash, "--norc", "--noprofile", "-c", "--", trap + text]


def remote_environment(
    backend: Backend, surrounding: Mapping[str, str], own: Mapping[str, str], tag: str
) -> dict[str, str]:
    """The variables for a command: those of this machine only where its programs are there too."""
    if backend.has_host_programs:
        return command_environment(surrounding, tag=tag, at_exit=None) | dict(own)
    return {**NONINTERACTIVE, **own}
