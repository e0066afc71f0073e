"""Starts and stops the guardian: a small process that outlives us and ends what our shells left running."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from wieldy.shell.running.reaper import HAS_PROC

SOURCE = str(Path(__file__).parents[3])
LOADER_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
START_CODE = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from wieldy.shell.running.guardian_process import main; main(*sys.argv[2:])"
)


def python_command(code: str, *arguments: str) -> list[str] | None:
    """The command that runs `code` with our package in a new interpreter; None if there is no interpreter."""
    if not sys.executable or getattr(sys, "frozen", False):
        return None
    return [sys.executable, "-I", "-S", "-c", code, SOURCE, *arguments]


class Guardian:
    """Our handle on the guardian. It watches a pipe and a pidfd of ours, and acts when either ends.

    When it has ended everything, it writes the time to `ended_file`, if one is given.
    """

    def __init__(self, tag: str, ended_file: str = "") -> None:
        self.ended_file = ended_file
        self._tag = tag
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self._process.poll() is None else None

    def ensure_running(self) -> None:
        """Start it if it does not run. This takes about a millisecond; its own start-up runs in parallel."""
        if self.pid is not None:
            return
        self._reap()
        command = python_command(START_CODE, self._tag, str(os.getpid()), self.ended_file)
        if command is None:
            return
        with _sigterm_blocked(), contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={name: os.environ[name] for name in LOADER_VARIABLES if name in os.environ},
                start_new_session=True,
            )
            assert self._process.stdin
            os.set_blocking(self._process.stdin.fileno(), False)

    def report_shell(self, pid: int, *, running: bool) -> None:
        """Tell it that a shell started or ended, but only where it cannot read tags: each message wakes it up."""
        if not HAS_PROC and self._process and self._process.stdin:
            with contextlib.suppress(OSError):
                os.write(self._process.stdin.fileno(), b"%s%d\n" % (b"+" if running else b"-", pid))

    def stop(self) -> None:
        """Kill it, as nothing is left to guard; it may not have started to listen yet."""
        if self._process is not None:
            self._process.kill()
        self._reap()

    def _reap(self) -> None:
        if self._process is not None:
            if self._process.stdin:
                self._process.stdin.close()
            self._process.wait()
        self._process = None


@contextlib.contextmanager
def _sigterm_blocked() -> Iterator[None]:
    """Start the guardian with SIGTERM blocked: whoever ends our process tree signals it too, when it has work to do."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
