"""Runs a program of ours for its output: data on stdin, text and an exit code back, its whole process tree ended."""

from __future__ import annotations

import asyncio
import codecs
import os
from collections.abc import Mapping, Sequence

from msgspec import Struct

from wieldy.core.programs import kill_process
from wieldy.core.threads import in_thread
from wieldy.shell.running.reaper import ProcessTree, end_tree

MAX_OUTPUT = 16 << 20
_CHUNK = 1 << 16


class ProgramOutput(Struct, frozen=True):
    """What came back from a program, uninterpreted. `failure` says why there is no exit code."""

    exit_code: int | None
    stdout: str = ""
    stderr: str = ""
    failure: str = ""


async def run_for_output(
    argv: Sequence[str],
    stdin: bytes,
    *,
    cwd: str,
    env: Mapping[str, str],
    tag: str,
    seconds: float | None = None,
    grace: float = 0.0,
    merged: bool = False,
) -> ProgramOutput:
    """Run a program; `tag` is the variable that marks its processes. If `merged`, stderr is part of stdout.

    Never raises for what the program does. Cancellation ends it, and the time limit with some seconds of grace.
    """
    value = os.urandom(8).hex()
    # Pipes of our own: asyncio's would wait for every holder, such as a child that the program left behind.
    writer, stdout, stderr = PipeWriter(stdin), PipeReader(), PipeReader()
    process: asyncio.subprocess.Process | None = None
    try:
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=writer.child_end,
                stdout=stdout.child_end,
                stderr=stdout.child_end if merged else stderr.child_end,
                cwd=cwd,
                env={**env, tag: value},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return ProgramOutput(None, failure=f"could not start: {getattr(error, 'strerror', None) or error}")
        finally:
            for pipe in (writer, stdout, stderr):
                os.close(pipe.child_end)
        async with asyncio.timeout(seconds):
            exit_code = await process.wait()
        return ProgramOutput(exit_code, stdout.read_rest(), stderr.read_rest())
    except TimeoutError:
        return ProgramOutput(None, failure=f"did not end within {seconds:g} s and was stopped")
    finally:
        for pipe in (writer, stdout, stderr):
            pipe.close()
        if process is not None and process.returncode is None:
            await in_thread(end_tree, ProcessTree(f"{tag}={value}", frozenset({process.pid})), grace=grace)
            kill_process(process)
            await process.wait()


class PipeReader:
    """Reads a pipe in the background. The first 16 MB are kept, the rest is discarded so that the program does not block."""

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
        except OSError:  # the program closed its stdin, and need not read
            self._unwritten = self._unwritten[:0]
        if not self._unwritten:
            self.close()

    def close(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_writer(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
