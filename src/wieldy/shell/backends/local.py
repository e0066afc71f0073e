"""`LocalBackend`: the operations of a backend on this machine, with the functions that the tools use.

A toolbox does not need it: without a backend it uses the same functions directly, which is faster. It is what a worker in
another place runs, and what a backend of your own can be built on.
"""

from __future__ import annotations

import errno
import os
import stat as modes
import subprocess
import threading
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Self

from wieldy.core.backend import FileInfo, FileKind, FolderEntry
from wieldy.core.errors import StaleFileError
from wieldy.core.programs import own_program
from wieldy.core.realpath import make_resolved_folders, open_resolved, open_resolved_folder, realpath
from wieldy.core.threads import in_thread
from wieldy.files.writing.commit import WrittenFile
from wieldy.files.writing.disk import Target, WriteError
from wieldy.files.writing.writers import LocalWriter
from wieldy.shell.running.guardian import Guardian
from wieldy.shell.running.launch import launch, start_program
from wieldy.shell.running.process_tag import TAG_VARIABLE, tag_process
from wieldy.shell.running.reaper import ProcessTree, end_tree

OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
BLOCK = 1 << 20
WRITE_LOCKS = 64
WRITER = LocalWriter()


class LocalProcess:
    """A process of this machine and everything that it started."""

    def __init__(self, process: subprocess.Popen[bytes], pipes: Sequence[int], tag: str) -> None:
        self.pid = process.pid
        self.stdout = pipes[0]
        self.stderr = pipes[1] if len(pipes) > 1 else None
        self._process = process
        self.tag = tag

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait(self) -> int:
        return self._process.wait()

    def end(self) -> None:
        end_tree(ProcessTree(self.tag, frozenset((self.pid,) if self.is_running else ())))


