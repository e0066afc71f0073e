"""Finds protected files on disk, whatever made them: by their names, and as control files of git repositories.

Folders are remembered with the time of their last change, so that a second scan lists only those in which an entry was
made, renamed or removed; of all others it reads the stat.
"""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from wieldy.policy.permissions.protected import (
    FOLDER_PAIRS,
    GIT_CONTROL,
    PACKAGES,
    PROTECTED_NAMES,
    PROTECTED_PREFIXES,
    Protection,
)
from wieldy.shell.sandbox.repositories import CONTROL_NAMES, is_repository

MAX_FILES = 5_000
MAX_CONTENT = 1 << 20
# Clocks of file systems tick slowly: what changed this shortly before cannot be told from what comes after.
CLOCK_TICK_NS = 50_000_000
TOO_MUCH = "there are more files and folders than sandbox.maxEntries, so protected files in inner folders could not be looked for"
WORK_TREES = "/.claude/worktrees"
_LARGE_FOLDERS = frozenset({"objects", "refs", "logs", "lfs"})
_READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
# What editors write while they run. None of it runs unless the person starts it.
_EDITOR_STATE = (
    "/.idea/workspace.xml",
    "/.idea/usage.statistics.xml",
    "/.idea/shelf/",
    "/.idea/caches/",
    "/.vscode/ipch/",
)

# With what shows that a folder is a repository, and its control files.
_LOOKED_FOR = PROTECTED_NAMES | {*CONTROL_NAMES, "head", "objects", "refs", *(second for _, second in FOLDER_PAIRS)}

FindProtection: TypeAlias = Callable[[str], Protection | None]
Kind: TypeAlias = Literal["file", "symlink", "other"]
# What of a folder counts: entries with protected names, everything, or only the control files of repositories.
_Part: TypeAlias = Literal["named", "all", "git"]


class FileState(Struct, frozen=True):
    """A protected file at one moment. `content` is None for one that is too large; the target of a symlink is its content.

    `links`: it has further names, by which it can be changed.
    """

    kind: Kind
    digest: bytes
    content: bytes | None
    mode: int = 0
    links: bool = False

    def same(self, other: FileState | None) -> bool:
        return other is not None and (self.kind, self.digest, self.mode) == (other.kind, other.digest, other.mode)


class ProtectedState(Struct, frozen=True):
    """The protected files that there are, each with why, and the outermost paths to mount read-only.

    `git` are control files of repositories. `problem`: why some may be missing.
    """

    files: Mapping[str, FileState] = {}
    why: Mapping[str, Protection] = {}
    mounts: tuple[str, ...] = ()
    git: frozenset[str] = frozenset()
    problem: str = ""


class _Folder(NamedTuple):
    key: tuple[int, ...]
    entries: int
    names: tuple[str, ...]  # protected ones, and those that git looks for
    folders: tuple[str, ...]
    files: tuple[str, ...] | None


class ProtectedScanner:
    """Scans folders of one workspace. Its methods block on the disk, and one of them runs at a time."""

    def __init__(self) -> None:
        self._folders: dict[str, _Folder] = {}
        self._states: dict[str, tuple[tuple[int, ...], FileState]] = {}

    def scan(
        self,
        folders: Iterable[str],
        protection_of: FindProtection,
        *,
        max_entries: int,
        git_only: Collection[str] = (),
        packages: bool = False,
        also: Iterable[tuple[str, Protection]] = (),
    ) -> ProtectedState:
        """Look through folders, outer ones first.

        Of the folders `git_only`, and with `packages` of installed packages, only the control files of repositories count.
        `also` are single files, which are found even if there is too much to look through.
        """
        scan = _Scan(self, protection_of, packages)
        for path, protection in also:
            scan.add_file(path, protection)
        tops = dict.fromkeys(folders)
        git_folders = {f"{path}/.git" for path in tops}
        pending: deque[tuple[str, _Part]] = deque(
            (path, "git" if path in git_only or "/.git/" in f"{path}/" else "named") for path in tops
        )
        seen = set(tops)
        left = max_entries
        while pending:
            path, part = pending.popleft()
            folder = self._look(path, list_files=part == "all")
            if folder is None:
                continue
            left -= folder.entries
            if left < 0 and part != "all" and path not in git_folders:
                # The protected files of the folders themselves are always compared.
                scan.problem = TOO_MUCH
                if path not in tops:
                    continue
            if left < -4 * max_entries or len(scan.files) > MAX_FILES:
                scan.problem = TOO_MUCH
                break
            for below in scan.add_folder(path, folder, part):
                if below[0] not in seen:
                    seen.add(below[0])
                    pending.append(below)
        if not scan.problem:
            self._folders = {path: self._folders[path] for path in seen if path in self._folders}
        self._states = {path: self._states[path] for path in scan.files if path in self._states}
        return ProtectedState(scan.files, scan.why, tuple(sorted(scan.mounts)), frozenset(scan.git), scan.problem)

    def _look(self, path: str, *, list_files: bool) -> _Folder | None:
        """The entries of a folder that matter; None if it cannot be listed."""
        try:
            status = os.lstat(path)
            if not stat.S_ISDIR(status.st_mode):
                return None
            key = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
            known = self._folders.get(path)
            if known is not None and known.key == key and not (list_files and known.files is None):
                return known
            started = time.time_ns()
            names: list[str] = []
            folders: list[str] = []
            files: list[str] = []
            count = 0
            with os.scandir(path) as entries:
                for entry in entries:
                    count += 1
                    name = entry.name
                    is_folder = entry.is_dir(follow_symlinks=False)
                    if is_folder:
                        folders.append(name)
                    elif list_files:
                        files.append(name)
                    folded = name.lower()
                    if folded in _LOOKED_FOR or folded.startswith(PROTECTED_PREFIXES):
                        names.append(name)
        except OSError:
            return None
        folder = _Folder(key, count, tuple(names), tuple(folders), tuple(files) if list_files else None)
        if status.st_ctime_ns < started - CLOCK_TICK_NS:
            self._folders[path] = folder
        else:
            self._folders.pop(path, None)
        return folder

    def state_of(self, path: str) -> FileState | None:
        """What is at a path now; None for nothing and for a folder."""
        try:
            status = os.lstat(path)
        except OSError:
            return None
        if stat.S_ISDIR(status.st_mode):
            return None
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISLNK(status.st_mode):
            try:
                target = os.fsencode(os.readlink(path))
            except OSError:
                return None
            return FileState("symlink", target, target)
        if not stat.S_ISREG(status.st_mode):
            return FileState("other", str(stat.S_IFMT(status.st_mode)).encode(), None, mode)
        key = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
        known = self._states.get(path)
        if known is not None and known[0] == key:
            return known[1]
        started = time.time_ns()
        state = _read_state(path, mode, links=status.st_nlink > 1)
        if state is not None and status.st_ctime_ns < started - CLOCK_TICK_NS:
            self._states[path] = key, state
        return state


