"""Resolves paths for permission decisions: symlinks, the allowed folders, and volumes that ignore case."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from wieldy.core.filesystem import LOCAL_FILES, FileSystem, RemoteFileSystem

_STREAMS = frozenset({"/dev/null", "/dev/zero", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/full"})
_DESCRIPTOR = re.compile(r"/dev/fd/[0-9]+")
_SOURCES = frozenset({"/dev/random", "/dev/urandom"})


class ResolvedPath(Struct, frozen=True):
    """A path for rules to match. `spellings` are the path as given and, where it differs, with all symlinks followed."""

    spellings: tuple[str, ...]
    inside: bool
    folds_case: bool = False

    @property
    def real(self) -> str:
        return self.spellings[-1]


class CaseProbe:
    """Finds out, once per volume, whether `A` and `a` are the same name on it."""

    def __init__(self, stat: Callable[[str], os.stat_result] = os.stat) -> None:
        self._stat = stat
        self._by_device: dict[int, bool] = {}

    def __call__(self, path: str) -> bool:
        while True:
            try:
                status = self._stat(path)
                break
            except (OSError, ValueError):
                parent = os.path.dirname(path)
                if parent == path:
                    return False
                path = parent
        if status.st_dev not in self._by_device:
            folds = self._probe(path, status)
            if folds is None:
                return False
            self._by_device[status.st_dev] = folds
        return self._by_device[status.st_dev]

    def _probe(self, path: str, status: os.stat_result) -> bool | None:
        """Look up the nearest folder whose name has letters under a name of swapped case; None where there is none."""
        while (name := os.path.basename(path)).swapcase() == name:
            parent = os.path.dirname(path)
            if parent == path:
                return None
            path = parent
            try:
                parent_status = self._stat(path)
            except OSError:
                return None
            if parent_status.st_dev != status.st_dev:
                return None
            status = parent_status
        try:
            swapped = self._stat(os.path.join(os.path.dirname(path), name.swapcase()))
        except OSError:
            return False
        return (swapped.st_dev, swapped.st_ino) == (status.st_dev, status.st_ino)


class PathResolver:
    """Resolves the paths of one workspace. The file system is a parameter: `files`, of which tests replace single questions.

    `readable` folders may be read, but not written. So may `main_repository`, to which a linked work tree belongs.
    """

    def __init__(  # noqa: PLR0913 - every option is a keyword with a default
        self,
        roots: Sequence[str],
        *,
        home: str | None = None,
        project: str | None = None,
        readable: Sequence[str] = (),
        main_repository: str | None = None,
        files: FileSystem = LOCAL_FILES,
        real: Callable[[str], str] | None = None,
        is_folder: Callable[[str], bool] | None = None,
        exists: Callable[[str], bool] | None = None,
        folds_case: Callable[[str], bool] | None = None,
    ) -> None:
        self.files = files
        self.roots = tuple(roots)
        # Where path rules without an anchor start.
        self.project = project or self.roots[0]
        self.home = os.path.expanduser("~") if home is None else home
        self.real = files.realpath if real is None else real
        self.is_folder = files.is_folder if is_folder is None else is_folder
        self.exists = files.exists if exists is None else exists
        self.main_repository = main_repository
        self._readable = tuple(readable) if main_repository is None else (*readable, main_repository)
        self._folds_case = CaseProbe(files.stat) if folds_case is None else folds_case
        # The folder of the last path of a listing: its path and identity, its real path, and what holds for its files.
        self._last_folder: tuple[tuple[str, int, int], str, bool, bool] = (("", 0, 0), "", False, False)

    @property
    def root(self) -> str:
        return self.roots[0]

    def with_roots(self, roots: Sequence[str]) -> PathResolver:
        """Return a resolver for other allowed folders of the same file system."""
        return self._with(roots, self.project, ())

    def for_copy(self, root: str, project: str) -> PathResolver:
        """Return a resolver for a copy of the project: the copy is the only folder to work in, the original can be read."""
        return self._with((root,), project, self.roots)

    def _with(self, roots: Sequence[str], project: str, also_readable: Sequence[str]) -> PathResolver:
        readable = [folder for folder in self._readable if folder != self.main_repository]
        return PathResolver(
            roots,
            home=self.home,
            project=project,
            readable=(*readable, *also_readable),
            main_repository=self.main_repository,
            files=self.files,
            real=self.real,
            is_folder=self.is_folder,
            exists=self.exists,
            folds_case=self._folds_case,
        )

    def folds_case(self, path: str) -> bool:
        """Whether names that differ only in case are the same on the volume of a path."""
        return self._folds_case(path)

    def resolve(self, path: str, *, reading: bool = False, resolved: str | None = None) -> ResolvedPath:
        """Follow the symlinks of a path; what does not exist is placed below its nearest existing folder.

        `resolved` is the real path found when the call was planned: that file is opened, so that file is judged.
        """
        normalized = normalize_path(path)
        try:
            real = resolved or self.real(path)  # not of `normalized`: behind a symlink, `..` is the target's parent
        except (ValueError, OSError):  # no file can have such a name, or where it leads may not be read
            return ResolvedPath((normalized,), inside=False)
        folds_case = self._folds_case(real)
        inside = self._is_allowed(real, folds_case, reading) or is_stream(normalized, reading)
        if normalized == real:
            return ResolvedPath((real,), inside, folds_case)
        return ResolvedPath((self._respell_from_root(normalized, real, folds_case), real), inside, folds_case)

    def resolve_listed(self, path: str) -> ResolvedPath:
        """Resolve a path for reading, reusing the folder of the path before, as in a listing of thousands."""
        folder, name = os.path.split(path)
        if "/../" in f"{path}/" or isinstance(self.files, RemoteFileSystem):
            return self.resolve(path, reading=True)
        try:
            status = os.stat(folder)
            is_link = os.path.islink(path)
        except (OSError, ValueError):
            return self.resolve(path, reading=True)
        # A folder that was swapped since has another inode, so the memory cannot be stale.
        identity = (folder, status.st_dev, status.st_ino)
        if is_link or identity != self._last_folder[0]:
            resolved = self.resolve(path, reading=True)
            if not is_link and resolved.real.endswith(f"/{name}"):
                real_folder = resolved.real[: -len(name)]
                self._last_folder = (identity, real_folder, resolved.inside, resolved.folds_case)
            return resolved
        _, real_folder, inside, folds_case = self._last_folder
        return ResolvedPath(tuple(dict.fromkeys((path, real_folder + name))), inside, folds_case)

    def _is_allowed(self, real: str, folds_case: bool, reading: bool) -> bool:
        folders = (*self.roots, *self._readable) if reading else self.roots
        return any(is_below(real, folder, folds_case) for folder in folders)

    def _respell_from_root(self, path: str, real: str, folds_case: bool) -> str:
        """Spell a path that was given through another name of a root from the root itself."""
        for root in self.roots:
            if is_below(path, root, folds_case) or not is_below(real, root, folds_case):
                continue
            folder, tail = path, ""
            while folder != os.path.dirname(folder):
                if self.real(folder) == root:
                    return os.path.join(root, tail) if tail else root
                folder, name = os.path.split(folder)
                tail = os.path.join(name, tail) if tail else name
        return path


def normalize_path(path: str) -> str:
    """Return an absolute path without `.`, `..` and doubled slashes."""
    normalized = os.path.normpath(path)
    return normalized[1:] if normalized.startswith("//") else normalized


def is_below(path: str, folder: str, folds_case: bool = False) -> bool:
    """Return whether a path is the folder or lies in it."""
    if folds_case or not (path.isascii() and folder.isascii()):
        path, folder = path_key(path, folds_case), path_key(folder, folds_case)
    return path.startswith(folder) and (len(path) == len(folder) or folder[-1:] == "/" or path[len(folder)] == "/")


def path_key(path: str, folds_case: bool = False) -> str:
    """Normalize a path so that names of the same file compare equal: NFC, and folded case where the volume folds it."""
    if not path.isascii():
        import unicodedata

        path = unicodedata.normalize("NFC", path)
    return path.casefold() if folds_case else path


def is_stream(path: str, reading: bool = False) -> bool:
    """Return whether a path is a stream that every process has, not a file."""
    if not path.startswith("/dev/"):
        return False
    return path in _STREAMS or _DESCRIPTOR.fullmatch(path) is not None or (reading and path in _SOURCES)
