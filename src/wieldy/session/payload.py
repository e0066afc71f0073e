"""Long strings of a transcript, kept in files beside it: each once, named by what it holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

LONG = 65_536  # characters
LOST = "(this part of the transcript is lost)"


class Payloads:
    """The long strings of one session's records."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "payloads"

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

    def _stored(self, text: str) -> dict[str, str]:
        import base64
        import hashlib

        data = text.encode("utf-8", "surrogatepass")
        name = base64.b32encode(hashlib.blake2b(data, digest_size=20).digest()).decode().lower()
        path = self.folder / name
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary = self.folder / f".{name}.{os.getpid()}"
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        return {"$payload": name}

    def _fetched(self, name: str) -> str:
        if not name.isalnum():
            return LOST
        try:
            return (self.folder / name).read_bytes().decode("utf-8", "replace")
        except OSError:
            return LOST


def has_long_strings(value: Any) -> bool:
    """Whether anything in a record is too long to be kept in it."""
    if isinstance(value, str):
        return len(value) > LONG
    if isinstance(value, dict):
        return any(map(has_long_strings, value.values()))
    return any(map(has_long_strings, value)) if isinstance(value, list | tuple) else False
