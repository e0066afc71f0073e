"""Runs one hook that is a command: JSON on stdin, text and an exit code back, in bounded time, its whole tree ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Mapping

from msgspec import Struct

from wieldy.core.threads import in_thread
from wieldy.hooks.config import Hook
from wieldy.hooks.events import HookEvent
from wieldy.shell.running.reaper import ProcessTree, end_tree

MOST_OUTPUT = 1 << 20
_AT_ONCE = 1 << 16


class PipeReader:
    """The read end of a pipe. Its first megabyte is kept; the rest is read and forgotten, so that the hook does not block."""

    def __init__(self) -> None:
        self._mine, self.theirs = os.pipe()
        os.set_blocking(self._mine, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._mine, self._read)
        self._kept = bytearray()

    def _read(self) -> bool:
        try:
            data = os.read(self._mine, _AT_ONCE)
        except BlockingIOError:
            return False
        if not data:
            self.close()
        self._kept += data[: MOST_OUTPUT - len(self._kept)]
        return bool(data)

    def hear_out(self) -> str:
        """What has been said by now, as text."""
        reads = 0
        while self._mine >= 0 and reads * _AT_ONCE < MOST_OUTPUT and self._read():
            reads += 1
        return self._kept.decode("utf-8", "replace")

    def close(self) -> None:
        """Listen no more."""
        if self._mine >= 0:
            self._loop.remove_reader(self._mine)
            os.close(self._mine)
            self._mine = -1


class PipeWriter:
    """The write end of a pipe: what is to be told, and then its end."""

    def __init__(self, told: bytes) -> None:
        self.theirs, self._mine = os.pipe()
        os.set_blocking(self._mine, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_writer(self._mine, self._write)
        self._rest = memoryview(told)

    def _write(self) -> None:
        try:
            self._rest = self._rest[os.write(self._mine, self._rest[:_AT_ONCE]) :]
        except BlockingIOError:
            return
        except OSError:  # the hook has closed its stdin, and need not listen
            self._rest = self._rest[:0]
        if not self._rest:
            self.close()

    def close(self) -> None:
        """Say no more."""
        if self._mine >= 0:
            self._loop.remove_writer(self._mine)
            os.close(self._mine)
            self._mine = -1


class HookOutput(Struct, frozen=True):
    """What came back of a hook, uninterpreted. `trouble` says why there is no exit code."""

    exit_code: int | None
    stdout: str = ""
    stderr: str = ""
    trouble: str = ""


async def run_command(hook: Hook, moment: HookEvent, env: Mapping[str, str]) -> HookOutput:
    """Run the hook's command. Never raises for what the hook does."""
    mark = f"WIELDY_HOOK={os.urandom(8).hex()}"
    name, _, value = mark.partition("=")
    surroundings = {**env, name: value, "WIELDY_PROJECT_DIR": moment.cwd, "CLAUDE_PROJECT_DIR": moment.cwd}
    argv = ("/bin/sh", "-c", hook.command) if isinstance(hook.command, str) else hook.command or ()
    cwd = moment.cwd if os.path.isdir(moment.cwd) else None
    told = json.dumps(moment.payload(), ensure_ascii=False, default=str).encode("utf-8", "replace")
    # Pipes of our own: asyncio's would have us wait for whoever else still holds them, such as a child the hook left behind.
    mouth, out, err = PipeWriter(told), PipeReader(), PipeReader()
    process: asyncio.subprocess.Process | None = None
    try:
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=mouth.theirs,
                stdout=out.theirs,
                stderr=err.theirs,
                cwd=cwd,
                env=surroundings,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return HookOutput(None, trouble=f"could not start: {getattr(error, 'strerror', None) or error}")
        finally:
            for end_of_pipe in (mouth, out, err):
                os.close(end_of_pipe.theirs)
        async with asyncio.timeout(hook.seconds):
            code = await process.wait()
        return HookOutput(code, out.hear_out(), err.hear_out())
    except TimeoutError:
        return HookOutput(None, trouble=f"did not end within {hook.seconds:g} s and was stopped")
    finally:
        for pipe in (mouth, out, err):
            pipe.close()
        if process is not None and process.returncode is None:
            await in_thread(end_tree, ProcessTree(mark, frozenset({process.pid})), grace=0.2)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
