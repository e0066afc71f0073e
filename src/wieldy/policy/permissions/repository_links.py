"""What git reads outside a repository because of links and names in its folder, which may have come with an archive.

Symlinks among the files of git's folder, the folders that `.git`, `commondir` and `alternates` name, and the files that its
settings name. Loose objects and work tree files are not among them: their names are hashes, or are judged on their own.
"""

from __future__ import annotations

import os
import re

from msgspec import Struct

from wieldy.core.filesystem import LOCAL_FILES, FileSystem
from wieldy.policy.permissions.paths import is_below
from wieldy.shell.effects.sweeps import UncertainNames

MAX_FOLDERS = 2_000
MAX_POINTER_SIZE = 1_000_000
MAX_ALTERNATES = 5
MAX_CACHED = 64
# In these every file may be read, at any depth; the others are read by name.
_WALKED = ("info", "refs", "logs", "objects/info", "rebase-merge", "rebase-apply", "sequencer", "worktrees", "reftable")
_LISTED = ("", "objects", "objects/pack")
_FILE_SETTING = re.compile(r"^[ \t]*(path|skiplist|\w*file)[ \t]*=[ \t]*(.+)$", re.IGNORECASE | re.MULTILINE)
_SETTING_ENDS = re.compile(r"[ \t]*[#;].*$|\"")


class _Finding(Struct, frozen=True):
    """Links and named paths of one git folder, and the state of all that was looked at to find them."""

    looked_at: dict[str, tuple[int, int, int]]
    links: tuple[str, ...]
    named: tuple[str, ...]


_cache: dict[tuple[str, str], _Finding] = {}


def outside_reads(cwd: str, files: FileSystem = LOCAL_FILES) -> list[str]:
    """Return the paths outside git's own folders that git may read in a folder. Raises `UncertainNames`."""
    root = files.realpath(cwd)
    while not files.exists(os.path.join(root, ".git")):
        if root == (root := os.path.dirname(root)):
            return []
    git_dir = _git_dir(root, files)
    common = _pointed(git_dir, "commondir", files) or git_dir
    own = [folder for folder in dict.fromkeys((git_dir, common)) if _belongs(folder, root, git_dir, common, files)]
    outside = [folder for folder in (git_dir, common) if folder not in own]
    if files.is_link(os.path.join(root, ".git")):
        outside.append(files.realpath(os.path.join(root, ".git")))
    for folder in own:
        found = _look(folder, root, files)
        paths = (*map(files.realpath, found.links), *map(files.realpath, found.named))
        outside += [path for path in paths if not any(is_below(path, one) for one in own)]
    return list(dict.fromkeys(outside))


def _git_dir(root: str, files: FileSystem) -> str:
    path = os.path.join(root, ".git")
    if files.is_folder(path):
        return files.realpath(path)
    text = _read(path, files)
    return files.realpath(os.path.join(root, text.removeprefix("gitdir:").strip())) if text else path


def _pointed(folder: str, name: str, files: FileSystem) -> str | None:
    """The path in a file of git's folder that names another one."""
    text = _read(os.path.join(folder, name), files).strip()
    return files.realpath(os.path.join(folder, text)) if text else None


def _belongs(folder: str, root: str, git_dir: str, common: str, files: FileSystem) -> bool:
    """Whether one of git's folders is in the work tree, or of a repository that has this work tree.

    A work tree or submodule can name any repository: what counts is that the repository names it in turn.
    """
    if is_below(folder, root):
        return True
    if is_below(git_dir, root):
        return False
    if os.path.dirname(git_dir) == os.path.join(common, "worktrees"):
        return _pointed(git_dir, "gitdir", files) == os.path.join(root, ".git")
    work_tree = re.search(r"^\s*worktree\s*=\s*(.+?)\s*$", _read(os.path.join(git_dir, "config"), files), re.M)
    return work_tree is not None and files.realpath(os.path.join(git_dir, work_tree[1].strip('"'))) == root


def _look(git_dir: str, root: str, files: FileSystem) -> _Finding:
    """The links and names in one of git's folders, from memory while nothing there has changed."""
    known = _cache.get((git_dir, root)) if files is LOCAL_FILES else None
    if known is not None and all(_state(path, files) == state for path, state in known.looked_at.items()):
        return known
    finder = _Finder(root, files)
    for name in _LISTED:
        finder.list_folder(os.path.join(git_dir, name))
    for name in _WALKED:
        finder.walk(os.path.join(git_dir, name))
    finder.add_alternates(os.path.join(git_dir, "objects"), MAX_ALTERNATES)
    for name in ("config", "config.worktree"):
        finder.add_settings(os.path.join(git_dir, name), git_dir)
    finding = _Finding(finder.looked_at, tuple(finder.links), tuple(finder.named))
    if files is LOCAL_FILES:
        if len(_cache) >= MAX_CACHED:
            _cache.clear()
        _cache[git_dir, root] = finding
    return finding


class _Finder:
    def __init__(self, root: str, files: FileSystem) -> None:
        self.looked_at: dict[str, tuple[int, int, int]] = {}
        self.links: list[str] = []
        self.named: list[str] = []
        self._root = root
        self._files = files

    def list_folder(self, path: str) -> list[str]:
        """Note the links in a folder; its own folders."""
        self.looked_at[path] = _state(path, self._files)
        if len(self.looked_at) > MAX_FOLDERS:
            raise UncertainNames(f"{path} is one of too many folders of git to see whether links lead out of it")
        try:
            entries = self._files.list_folder(path)
        except OSError:
            return []  # git cannot list it either
        # Reading commands run no hooks.
        self.links += [entry.path for entry in entries if entry.is_symlink() and entry.name != "hooks"]
        return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]

    def walk(self, path: str) -> None:
        pending = [path]
        while pending:
            pending += self.list_folder(pending.pop())

    def add_alternates(self, objects: str, depth: int) -> None:
        path = os.path.join(objects, "info", "alternates")
        for line in self._read(path).splitlines():
            if line.strip() and not line.startswith("#"):
                folder = self._files.realpath(os.path.join(objects, line.strip().strip('"')))
                self.named.append(folder)
                if depth:
                    self.add_alternates(folder, depth - 1)

    def add_settings(self, path: str, git_dir: str) -> None:
        for name, written in _FILE_SETTING.findall(self._read(path)):
            value = _SETTING_ENDS.sub("", written).strip()
            starts = (git_dir,) if name.lower() == "path" else (git_dir, self._root)
            for start in starts if value else ():
                target = os.path.normpath(os.path.join(start, os.path.expanduser(value)))
                # What lies in the work tree came with it, as the settings did.
                if self._files.exists(target) and not (name.lower() != "path" and is_below(target, self._root)):
                    self.named.append(target)

    def _read(self, path: str) -> str:
        self.looked_at[path] = _state(path, self._files)
        return _read(path, self._files)


def _state(path: str, files: FileSystem) -> tuple[int, int, int]:
    try:
        status = files.stat(path)
    except (OSError, ValueError):
        return (0, 0, 0)
    return (status.st_ino, status.st_mtime_ns, status.st_size)


def _read(path: str, files: FileSystem) -> str:
    """The text of a small regular file; nothing of any other."""
    try:
        return files.read_start(path, MAX_POINTER_SIZE).decode("utf-8", "replace") if files.is_file(path) else ""
    except OSError:
        return ""
