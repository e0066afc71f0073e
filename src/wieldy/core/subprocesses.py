"""Kill a child process of asyncio."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress


def kill_process(process: asyncio.subprocess.Process) -> None:
    """Send SIGKILL. `Process.kill` polls first, which takes the exit status away from asyncio (CPython gh-127049)."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
