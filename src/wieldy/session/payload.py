"""Long strings of a transcript, kept in files beside it: each once, named by what it holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from wieldy.session.syncer import sync_folder

LONG = 65_536  # characters
LOST = "(this part of the transcript is lost)"


class Payloads:
    """The long strings of one session's records."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "payloads"
        self._unsynced: list[Path] = []

    def outside(self, value: Any) -> Any:
        """A value with its long strings replaced by the names of the files that hold them."""
        if isinstance(value, str):
            return self._stored(value) if len(value) > LONG else value
        if isinstance(value, dict):
            return {key: self.outside(item) for key, item in value.items()}
        return [self.outside(item) for item in value] if isinstance(value, list | tuple) else value

    def inside(self, value: Any) -> Any:
        """The value as it was."""
        if isinstance(value, dict):
            if value.keys() == {"$payload"}:
                return self._fetched(str(value["$payload"]))
            return {key: self.inside(item) for key, item in value.items()}
        return [self.inside(item) for item in value] if isinstance(value, list) else value

    def sync(self) -> None:
        """Bring what was stored since the last time to disk. Blocking: the log's own thread does it."""
        if not self._unsynced:
            return
        while self._unsynced:
            opened = os.open(self._unsynced.pop(), os.O_RDONLY)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)
        sync_folder(self.folder)

    def _stored(self, text: str) -> dict[str, str]:
        data = text.encode("utf-8", "surrogatepass")
        name = _name_of(data)
        path = self.folder / name
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary = self.folder / f".{name}.{os.getpid()}"
            temporary.write_bytes(data)
            temporary.replace(path)
            self._unsynced.append(path)
        return {"$payload": name}

    def _fetched(self, name: str) -> str:
        if not name.isalnum():
            return LOST
        try:
            data = (self.folder / name).read_bytes()
        except OSError:
            return LOST
        return data.decode("utf-8", "replace") if _name_of(data) == name else LOST


def _name_of(data: bytes) -> str:
    import base64
    import hashlib

    return base64.b32encode(hashlib.blake2b(data, digest_size=20).digest()).decode().lower()


def has_long_strings(value: Any) -> bool:
    """Whether anything in a record is too long to be kept in it."""
    if isinstance(value, str):
        return len(value) > LONG
    if isinstance(value, dict):
        return any(map(has_long_strings, value.values()))
    return any(map(has_long_strings, value)) if isinstance(value, list | tuple) else False
