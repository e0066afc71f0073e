"""Kill a child process of asyncio, and bound the memory of one that reads what a project chose."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress

MAX_MEMORY = 2 << 30
"""ripgrep maps no files into memory here, but reads one whole for a match over several lines."""


def kill_process(process: asyncio.subprocess.Process) -> None:
    """Send SIGKILL. `Process.kill` polls first, which takes the exit status away from asyncio (CPython gh-127049)."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def limit_memory(pid: int) -> None:
    """Bound the memory of a program: an ignore file, say, may be a device without end."""
    with suppress(AttributeError, ImportError, OSError, ValueError):  # macOS cannot, and a stricter limit stays
        import resource

        resource.prlimit(pid, resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))


def run_limited(command: Sequence[str], cwd: str, seconds: float) -> subprocess.CompletedProcess[bytes]:
    """Run a program without input, bounded in memory and time. Raises `OSError` and `subprocess.TimeoutExpired`."""
    with subprocess.Popen(
        command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        limit_memory(process.pid)
        try:
            output, errors = process.communicate(timeout=seconds)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)
