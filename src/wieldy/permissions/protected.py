"""Paths that are not written without a person's word, whatever the mode: what runs by itself, holds keys or grants permission."""

from __future__ import annotations

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import pairwise

from msgspec import Struct

from wieldy.permissions.paths import ResolvedPath, below, key


class Protection(Struct, frozen=True):
    """Why a path is protected. `liftable` ones may be allowed by a rule that names the very file, `soft` ones by any rule."""

    why: str
    liftable: bool = True
    soft: bool = False


_GIT = Protection("git keeps its own files there, hooks that run among them", liftable=False)
_AGENT = Protection("it configures what the agent may do", liftable=False)
_KEYS = Protection("it holds keys or passwords")
_START = Protection("a shell runs it by itself")
_ENV = Protection("it holds secrets of the environment")
_MEMORY = Protection("it is what the agent remembers from one session to the next", soft=True)
_VENDORED = Protection("installed packages are not edited by hand", soft=True)

FOLDERS = {
    ".git": _GIT,
    ".wieldy": _AGENT,
    ".claude": _AGENT,
    ".ssh": _KEYS,
    ".gnupg": _KEYS,
    ".aws": _KEYS,
    ".azure": _KEYS,
    ".kube": _KEYS,
    "node_modules": _VENDORED,
}
FOLDER_PAIRS = {
    (".config", "gcloud"): _KEYS,
    (".config", "gh"): _KEYS,
    (".docker", "config.json"): _KEYS,
    (".config", "fish"): _START,
    (".config", "git"): Protection("git runs commands that it names"),
}
FILES = {
    ".gitmodules": Protection("git fetches what it names"),
    ".gitconfig": Protection("git runs commands that it names"),
    ".mcp.json": _AGENT,
    ".claude.json": _AGENT,
    **dict.fromkeys((".npmrc", ".pypirc", ".netrc", "_netrc", ".git-credentials", ".pgpass", ".boto", ".s3cfg"), _KEYS),
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
# Most paths have none of these names and need no closer look.
_REMARKABLE = frozenset({*FOLDERS, *FILES, *(first for first, _ in FOLDER_PAIRS)})
_BEGINNINGS = tuple(glob.removesuffix("*") for glob in FILE_PATTERNS)


class ProtectedPaths:
    """Tells protected paths. `folders` are further ones that configure the agent, such as the user's settings."""

    def __init__(self, roots: Sequence[str], folders: Sequence[str] = ()) -> None:
        self._roots = tuple(roots)
        self._folders = tuple(folders)

    def find(self, seen: ResolvedPath) -> Protection | None:
        """Why a path may not be written, whether or not it exists; the strictest where its names differ."""
        return strictest([p for view in seen.views if (p := self._of(view, seen.fold)) is not None])

    def _of(self, path: str, fold: bool) -> Protection | None:
        for folder in self._folders:
            if below(path, folder, fold):
                return _MEMORY if below(path, os.path.join(folder, "memory"), fold) else _AGENT
        # A workspace may itself lie in a folder of such a name; what counts is below it.
        root = next((root for root in self._roots if below(path, root, fold)), None)
        names = key(path[len(root) :] if root else path, fold).strip(os.sep).split(os.sep)
        if _REMARKABLE.isdisjoint(names) and not names[-1].startswith(_BEGINNINGS):
            return None
        found = [_MEMORY] if root and names[:2] == [".wieldy", "memory"] else []
        found += [FOLDERS[name] for name in names[2 * len(found) :] if name in FOLDERS]
        found += [FOLDER_PAIRS[pair] for pair in pairwise(names) if pair in FOLDER_PAIRS]
        if names[-1] in FILES:
            found.append(FILES[names[-1]])
        found += [p for glob, p in FILE_PATTERNS.items() if fnmatchcase(names[-1], glob)]
        return strictest(found)


def strictest(protections: Sequence[Protection]) -> Protection | None:
    """The one that is hardest to lift."""
    return min(protections, key=lambda p: (p.soft, p.liftable), default=None)
