"""Files for the long strings of a transcript."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from wieldy.core.state_dirs import make_private_folder, open_private

PAYLOAD_CHARS = 65_536  # longer strings are kept in files of their own
PAYLOAD_LOST = "(this part of the transcript is lost)"
REFERENCE = "$payload"

_ESCAPED = re.compile(r"\$+payload")


class PayloadStore:
    """Keeps the long strings of a session's records in files named by their hash.

    A reference is an object with the one key `$payload`. Data of that form gets another `$` in its key.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "payloads"
        self._unsynced: list[Path] = []

    def extract(self, value: Any) -> Any:
        """Replace long strings in a JSON value by references to files, and escape what looks like a reference."""
        if isinstance(value, str):
            return self._store(value) if len(value) > PAYLOAD_CHARS else value
        if isinstance(value, dict):
            if (key := _reference_key(value)) is not None:
                return {f"${key}": self.extract(value[key])}
            return {key: self.extract(item) for key, item in value.items()}
        return [self.extract(item) for item in value] if isinstance(value, list | tuple) else value

    def restore(self, value: Any) -> Any:
        """Replace references by the strings."""
        if isinstance(value, dict):
            if (key := _reference_key(value)) is not None:
                return self._load(str(value[key])) if key == REFERENCE else {key[1:]: self.restore(value[key])}
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
        return {REFERENCE: name}

    def _load(self, name: str) -> str:
        if not name.isalnum():
            return PAYLOAD_LOST
        try:
            data = (self.folder / name).read_bytes()
        except OSError:
            return PAYLOAD_LOST
        return data.decode("utf-8", "replace") if _hash_name(data) == name else PAYLOAD_LOST


def may_hold_reference(line: bytes) -> bool:
    """Whether an encoded record may hold a reference, or data that looks like one."""
    return b'$payload"' in line


def _reference_key(value: dict[str, Any]) -> str | None:
    """The key of an object that is a reference, or looks like one."""
    if len(value) != 1:
        return None
    [key] = value
    return key if isinstance(key, str) and _ESCAPED.fullmatch(key) else None


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
