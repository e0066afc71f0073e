"""Starts and stops the guardian: a small process that outlives us and ends what our shells left running."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator

from wieldy.core.programs import own_python
from wieldy.shell.running.reaper import HAS_PROC

LOADER_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
START_CODE = "from wieldy.shell.running.guardian_process import main; main(*sys.argv[1:])"


class Guardian:
    """Our handle on the guardian for one tag. It watches a pipe and a pidfd of ours, and acts when either ends.

    One process guards all tags of this process. When it has ended everything, it writes the time to `ended_file`, if one
    is given.
    """

    def __init__(self, tag: str, ended_file: str = "") -> None:
        self.ended_file = ended_file
        self._tag = tag
        self._is_guarded = False

    @property
    def pid(self) -> int | None:
        return _shared.pid if self._is_guarded else None

    def ensure_running(self) -> None:
        """Start it if it does not run. This takes about a millisecond; its own start-up runs in parallel."""
        self._is_guarded = True
        _shared.guard(self._tag, self.ended_file)

    def report_shell(self, pid: int, *, running: bool) -> None:
        """Tell it that a shell started or ended, but only where it cannot read tags: each message wakes it up."""
        if not HAS_PROC and self._is_guarded:
            _shared.send(b"%s%d" % (b"+" if running else b"-", pid))

    def stop(self) -> None:
        """Nothing is left to guard. The process ends with its last tag."""
        if self._is_guarded:
            self._is_guarded = False
            _shared.dismiss(self._tag)


class SharedGuardian:
    """The one guardian process of this process, and the tags that it guards."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._tags: dict[str, str] = {}

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self._process.poll() is None else None

    def guard(self, tag: str, ended_file: str) -> None:
        with self._lock:
            is_new = tag not in self._tags
            self._tags[tag] = ended_file
            if self.pid is None:
                self._start()
            elif is_new and not self.send(watch_message(tag, ended_file)):
                self._end()
                self._start()

    def dismiss(self, tag: str) -> None:
        with self._lock:
            self._tags.pop(tag, None)
            if not self._tags:
                self._end()
            elif self.pid is not None:
                self.send(b"f" + tag.encode())

    def send(self, message: bytes) -> bool:
        """Send a line; whether the process got it."""
        if self._process is None or self._process.stdin is None:
            return False
        try:
            # Less than the pipe takes at once, so it is written whole or not at all.
            return os.write(self._process.stdin.fileno(), message + b"\n") > 0
        except OSError:
            return False

    def reset_after_fork(self) -> None:
        """Forget everything: the process guards our parent."""
        self._lock = threading.Lock()
        self._tags = {}
        if self._process is not None:
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process.returncode = 0  # not our child: never wait for it
        self._process = None

    def _start(self) -> None:
        self._reap()
        (tag, ended_file), *others = self._tags.items()
        command = own_python(START_CODE, tag, str(os.getpid()), ended_file, installed=False)
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
        for other, file in others:
            self.send(watch_message(other, file))

    def _end(self) -> None:
        """Kill it; it may not have started to listen yet."""
        if self._process is not None:
            self._process.kill()
        self._reap()

    def _reap(self) -> None:
        if self._process is not None:
            if self._process.stdin:
                self._process.stdin.close()
            self._process.wait()
        self._process = None


def watch_message(tag: str, ended_file: str) -> bytes:
    """The line by which the guardian process hears of one more tag."""
    return b"w" + tag.encode() + b" " + os.fsencode(ended_file).replace(b"%", b"%25").replace(b"\n", b"%0A")


_shared = SharedGuardian()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_shared.reset_after_fork)


@contextlib.contextmanager
def _sigterm_blocked() -> Iterator[None]:
    """Start the guardian with SIGTERM blocked: what ends our process tree signals it too, when it has work to do."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
