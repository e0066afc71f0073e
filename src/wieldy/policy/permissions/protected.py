"""Paths that are never written without asking, whatever the mode: they run by themselves, hold keys or grant permission."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise

from msgspec import Struct

from wieldy.core.secret_files import SECRET_FOLDERS, SECRET_NAMES
from wieldy.policy.permissions.paths import ResolvedPath, is_below, path_key


class Protection(Struct, frozen=True):
    """Why a path is protected. A rule that names the very file lifts a `liftable` protection, any rule a `soft` one."""

    why: str
    liftable: bool = True
    soft: bool = False


_GIT = Protection("git keeps its own files there, hooks that run among them", liftable=False)
GIT_CONTROL = Protection("git runs programs because of it", liftable=False)
_AGENT = Protection("it configures what the agent may do", liftable=False)
_KEYS = Protection("it holds keys or passwords")
_START = Protection("a shell runs it by itself")
_AT_LOGIN = Protection("the desktop runs it by itself")
_ENV = Protection("it holds secrets of the environment")
_EDITOR = Protection("an editor runs commands that it names")
_MEMORY = Protection("it is what the agent remembers from one session to the next", soft=True)
_VENDORED = Protection("installed packages are not edited by hand", soft=True)
_ON_PATH = Protection("its folder is on PATH, so commands run it by its name", soft=True)

FOLDERS = {
    ".git": _GIT,
    ".wieldy": _AGENT,
    ".claude": _AGENT,
    **dict.fromkeys(SECRET_FOLDERS, _KEYS),
    ".husky": Protection("git runs it as a hook"),
    ".vscode": _EDITOR,
    ".idea": _EDITOR,
    "node_modules": _VENDORED,
    ".venv": _VENDORED,  # its programs are on PATH, under any name
    "venv": _VENDORED,
}
PACKAGES = frozenset(name for name, protection in FOLDERS.items() if protection.soft)
"""Folders of installed packages: tools rewrite them, so what is in them is judged by the text of commands only."""
FOLDER_PAIRS = {
    (".config", "gcloud"): _KEYS,
    (".config", "gh"): _KEYS,
    (".docker", "config.json"): _KEYS,
    (".config", "fish"): _START,
    (".config", "autostart"): _AT_LOGIN,
    (".config", "systemd"): _AT_LOGIN,
    (".config", "git"): Protection("git runs commands that it names"),
}
FILES = {
    ".gitmodules": Protection("git fetches what it names"),
    ".gitconfig": Protection("git runs commands that it names"),
    ".mcp.json": _AGENT,
    ".claude.json": _AGENT,
    **dict.fromkeys(SECRET_NAMES, _KEYS),
    **dict.fromkeys((".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile"), _START),
    **dict.fromkeys((".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc"), _START),
    **dict.fromkeys((".login", ".inputrc", ".xprofile", ".xinitrc", ".xsession"), _START),
}
FILE_PATTERNS = {
    ".env*": _ENV,
    "id_rsa*": _KEYS,
    "id_dsa*": _KEYS,
    "id_ecdsa*": _KEYS,
    "id_ed25519*": _KEYS,
}
# Templates that hold no secrets.
_TEMPLATES = (".example", ".sample", ".template", ".dist")
_WILDCARD = re.compile(r"[*?[]")
# Most paths have none of these names, and are done.
PROTECTED_NAMES = frozenset({*FOLDERS, *FILES, *(first for first, _ in FOLDER_PAIRS)})
PROTECTED_PREFIXES = tuple(glob.removesuffix("*") for glob in FILE_PATTERNS)


NAMED_BY_COMMAND = Protection("a hook, the status line or a server of the settings runs or reads it")


class ProtectedFolders(Struct, frozen=True):
    """Real paths of folders and files that are protected on this machine.

    `config` ones hold the user's own settings. `programs` are on PATH: in a project, a program in them could take the name
    of one that only reads. `active` are files that commands of the settings name.
    """

    config: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    active: tuple[str, ...] = ()


NO_FOLDERS = ProtectedFolders()


class ProtectedPaths:
    """Finds protected paths in the workspace of these roots and in the folders given.

    `program_folders` are in the workspace and on PATH.
    """

    def __init__(self, roots: Sequence[str], folders: ProtectedFolders = NO_FOLDERS) -> None:
        self._roots = tuple(roots)
        self._config_folders = folders.config
        self._active = folders.active
        self.program_folders = [folder for folder in folders.programs if any(is_below(folder, root) for root in roots)]

    def find(self, path: ResolvedPath) -> Protection | None:
        """Return why a path may not be written, whether or not it exists; the strictest where its spellings differ."""
        protections = [self._protection_of(spelling, path.folds_case) for spelling in path.spellings]
        return _strictest([protection for protection in protections if protection is not None])

    def matches(self, pattern: str) -> Iterator[str]:
        """Yield a glob, and the paths with a protected name in place of a part of it that may match that."""
        from wieldy.shell.effects.words import may_match

        yield pattern
        parts = pattern.split(os.sep)
        for index, part in enumerate(parts):
            # A part without a letter of its own says nothing about what it means.
            if _WILDCARD.search(part) and re.search(r"\w", re.sub(r"\[[!^][^]]*\]", "", part)):
                for name in (*PROTECTED_NAMES, *(pair[1] for pair in FOLDER_PAIRS), *PROTECTED_PREFIXES):
                    if may_match(part, name):
                        yield os.sep.join((*parts[:index], name, *parts[index + 1 :]))

    def _protection_of(self, path: str, folds_case: bool) -> Protection | None:
        for folder in self._config_folders:
            if is_below(path, folder, folds_case):
                return _MEMORY if is_below(path, os.path.join(folder, "memory"), folds_case) else _AGENT
        # A workspace may itself lie in a folder of such a name, so only what is below it counts.
        root = next((root for root in self._roots if is_below(path, root, folds_case)), None)
        names = path_key(path[len(root) :] if root else path, folds_case).strip(os.sep).split(os.sep)
        places = [_ON_PATH] if self._is_on_path(path, folds_case) else []
        if self._active and path_key(path, folds_case) in {path_key(each, folds_case) for each in self._active}:
            places.append(NAMED_BY_COMMAND)
        if PROTECTED_NAMES.isdisjoint(names) and not names[-1].startswith(PROTECTED_PREFIXES):
            return _strictest(places)
        if (".claude", "worktrees") in pairwise(names):
            # Each folder in it is a work tree of its own.
            names = names[names.index("worktrees") + 2 :] or [""]
        is_memory = root is not None and names[:2] == [".wieldy", "memory"]
        protections = [*places]
        protections += [_MEMORY] if is_memory else []
        protections += [FOLDERS[name] for name in names[2 if is_memory else 0 :] if name in FOLDERS]
        protections += [FOLDER_PAIRS[pair] for pair in pairwise(names) if pair in FOLDER_PAIRS]
        if names[-1] in FILES:
            protections.append(FILES[names[-1]])
        if not names[-1].endswith(_TEMPLATES):
            protections += [protection for glob, protection in FILE_PATTERNS.items() if fnmatchcase(names[-1], glob)]
        return _strictest(protections)

    def _is_on_path(self, path: str, folds_case: bool) -> bool:
        """Whether a path is a folder of programs in the project, or lies directly in one."""
        if not self.program_folders:
            return False
        places = {path_key(path, folds_case), path_key(os.path.dirname(path), folds_case)}
        return any(path_key(folder, folds_case) in places for folder in self.program_folders)


def _strictest(protections: Sequence[Protection]) -> Protection | None:
    return min(protections, key=lambda protection: (protection.soft, protection.liftable), default=None)
