"""Files for the long strings of a transcript."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from wieldy.core.state_dirs import make_private_folder, open_private

PAYLOAD_CHARS = 65_536  # longer strings are kept in files of their own
PAYLOAD_LOST = "(this part of the transcript is lost)"


class PayloadStore:
    """Keeps the long strings of a session's records in files named by their hash."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "payloads"
        self._unsynced: list[Path] = []

    def extract(self, value: Any) -> Any:
        """Replace long strings in a JSON value by references to files."""
        if isinstance(value, str):
            return self._store(value) if len(value) > PAYLOAD_CHARS else value
        if isinstance(value, dict):
            return {key: self.extract(item) for key, item in value.items()}
        return [self.extract(item) for item in value] if isinstance(value, list | tuple) else value

    def restore(self, value: Any) -> Any:
        """Replace references by the strings."""
        if isinstance(value, dict):
            if value.keys() == {"$payload"}:
                return self._load(str(value["$payload"]))
            return {key: self.restore(item) for key, item in value.items()}
        return [self.restore(item) for item in value] if isinstance(value, list) else value

    def fsync(self) -> None:
        """Bring new files to disk."""
        if not self._unsynced:
            return
        while self._unsynced:
            file = os.open(self._unsynced.pop(), os.O_RDONLY)
            try:
                os.fsync(file)
            finally:
                os.close(file)
        fsync_folder(self.folder)

    def _store(self, text: str) -> dict[str, str]:
        data = text.encode("utf-8", "surrogatepass")
        name = _hash_name(data)
        path = self.folder / name
        if not path.exists():
            make_private_folder(self.folder)
            temporary = self.folder / f".{name}.{os.getpid()}"
            with open(temporary, "wb", opener=open_private) as file:
                file.write(data)
            temporary.replace(path)
            self._unsynced.append(path)
        return {"$payload": name}

    def _load(self, name: str) -> str:
        if not name.isalnum():
            return PAYLOAD_LOST
        try:
            data = (self.folder / name).read_bytes()
        except OSError:
            return PAYLOAD_LOST
        return data.decode("utf-8", "replace") if _hash_name(data) == name else PAYLOAD_LOST


def _hash_name(data: bytes) -> str:
    import base64
    import hashlib

    return base64.b32encode(hashlib.blake2b(data, digest_size=20).digest()).decode().lower()


def fsync_folder(folder: Path) -> None:
    """Bring the names in a folder to disk, where the system can do that."""
    try:
        file = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(file)
    except OSError:
        return
    finally:
        os.close(file)
