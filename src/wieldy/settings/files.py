"""Whether the files that settings come from are still those that were read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypeAlias

from wieldy.core.places import config_home
from wieldy.permissions.trust import FILE_NAME
from wieldy.settings.source import MCP_FILE, foreign_places, own_places

Stamp: TypeAlias = tuple[int, int, int] | None


class SettingsFiles:
    """The settings files of a folder. A look costs a few microseconds, so every request may take one.

    `named` is the file of the command line; `others` says whether any other counts, `foreign` whether those of the other
    program do.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        env: Mapping[str, str] = os.environ,
        *,
        named: str | os.PathLike[str] | None = None,
        others: bool = True,
    ) -> None:
        here = os.path.realpath(root)
        self._own: tuple[str, ...] = () if named is None else (os.path.abspath(named),)
        self._foreign: tuple[str, ...] = ()
        if others:
            self._own += (
                *(str(place.file) for place in own_places(here, env)),
                os.path.join(here, MCP_FILE),
                str(config_home(env) / FILE_NAME),
            )
            self._foreign = tuple(str(place.file) for place in foreign_places(here, env))
        self.foreign = True
        self._seen = self._look()

    def changed(self) -> bool:
        """Whether any of them has come, gone or changed since the last look."""
        now = self._look()
        if all(self._seen[file] == stamp for file, stamp in now.items()):
            return False
        self._seen |= now
        return True

    def _look(self) -> dict[str, Stamp]:
        return {file: _stamp(file) for file in (*self._own, *(self._foreign if self.foreign else ()))}


def _stamp(path: str) -> Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
