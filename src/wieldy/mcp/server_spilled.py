"""Results too long for an answer, as resources: one folder, and nothing outside it."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from wieldy.core.threads import in_thread
from wieldy.mcp.server_result import Wire

if TYPE_CHECKING:
    import mcp_types as types

SCHEME = "wieldy://results/"
TEMPLATE = SCHEME + "{name}"
MOST_BYTES = 32 * 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


class NoSuchResult(LookupError):
    """The address is not that of a kept result."""


class Spilled:
    """The kept results of one toolbox."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mention = re.compile(re.escape(f"{folder}{os.sep}") + f"({_NAME.pattern})")

    def links(self, text: str) -> list[Wire]:
        """Links to the kept results that a text speaks of."""
        if str(self.folder) not in text:
            return []
        names = dict.fromkeys(name.rstrip(".") for name in self._mention.findall(text))
        return [self._link(name) for name in names if self._is_kept(name)]

    def _link(self, name: str) -> Wire:
        size = (self.folder / name).stat().st_size
        return {"type": "resource_link", "uri": SCHEME + name, "name": name, "mimeType": "text/plain", "size": size}

    def _is_kept(self, name: str) -> bool:
        try:
            return stat.S_ISREG(os.lstat(self.folder / name).st_mode)
        except OSError:
            return False

    def listed(self) -> list[types.Resource]:
        """Every kept result, oldest name first."""
        import mcp_types as types

        try:
            names = sorted(name for name in os.listdir(self.folder) if _NAME.fullmatch(name) and self._is_kept(name))
        except FileNotFoundError:
            return []
        return [
            types.Resource(
                uri=SCHEME + name, name=name, mime_type="text/plain", size=(self.folder / name).stat().st_size
            )
            for name in names
        ]

    async def read(self, uri: str) -> str:
        """The text of a kept result. Raises `NoSuchResult`, which says what to do."""
        name = uri.removeprefix(SCHEME)
        if name == uri or not _NAME.fullmatch(name):
            raise NoSuchResult(f"{uri[:200]} is not the address of a kept result; resources/list names them")
        return await in_thread(self._text, name)

    def _text(self, name: str) -> str:
        path = self.folder / name
        try:
            # A link in the folder would lead out of it, and a pipe would never end.
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            raise _unknown(name) from None
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise _unknown(name)
            if found.st_size > MOST_BYTES:
                raise NoSuchResult(
                    f"{name} is a kept result too big to be sent in one piece ({found.st_size:,} bytes). "
                    f"Read {path} in parts with Read."
                )
            with open(handle, "rb", closefd=False) as file:
                return file.read().decode("utf-8", errors="replace")
        finally:
            os.close(handle)


def _unknown(name: str) -> NoSuchResult:
    return NoSuchResult(f"there is no kept result {name}; resources/list names them")
