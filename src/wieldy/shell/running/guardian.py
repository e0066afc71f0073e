"""A small process that outlives wieldy: when wieldy is gone, however it went, it ends what its shells left running."""

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
LOADER = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
START = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from wieldy.shell.running.guardian_process import watch; watch(*sys.argv[2:])"
)


def interpreter_command(start: str, *arguments: str) -> list[str] | None:
    """The quickest way to run a function of this package in a process of its own; None without an interpreter."""
    if not sys.executable or getattr(sys, "frozen", False):
        return None
    return [sys.executable, "-I", "-S", "-c", start, SOURCE, *arguments]


class Guardian:
    """The guardian as wieldy sees it. It holds the end of a pipe and a handle on our process; either ending wakes it."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The guardian's process, if one is awake."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def wake(self) -> None:
        """Start it if it is not there. About a millisecond; its own start-up happens beside us."""
        if self.pid is not None:
            return
        self._forget()
        command = interpreter_command(START, self._mark, str(os.getpid()))
        if command is None:
            return
        with _deaf(), contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={name: os.environ[name] for name in LOADER if name in os.environ},
                start_new_session=True,
            )
            assert self._process.stdin
            os.set_blocking(self._process.stdin.fileno(), False)

    def note(self, pid: int, *, running: bool) -> None:
        """Tell it of a shell that started or ended. Only where marks cannot be read: waking it costs as much as starting bash."""
        if not HAS_PROC and self._process and self._process.stdin:
            with contextlib.suppress(OSError):
                os.write(self._process.stdin.fileno(), b"%s%d\n" % (b"+" if running else b"-", pid))

    def dismiss(self) -> None:
        """Let it go: nothing is left to guard. It is not asked, since it may not even have begun to listen."""
        if self._process is not None:
            self._process.kill()
        self._forget()

    def _forget(self) -> None:
        if self._process is not None:
            if self._process.stdin:
                self._process.stdin.close()
            self._process.wait()
        self._process = None


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """What is started now never hears SIGTERM. Who ends a tree with wieldy in it asks the guardian too: it has work then."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
