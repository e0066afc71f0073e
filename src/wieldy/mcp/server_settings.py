"""Whether the files that settings come from are still those that were read."""

from __future__ import annotations

import os
from typing import TypeAlias

from wieldy.core.places import config_home
from wieldy.permissions.trust import FILE_NAME
from wieldy.settings.compat import MCP_FILE
from wieldy.settings.source import foreign_places, own_places

Stamp: TypeAlias = tuple[int, int, int] | None


class SettingsFiles:
    """The settings files of a folder. A look costs a few microseconds, so every request may take one."""

    def __init__(self, root: str) -> None:
        places = (*own_places(root, os.environ), *foreign_places(root, os.environ))
        self._files = (
            *(str(place.file) for place in places),
            os.path.join(root, MCP_FILE),
            str(config_home(os.environ) / FILE_NAME),
        )
        self._seen = self._look()

    def changed(self) -> bool:
        """Whether any of them has come, gone or changed since the last look."""
        before, self._seen = self._seen, self._look()
        return before != self._seen

    def _look(self) -> tuple[Stamp, ...]:
        return tuple(map(_stamp, self._files))


def _stamp(path: str) -> Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
