"""Runs one command hook: JSON on stdin, text and an exit code back, within a time limit, its whole process tree ended."""

from __future__ import annotations

import asyncio
import codecs
import json
import os
from collections.abc import Mapping

from msgspec import Struct

from wieldy.core.programs import kill_process
from wieldy.core.threads import in_thread
from wieldy.core.workspace import Workspace
from wieldy.policy.hooks.config import Hook
from wieldy.policy.hooks.events import HookEvent
from wieldy.shell.running.reaper import ProcessTree, end_tree

MAX_OUTPUT = 16 << 20
_CHUNK = 1 << 16


class HookOutput(Struct, frozen=True):
    """What came back from a hook, uninterpreted. `failure` says why there is no exit code."""

    exit_code: int | None
    stdout: str = ""
    stderr: str = ""
    failure: str = ""


async def run_command(hook: Hook, event: HookEvent, workspace: Workspace, env: Mapping[str, str]) -> HookOutput:
    """Run the hook's command in the project's root. Never raises for what the hook does."""
    root, commands = workspace.project_root, workspace.commands
    if commands is not None and hook.command is not None:
        problem = await in_thread(commands.problem, f"hooks.{hook.event}", hook.command)
        if problem is not None:
            return HookOutput(None, failure=problem)
    tag = f"WIELDY_HOOK={os.urandom(8).hex()}"
    name, _, value = tag.partition("=")
    environment = {**env, name: value, "WIELDY_PROJECT_DIR": root, "CLAUDE_PROJECT_DIR": root}
    argv = ("/bin/sh", "-c", hook.command) if isinstance(hook.command, str) else hook.command or ()
    cwd = root if os.path.isdir(root) else os.sep
    payload = json.dumps(event.payload(), ensure_ascii=False, default=str).encode("utf-8", "replace")
    # Pipes of our own: asyncio's would wait for every holder, such as a child that the hook left behind.
    stdin, stdout, stderr = PipeWriter(payload), PipeReader(), PipeReader()
    process: asyncio.subprocess.Process | None = None
    try:
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=stdin.child_end,
                stdout=stdout.child_end,
                stderr=stderr.child_end,
                cwd=cwd,
                env=environment,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return HookOutput(None, failure=f"could not start: {getattr(error, 'strerror', None) or error}")
        finally:
            for pipe in (stdin, stdout, stderr):
                os.close(pipe.child_end)
        async with asyncio.timeout(hook.seconds):
            exit_code = await process.wait()
        return HookOutput(exit_code, stdout.read_rest(), stderr.read_rest())
    except TimeoutError:
        return HookOutput(None, failure=f"did not end within {hook.seconds:g} s and was stopped")
    finally:
        for pipe in (stdin, stdout, stderr):
            pipe.close()
        if process is not None and process.returncode is None:
            await in_thread(end_tree, ProcessTree(tag, frozenset({process.pid})), grace=0.2)
            kill_process(process)
            await process.wait()


class PipeReader:
    """Reads a pipe in the background. The first 16 MB are kept, the rest is discarded so that the hook does not block."""

    def __init__(self) -> None:
        self._descriptor, self.child_end = os.pipe()
        os.set_blocking(self._descriptor, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._read)
        self._output = bytearray()

    def _read(self) -> bool:
        try:
            data = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self.close()
        self._output += data[: MAX_OUTPUT - len(self._output)]
        return bool(data)

    def read_rest(self) -> str:
        """Read what is in the pipe by now, and return all output as text."""
        reads = 0
        while self._descriptor >= 0 and reads * _CHUNK < MAX_OUTPUT and self._read():
            reads += 1
        is_wide = self._output.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        return self._output.decode("utf-16" if is_wide else "utf-8-sig", "replace")

    def close(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1


class PipeWriter:
    """Writes data to a pipe in the background, then closes it."""

    def __init__(self, data: bytes) -> None:
        self.child_end, self._descriptor = os.pipe()
        os.set_blocking(self._descriptor, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_writer(self._descriptor, self._write)
        self._unwritten = memoryview(data)

    def _write(self) -> None:
        try:
            self._unwritten = self._unwritten[os.write(self._descriptor, self._unwritten[:_CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:  # the hook closed its stdin, and need not read
            self._unwritten = self._unwritten[:0]
        if not self._unwritten:
            self.close()

    def close(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_writer(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
