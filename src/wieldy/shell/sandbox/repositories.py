"""Quarantines git repositories that commands in the sandbox made: their settings and hooks would run programs outside it.

Git runs what a repository's settings name (`core.fsmonitor`, hooks) as soon as somebody, an editor or a shell prompt asks for
its status; that of a project also looks into repositories in its folders. Mounts keep existing settings from being changed,
but what does not exist yet cannot be mounted. So these files are listed before a command, and judged after it if they are new.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from wieldy.core.realpath import open_resolved_folder

MAX_ENTRIES = 200_000
MAX_CONFIG_BYTES = 1 << 20
GIT_SECONDS = 5.0
SUFFIX = ".untrusted"
CONTROL_NAMES = ("commondir", "config", "config.worktree", "hooks")
"""The files of a repository that decide what git runs."""
_LARGE_FOLDERS = frozenset({"objects", "refs", "logs", "lfs"})
# What git itself writes into the settings of a new repository, and settings that cannot run anything.
_HARMLESS_KEY = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|eol"
    r"|safecrlf|quotepath|sparsecheckout|sparsecheckoutcone|abbrev|longpaths|preloadindex|untrackedcache|commitgraph)"
    r"|extensions\.(objectformat|refstorage|worktreeconfig|relativeworktrees|partialclone)"
    r"|remote\..*\.(url|pushurl|fetch|push|tagopt|prune|promisor|partialclonefilter|mirror)"
    r"|branch\..*\.(remote|pushremote|merge|rebase|description)|user\.(name|email|signingkey)|(commit|tag)\.gpgsign"
    r"|submodule\.(active|recurse|.*\.(url|active))|init\.defaultbranch|merge\.(ff|conflictstyle)"
    r"|(index|pack|push|pull|fetch|advice|color|feature)\..*|gc\.(auto.*|pruneexpire|reflogexpire.*|packrefs|cruftpacks)",
    re.I,
)

GitFiles: TypeAlias = Mapping[str, tuple[int, int]]
"""Paths of control files with what identifies each: device and inode."""


def find_git_files(folders: Collection[str], max_entries: int = MAX_ENTRIES) -> GitFiles:
    """The files in and below some folders that decide what git runs, and the `.git` files and links that lead to others.

    Outer folders come first, if there are more entries than are looked at.
    """
    files: dict[str, tuple[int, int]] = {}
    pending, seen = deque(folders), set(folders)
    while pending and max_entries > 0:
        folder = pending.popleft()
        try:
            with os.scandir(folder) as scan:
                entries = {entry.name: entry for entry in scan}
        except OSError:
            continue
        max_entries -= len(entries)
        is_repository = _is_repository(entries)
        for name, entry in entries.items():
            is_folder = entry.is_dir(follow_symlinks=False)
            if (is_repository and name in CONTROL_NAMES) or (name == ".git" and not is_folder):
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    files[entry.path] = status.st_dev, status.st_ino
            is_large = is_repository and name in _LARGE_FOLDERS and "/.git" in folder
            if is_folder and not is_large and entry.path not in seen:
                seen.add(entry.path)
                pending.append(entry.path)
    return files


class RepositoryWatch:
    """What decides what git runs in some folders, as it was before a command; the command can write nowhere else.

    `held` are files that cannot have been changed.
    """

    def __init__(self, folders: Collection[str], env: Mapping[str, str], held: Collection[str] = ()) -> None:
        self._folders = folders
        self._env = env
        self._held = held
        self._before = find_git_files(folders)

    def quarantine(self) -> list[str]:
        """Rename what is new if git would run something because of it; returns notes."""
        judge = _Judge(self._before, self._folders, self._env)
        notes: list[str] = []
        for path, identity in sorted(find_git_files(self._folders).items()):
            if path in self._held or self._before.get(path) == identity or judge.is_harmless(path):
                continue
            new_name = _rename(path)
            if new_name is not None:
                notes.append(
                    f"sandbox: {path} was renamed to {new_name}: because of it, git would run programs outside"
                )
        return notes


def _is_repository(names: Collection[str]) -> bool:
    return "HEAD" in names and ("commondir" in names or ("objects" in names and "refs" in names))


class _Judge:
    """Decides whether a new control file can make git run anything."""

    def __init__(self, before: GitFiles, folders: Collection[str], env: Mapping[str, str]) -> None:
        self._before = before
        self._folders = tuple(map(os.path.realpath, folders))
        self._env = env

    def is_harmless(self, path: str) -> bool:
        try:
            match os.path.basename(path):
                case ".git":
                    return self._leads_to_harmless(path)
                case "commondir":
                    return _is_of_linked_work_tree(path)
                case "hooks":
                    return all(name.endswith(".sample") for name in os.listdir(path))
                case _:
                    return self._has_harmless_keys(path)
        except FileNotFoundError:
            return True
        except (OSError, ValueError):
            return False

    def _leads_to_harmless(self, dot_git: str) -> bool:
        if os.path.islink(dot_git):
            repository = os.path.realpath(dot_git)
        else:
            named = Path(dot_git).read_text(errors="surrogateescape").removeprefix("gitdir:").strip()
            repository = os.path.realpath(os.path.join(os.path.dirname(dot_git), named))
        return all(self._is_harmless_repository(folder) for folder in {repository, _shared_folder(repository)})

    def _is_harmless_repository(self, folder: str) -> bool:
        if not any(f"{folder}/".startswith(f"{each}/") for each in self._folders):
            return True
        if os.path.basename(folder) == ".git" and os.path.join(folder, "config") in self._before:
            return True  # whoever uses the project uses it anyway
        return all(self.is_harmless(os.path.join(folder, name)) for name in CONTROL_NAMES)

    def _has_harmless_keys(self, config: str) -> bool:
        if not os.path.isfile(config) or os.path.getsize(config) > MAX_CONFIG_BYTES:
            return not os.path.lexists(config)
        command = ["git", "config", "--file", config, "--no-includes", "-z", "--name-only", "--list"]
        try:
            done = subprocess.run(
                command,
                cwd="/",
                env=dict(self._env),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=GIT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
        keys = os.fsdecode(done.stdout).split("\0")
        return done.returncode == 0 and all(_HARMLESS_KEY.fullmatch(key) for key in keys if key)


def _shared_folder(repository: str) -> str:
    """The folder that a linked work tree shares settings and hooks with; for any other repository, itself."""
    try:
        named = Path(repository, "commondir").read_text(errors="surrogateescape").strip()
    except (FileNotFoundError, NotADirectoryError):
        return repository
    return os.path.realpath(os.path.join(repository, named))


def _is_of_linked_work_tree(commondir: str) -> bool:
    """Whether a `commondir` is one that git makes: in `worktrees/NAME` of the repository that it names."""
    repository = os.path.dirname(commondir)
    folders = os.path.dirname(repository)
    return os.path.basename(folders) == "worktrees" and _shared_folder(repository) == os.path.dirname(folders)


def _rename(path: str) -> str | None:
    """Give a file a name that git does not know; None if it is gone."""
    folder, name = os.path.split(path)
    try:
        descriptor = open_resolved_folder(folder)
    except OSError:
        return None
    try:
        new_name = next(new for new in _new_names(name) if not os.path.lexists(os.path.join(folder, new)))
        os.rename(name, new_name, src_dir_fd=descriptor, dst_dir_fd=descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return new_name


def _new_names(name: str) -> Iterator[str]:
    yield name + SUFFIX
    for number in range(2, 1000):
        yield f"{name}{SUFFIX}-{number}"
