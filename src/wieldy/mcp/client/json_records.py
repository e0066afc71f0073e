"""A JSON file of nested objects in the configuration folder, shared by all processes of a user."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wieldy.files.writing.locked_update import update_locked


class JsonRecords:
    """Reads and merges objects below a path of keys. An unreadable file counts as empty. All methods block on disk."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self, *keys: str) -> dict[str, Any]:
        """Return the object below these keys; empty where there is none."""
        try:
            value: Any = _parse(self._file.read_text("utf-8"))
        except (OSError, UnicodeDecodeError):
            return {}
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value if isinstance(value, dict) else {}

    def merge(self, values: Mapping[str, Any], *keys: str) -> None:
        """Update the object below these keys, under a lock and atomically."""

        def update(text: str | None) -> str:
            records = target = _parse(text or "{}")
            for key in keys:
                if not isinstance(target.get(key), dict):
                    target[key] = {}
                target = target[key]
            target.update(values)
            return json.dumps(records, indent=1, sort_keys=True) + "\n"

        update_locked(self._file, update)


def _parse(text: str) -> dict[str, Any]:
    try:
        records = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return records if isinstance(records, dict) else {}