class LocalBackend:
    """The files and processes of this machine. Processes are ended with it, also when this process is killed.

    `Toolbox(root, backend=LocalBackend())` is the same as a toolbox without a backend. A subclass is used by its methods
    like any other backend.
    """

    has_host_programs = True

    def __init__(self) -> None:
        self._token = os.urandom(8).hex()
        self._numbers = count(1)
        self._guardian = Guardian(self._token)
        self._lock = threading.Lock()
        # By path, so that only one of several writers finds the version that it expects.
        self._write_locks = [threading.Lock() for _ in range(WRITE_LOCKS)]
        self._processes: list[LocalProcess] = []

    @property
    def id(self) -> str:
        return "this machine"

    def stat(self, path: str, *, follow: bool = True) -> FileInfo:
        return file_info(os.stat(path) if follow else os.lstat(path))

    def realpath(self, path: str) -> str:
        return realpath(path)

    def list_folder(self, path: str) -> Sequence[FolderEntry]:
        descriptor = open_resolved(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with os.scandir(descriptor) as entries:
                return [_folder_entry(entry, descriptor) for entry in entries]
        finally:
            os.close(descriptor)

    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        descriptor = open_resolved(path, OPEN_FLAGS)
        try:
            mode = os.fstat(descriptor).st_mode
            if modes.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            if not modes.S_ISREG(mode):
                raise OSError(errno.EINVAL, "it is not a regular file", path)
            return _read(descriptor, offset, size)
        finally:
            os.close(descriptor)

    def write(self, path: str, content: bytes, *, expected: str | None, mode: int | None = None) -> FileInfo:
        written = self._commit(path, content, expected, mode)
        assert written.stat is not None
        return file_info(written.stat)

    def delete(self, path: str, *, expected: str | None = None) -> None:
        if expected is None:
            folder = open_resolved_folder(os.path.dirname(path))
            try:
                os.rmdir(os.path.basename(path), dir_fd=folder)
            finally:
                os.close(folder)
            return
        self._commit(path, None, expected)

    def _commit(self, path: str, content: bytes | None, expected: str | None, mode: int | None = None) -> WrittenFile:
        with self._write_locks[hash(path) % WRITE_LOCKS]:
            target = _open_target(path, expected)
            try:
                return WRITER.commit([WRITER.plan_write(target, content, mode=mode, alone=True)])[0]
            except WriteError as error:
                raise OSError(error.number or errno.EIO, error.message, path) from None

    def make_folder(self, path: str) -> None:
        try:
            make_resolved_folders(path)
        except NotADirectoryError:
            if os.path.lexists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None
            raise

    def spawn(
        self, argv: Sequence[str | bytes], *, cwd: str, env: Mapping[str, str], separate_stderr: bool = False
    ) -> LocalProcess:
        tag = f"{self._token}.{next(self._numbers)}."
        outer = env.get(TAG_VARIABLE)
        environment = {**env, TAG_VARIABLE: f"{outer} {tag}" if outer else tag}
        self._guardian.ensure_running()
        child, pipes = launch(
            _find_program(argv, env), cwd=cwd, env=environment, pipes=2 if separate_stderr else 1, start=start_program
        )
        tag_process(child.pid, tag)
        self._guardian.report_shell(child.pid, running=True)
        process = LocalProcess(child, pipes, tag)
        with self._lock:
            self._processes = [*(each for each in self._processes if each.is_running), process]
        return process

    async def aclose(self) -> None:
        """The same for programs with an event loop."""
        await in_thread(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything that still runs there."""
        with self._lock:
            processes, self._processes = self._processes, []
        roots = frozenset(process.pid for process in processes if process.is_running)
        if processes:
            end_tree(ProcessTree(f"{self._token}.", roots))
        self._guardian.stop()


def file_info(stat: os.stat_result) -> FileInfo:
    """What a backend says of a file with this status."""
    version = f"{stat.st_dev:x}.{stat.st_ino:x}.{stat.st_size:x}.{stat.st_mtime_ns:x}"
    return FileInfo(_kind(stat.st_mode), stat.st_size, modes.S_IMODE(stat.st_mode), stat.st_mtime_ns, version)


def _kind(mode: int) -> FileKind:
    if modes.S_ISREG(mode):
        return "file"
    if modes.S_ISDIR(mode):
        return "folder"
    return "link" if modes.S_ISLNK(mode) else "other"


def _folder_entry(entry: os.DirEntry[str], folder: int) -> FolderEntry:
    if entry.is_symlink():
        try:
            return FolderEntry(entry.name, "link", os.readlink(entry.name, dir_fd=folder))
        except OSError:
            return FolderEntry(entry.name, "link", "?")
    if entry.is_dir(follow_symlinks=False):
        return FolderEntry(entry.name, "folder")
    return FolderEntry(entry.name, "file" if entry.is_file(follow_symlinks=False) else "other")


def _read(descriptor: int, offset: int, size: int | None) -> bytes:
    pieces: list[bytes] = []
    left = size
    while left is None or left > 0:
        piece = os.pread(descriptor, BLOCK if left is None else min(BLOCK, left), offset)
        if not piece:
            break
        pieces.append(piece)
        offset += len(piece)
        left = None if left is None else left - len(piece)
    return b"".join(pieces)


def _open_target(path: str, expected: str | None) -> Target:
    """The file to change, if it has the version that is expected. Raises `StaleFileError` or `OSError`."""
    try:
        stat = os.lstat(path)
    except FileNotFoundError:
        if expected is not None:
            raise StaleFileError(path, "was removed meanwhile") from None
    else:
        if modes.S_ISLNK(stat.st_mode):
            raise StaleFileError(path, "is a link now")
        if expected is None:
            raise StaleFileError(path, "exists already")
        if modes.S_ISDIR(stat.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    try:
        target = WRITER.resolve_target(path, path)
    except WriteError as error:
        raise OSError(error.number or errno.EINVAL, error.message, path) from None
    if target.stat is None:
        if expected is not None:
            raise StaleFileError(path, "was removed meanwhile")
        return target
    target = WRITER.with_content(target)
    assert target.stat is not None
    if file_info(target.stat).version != expected:
        raise StaleFileError(path, "was changed by someone else meanwhile")
    return target


def _find_program(argv: Sequence[str | bytes], env: Mapping[str, str]) -> list[str | bytes]:
    """The arguments with the program's path, found by the PATH that it gets. Raises `FileNotFoundError`."""
    name = os.fsdecode(argv[0])
    return [name if "/" in name else own_program(name, env), *argv[1:]]
