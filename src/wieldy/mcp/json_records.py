"""A JSON file of nested objects in the configuration folder, shared by all processes of a user."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wieldy.files.writing.locked_update import read_json_object, update_json_object


class JsonRecords:
    """Reads and merges objects below a path of keys. An unreadable file counts as empty. All methods block on disk."""

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
