"""The folders a client says it works in, as folders its calls may work in."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from wieldy.core.event import Notice
from wieldy.core.threads import in_thread

if TYPE_CHECKING:
    from wieldy.toolbox import Toolbox


class Roots:
    """What a client's roots add to those of the settings. Asked for before the first call, and after they changed."""

    def __init__(self, box: Toolbox) -> None:
        self._box = box
        self._own = box.workspace.extra_roots
        self.unknown = True

    async def use(self, addresses: Iterable[str]) -> None:
        """Allow work in the folders that these `file:` addresses name, in place of those named before."""
        found = await in_thread(lambda: {address: folder_at(address) for address in addresses})
        self.unknown = False
        for address, folder in found.items():
            if folder is None:
                self._box.events.emit(Notice(text=f"a root of the client is not a folder to work in: {address[:200]}"))
        workspace = self._box.workspace
        folders = (folder for folder in found.values() if folder and folder != workspace.root)
        roots = tuple(dict.fromkeys((*self._own, *folders)))
        if roots != workspace.extra_roots:
            workspace.extra_roots = roots
            self._box.policy.use_roots(workspace.roots)


def folder_at(address: str) -> str | None:
    """The folder of a `file:` address on this machine; None for one that is not there, and for the whole disk."""
    parts = urlsplit(address)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or "\0" in (path := unquote(parts.path)):
        return None
    folder = os.path.realpath(path)
    return folder if os.path.isabs(path) and os.path.isdir(folder) and os.path.dirname(folder) != folder else None