class _Scan:
    """What one scan has found so far."""

    def __init__(self, scanner: ProtectedScanner, protection_of: FindProtection, packages: bool) -> None:
        self.files: dict[str, FileState] = {}
        self.why: dict[str, Protection] = {}
        self.mounts: set[str] = set()
        self.git: set[str] = set()
        self.problem = ""
        self._scanner = scanner
        self._protection_of = protection_of
        self._packages = packages

    def add_file(self, path: str, protection: Protection) -> None:
        state = self._scanner.state_of(path)
        if state is not None and not any(part in path for part in _EDITOR_STATE):
            self.files[path], self.why[path] = state, protection

    def add_folder(self, path: str, folder: _Folder, part: _Part) -> Iterator[tuple[str, _Part]]:
        """Add the protected files of a folder; returns the folders to look into next, and what of each counts."""
        prefix = path.rstrip("/") + "/"
        own = folder.folders
        in_git_folder = os.path.basename(path) == ".git"
        is_git = in_git_folder or is_repository(folder.names)
        control = [name for name in folder.names if is_git and name in CONTROL_NAMES]
        for name in control:
            self._add_control(prefix + name, is_folder=name in own)
        if ".git" in folder.names and ".git" not in own:
            self._add_control(prefix + ".git", is_folder=False)
        listed = {"all": folder.files or (), "named": folder.names, "git": ()}[part]
        for name in listed:
            if name not in own and name != ".git" and (protection := self._hard_protection(prefix + name)):
                self.add_file(prefix + name, protection)
                if part == "named":
                    self.mounts.add(prefix + name)
        for name in own:
            below = prefix + name
            is_large = is_git and name in _LARGE_FOLDERS and "/.git" in path
            if is_large or name in control or below.endswith(WORK_TREES):
                continue
            if in_git_folder or part == "git" or name == ".git":
                yield below, "git"
            elif name in PACKAGES and part == "named":
                if self._packages:
                    yield below, "git"
            elif part == "named" and name in folder.names and self._hard_protection(below) is not None:
                self.mounts.add(below)
                yield below, "all"
            else:
                yield below, part

    def _add_control(self, path: str, *, is_folder: bool) -> None:
        self.mounts.add(path)
        if not is_folder:
            self.git.add(path)
            self.add_file(path, GIT_CONTROL)
            return
        try:
            names = os.listdir(path)
        except OSError:
            return
        for name in names:
            if not name.endswith(".sample"):
                self.git.add(f"{path}/{name}")
                self.add_file(f"{path}/{name}", GIT_CONTROL)

    def _hard_protection(self, path: str) -> Protection | None:
        protection = self._protection_of(path)
        return None if protection is None or protection.soft else protection


def _read_state(path: str, mode: int, *, links: bool) -> FileState | None:
    import hashlib

    digest = hashlib.blake2b(digest_size=16)
    content = b""
    try:
        descriptor = os.open(path, _READ_FLAGS)
    except OSError as error:
        # What cannot be read is told apart by its stat alone.
        return FileState("file", f"unreadable: {error.errno}".encode(), None, mode, links)
    try:
        while piece := os.read(descriptor, 1 << 20):
            digest.update(piece)
            content = content + piece if len(content) <= MAX_CONTENT else content
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return FileState("file", digest.digest(), content if len(content) <= MAX_CONTENT else None, mode, links)
