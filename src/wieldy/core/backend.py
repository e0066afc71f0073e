"""`Backend`: the files and processes that tools work on, where these are not simply those of this machine.

A backend is small on purpose: seven operations on files, one on processes. Matching, merging, encodings, permissions, undo and
the limits of output stay on this side, so whoever writes a backend need not think of them.
"""

from __future__ import annotations

import asyncio
import os
import select
import time
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from wieldy.core.threads import in_thread, run_in_background

FileKind: TypeAlias = Literal["file", "folder", "link", "other"]


class FileInfo(Struct, frozen=True):
    """What a backend knows of a path.

    `version` is any text that differs after every change of the content: a digest, or inode, size and times. Two names of
    one file have the same version. `mode` are the permission bits, `mtime_ns` is the time of the last change in nanoseconds.
    """

    kind: FileKind
    size: int = 0
    mode: int = 0o644
    mtime_ns: int = 0
    version: str = ""


class FolderEntry(Struct, frozen=True):
    """One name in a folder. `kind` does not follow links; `target` is what a link says."""

    name: str
    kind: FileKind
    target: str = ""


class BackendProcess(Protocol):
    """A process that was started.

    `stdout` is a descriptor of this process to read its output from, `stderr` another, or None where both come in one.
    Whoever called `spawn` reads and closes them; they end when nobody there can write any more. `pid` is its number there,
    0 where that is not known.
    """

    @property
    def pid(self) -> int: ...

    @property
    def stdout(self) -> int: ...

    @property
    def stderr(self) -> int | None: ...

    def wait(self) -> int:
        """Wait until it has ended; returns its exit code, minus the number of the signal that ended it."""

    def end(self) -> None:
        """End it and everything that it has started, and return when that is done."""


class Backend(Protocol):
    """Where tools work: `Toolbox(root, backend=…)`, with `root` an absolute path there. Whoever makes it closes it.

    The methods block, and are called in threads, several at once; never on the event loop. Paths are absolute. What fails
    raises the `OSError` that the same call on this machine would raise: `FileNotFoundError`, `PermissionError`,
    `NotADirectoryError`, …; a connection that is lost, any other `OSError`.

    `id` names the place: under the same id are the same files. Undo is kept apart by it. `has_host_programs` says that the
    programs of this machine are there under the same paths, as in a namespace: then commands get the environment of this
    machine, and searches the ripgrep that was found here. Elsewhere `rg` and `bash` must be on the PATH there.
    """

    @property
    def id(self) -> str: ...

    @property
    def has_host_programs(self) -> bool: ...

    def stat(self, path: str, *, follow: bool = True) -> FileInfo:
        """Look at a path. Without `follow`, at a link itself."""

    def realpath(self, path: str) -> str:
        """The path with all links resolved; what does not exist is kept as it is."""

    def list_folder(self, path: str) -> Sequence[FolderEntry]:
        """The names in a folder, in any order."""

    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        """The bytes of a regular file, from `offset` on, at most `size`. A link in its place is not followed: `OSError`."""

    def write(self, path: str, content: bytes, *, expected: str | None, mode: int | None = None) -> FileInfo:
        """Give a file its whole content; a reader sees it whole, old or new, and so does whoever comes after a crash.

        `expected` is the version that it must have; None means that there must be nothing under this name. Raises
        `StaleFileError` where that is not so, also for a link; of several writers at once, one should win. Missing folders
        are made. An existing file keeps its permission bits; a new one gets `mode`, if given.
        """

    def delete(self, path: str, *, expected: str | None = None) -> None:
        """Remove a file of the version `expected` (else `StaleFileError`); without it, a folder, which must be empty."""

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it, as far as they are missing."""

    def spawn(
        self, argv: Sequence[str | bytes], *, cwd: str, env: Mapping[str, str], separate_stderr: bool = False
    ) -> BackendProcess:
        """Start a program without input and terminal. `env` is added to the environment that programs have there anyway."""


BACKEND_MEMBERS = (
    *("id", "has_host_programs", "stat", "realpath", "list_folder"),
    *("read", "write", "delete", "make_folder", "spawn"),
)


async def spawn_on(
    backend: Backend, argv: Sequence[str | bytes], *, cwd: str, env: Mapping[str, str], separate_stderr: bool = False
) -> BackendProcess:
    """Start a program of a backend in a thread. If the wait is cancelled, the program is ended as soon as it has started."""
    starting = asyncio.ensure_future(in_thread(backend.spawn, argv, cwd=cwd, env=env, separate_stderr=separate_stderr))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        starting.add_done_callback(_end_unwanted)
        raise


def _end_unwanted(starting: asyncio.Future[BackendProcess]) -> None:
    """End a process whose start nobody waits for any more."""
    if not starting.cancelled() and starting.exception() is None:
        process = starting.result()
        for descriptor in (process.stdout, process.stderr):
            if descriptor is not None:
                os.close(descriptor)
        run_in_background(end_and_reap, process)


def end_and_reap(process: BackendProcess) -> None:
    """End a process that nobody waits for."""
    process.end()
    process.wait()


def run_on(
    backend: Backend, argv: Sequence[str | bytes], *, cwd: str, env: Mapping[str, str], seconds: float
) -> tuple[int, bytes, bytes]:
    """Run a program of a backend to its end: its exit code, output and error output. Raises `TimeoutError`."""
    process = backend.spawn(argv, cwd=cwd, env=env, separate_stderr=True)
    assert process.stderr is not None
    output = {process.stdout: bytearray(), process.stderr: bytearray()}
    try:
        _read_all(output, time.monotonic() + seconds)
    except TimeoutError:
        process.end()
        process.wait()
        raise
    finally:
        for descriptor in output:
            os.close(descriptor)
    return process.wait(), bytes(output[process.stdout]), bytes(output[process.stderr])


def _read_all(output: Mapping[int, bytearray], deadline: float) -> None:
    poll = select.poll()
    for descriptor in output:
        poll.register(descriptor, select.POLLIN | select.POLLHUP)
    still_open = len(output)
    while still_open:
        ready = poll.poll(max(deadline - time.monotonic(), 0) * 1000)
        if not ready:
            raise TimeoutError("it took too long")
        for descriptor, _ in ready:
            data = os.read(descriptor, 1 << 16)
            output[descriptor].extend(data)
            if not data:
                poll.unregister(descriptor)
                still_open -= 1
