"""How a path is seen: as given and as it really is, inside the allowed roots or not, on a volume that folds case or not."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from wieldy.core.realpath import plain, real_path

_STREAMS = frozenset({"/dev/null", "/dev/zero", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/full"})
_DESCRIPTOR = re.compile(r"/dev/fd/[0-9]+")
_SOURCES = frozenset({"/dev/random", "/dev/urandom"})


class ResolvedPath(Struct, frozen=True):
    """One path under all its names. `views` are spellings to match rules against: as given, and with links followed."""

    views: tuple[str, ...]
    inside: bool
    fold: bool = False

    @property
    def real(self) -> str:
        """The path with every link followed."""
        return self.views[-1]


class CaseProbe:
    """Whether a path lies on a volume that takes `A` and `a` for the same name; found out once for each volume."""

    def __init__(self, stat: Callable[[str], os.stat_result] = os.stat) -> None:
        self._stat = stat
        self._known: dict[int, bool] = {}

    def __call__(self, path: str) -> bool:
        """Look for the nearest existing folder under a name of swapped case."""
        while True:
            try:
                here = self._stat(path)
                break
            except (OSError, ValueError):
                above = os.path.dirname(path)
                if above == path:
                    return False
                path = above
        known = self._known.get(here.st_dev)
        if known is None:
            known = self._folds(path, here)
            if known is None:
                return False
            self._known[here.st_dev] = known
        return known

    def _folds(self, path: str, here: os.stat_result) -> bool | None:
        while (name := os.path.basename(path)).swapcase() == name:
            above = os.path.dirname(path)
            if above == path:
                return None
            path = above
            try:
                up = self._stat(path)
            except OSError:
                return None
            if up.st_dev != here.st_dev:
                return None
            here = up
        try:
            other = self._stat(os.path.join(os.path.dirname(path), name.swapcase()))
        except OSError:
            return False
        return (other.st_dev, other.st_ino) == (here.st_dev, here.st_ino)


class PathResolver:
    """Looks at paths for one workspace. The file system is a parameter."""

    def __init__(
        self,
        roots: Sequence[str],
        *,
        home: str | None = None,
        readable: Sequence[str] = (),
        real: Callable[[str], str] | None = None,
        is_folder: Callable[[str], bool] = os.path.isdir,
        exists: Callable[[str], bool] = os.path.lexists,
        folds_case: Callable[[str], bool] | None = None,
    ) -> None:
        self.roots = tuple(roots)
        self.home = os.path.expanduser("~") if home is None else home
        self.readable = tuple(readable)
        self.real = real_path if real is None else real
        self.is_folder = is_folder
        self.exists = exists
        self.folds_case = CaseProbe() if folds_case is None else folds_case
        self._folder_seen: tuple[tuple[str, int, int], str, bool, bool] = (("", 0, 0), "", False, False)

    @property
    def root(self) -> str:
        """The project's own root."""
        return self.roots[0]

    def look(self, path: str, *, reading: bool = False, resolved: str | None = None) -> ResolvedPath:
        """See a path. Links are followed; what does not exist yet is placed below its nearest existing folder.

        `led_to` is where it led when the call was planned: what will be opened, so what must be judged.
        """
        given = plain(path)
        try:
            real = resolved or self.real(path)  # not of `given`: behind a link, `..` is the target's parent
        except ValueError:  # no file can have such a name
            return ResolvedPath((given,), inside=False)
        fold = self.folds_case(real)
        inside = self._within(real, fold, reading) or is_stream(given, reading)
        if given == real:
            return ResolvedPath((real,), inside, fold)
        return ResolvedPath((self._from_root(given, real, fold), real), inside, fold)

    def _within(self, real: str, fold: bool, reading: bool) -> bool:
        for root in self.roots:
            if below(real, root, fold):
                return True
        return reading and any(below(real, folder, fold) for folder in self.readable)

    def look_again(self, path: str) -> ResolvedPath:
        """See a path for reading, quickly where the one before lay in the same folder, as in a listing of thousands."""
        folder, name = os.path.split(path)
        if "/../" in f"{path}/":
            return self.look(path, reading=True)
        try:
            found = os.stat(folder)
            linked = os.path.islink(path)
        except (OSError, ValueError):
            return self.look(path, reading=True)
        # A folder that was swapped since is another file of the system, so what is remembered cannot be stale.
        key = (folder, found.st_dev, found.st_ino)
        if linked or key != self._folder_seen[0]:
            seen = self.look(path, reading=True)
            if not linked and seen.real.endswith(f"/{name}"):
                self._folder_seen = (key, seen.real[: -len(name)], seen.inside, seen.fold)
            return seen
        _, real_folder, inside, fold = self._folder_seen
        views = dict.fromkeys((path, real_folder + name))
        return ResolvedPath(tuple(views), inside, fold)

    def _from_root(self, given: str, real: str, fold: bool) -> str:
        """A path given through another name of a root, spelled from the root itself."""
        for root in self.roots:
            if below(given, root, fold) or not below(real, root, fold):
                continue
            folder, tail = given, ""
            while folder != os.path.dirname(folder):
                if self.real(folder) == root:
                    return os.path.join(root, tail) if tail else root
                folder, name = os.path.split(folder)
                tail = os.path.join(name, tail) if tail else name
        return given


def below(path: str, folder: str, fold: bool = False) -> bool:
    """Whether a path is a folder or lies in it."""
    if fold or not (path.isascii() and folder.isascii()):
        path, folder = key(path, fold), key(folder, fold)
    return path.startswith(folder) and (len(path) == len(folder) or folder[-1:] == "/" or path[len(folder)] == "/")


def key(path: str, fold: bool = False) -> str:
    """A spelling under which equal files compare equal: composed characters, and folded case where the volume folds it."""
    if not path.isascii():
        import unicodedata

        path = unicodedata.normalize("NFC", path)
    return path.casefold() if fold else path


def is_stream(path: str, reading: bool = False) -> bool:
    """Whether a path is no file at all but a stream that every process has."""
    if not path.startswith("/dev/"):
        return False
    return path in _STREAMS or _DESCRIPTOR.fullmatch(path) is not None or (reading and path in _SOURCES)
