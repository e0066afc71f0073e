"""Updates a small file of our own (settings, consent, tokens) under a lock, so that several processes may do it at once."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wieldy.core.own_writes import note_own_write
from wieldy.core.state_dirs import make_folders


def update_locked(path: Path, change: Callable[[str | None], str]) -> None:
    """Replace a file atomically by what `change` makes of its text (None where there is none). Blocks on the lock.

    Raises `UnicodeDecodeError` for a file that is not UTF-8.
    """
    _update(path, lambda before: change(None if before is None else before.decode("utf-8")).encode("utf-8"))


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty where there is none, or something else."""
    try:
        return _parse(path.read_bytes())
    except OSError:
        return {}


def update_json_object(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Have `change` modify the object in a JSON file, under a lock and atomically."""

    def update(before: bytes | None) -> bytes:
        records = _parse(before or b"{}")
        change(records)
        return json.dumps(records, indent=1, sort_keys=True).encode("utf-8") + b"\n"

    _update(path, update)


class JsonRecords:
    """A JSON file of nested objects: reads and merges those below a path of keys. All methods block on disk."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self, *keys: str) -> dict[str, Any]:
        """Return the object below these keys; empty where there is none."""
        value: Any = read_json_object(self._file)
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value if isinstance(value, dict) else {}

    def merge(self, values: Mapping[str, Any], *keys: str) -> None:
        """Update the object below these keys, under a lock and atomically."""

        def update(records: dict[str, Any]) -> None:
            target = records
            for key in keys:
                if not isinstance(target.get(key), dict):
                    target[key] = {}
                target = target[key]
            target.update(values)

        update_json_object(self._file, update)


def _parse(data: bytes) -> dict[str, Any]:
    try:
        records = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return records if isinstance(records, dict) else {}


def _update(path: Path, change: Callable[[bytes | None], bytes]) -> None:
    path = Path(os.path.realpath(path))
    make_folders(path.parent)
    with _locked(path.parent):
        before = path.read_bytes() if path.exists() else None
        after = change(before)
        if after != before:
            _replace(path, after)


def _replace(path: Path, data: bytes) -> None:
    # One name, used under the lock: what a killed writer leaves behind is removed by the next.
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, path.stat().st_mode & 0o777 if path.exists() else 0o600)
        os.replace(temporary, path)
        note_own_write(str(path), path.lstat())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the folder, so that no lock file is left behind."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
