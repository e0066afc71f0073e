"""What servers said of their tools when the user first met them; one that says something else later is asked about again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wieldy.core.places import config_home
from wieldy.permissions.shared_file import rewrite

FILE_NAME = "mcp-pins.json"


class Pins:
    """Fingerprints by project, server and tool. All methods block on disk."""

    def __init__(self, root: str, file: Path | None = None, env: Mapping[str, str] = os.environ) -> None:
        self._root = os.path.realpath(root)
        self._file = config_home(env) / FILE_NAME if file is None else file

    def changed(self, server: str, digests: Mapping[str, str]) -> frozenset[str]:
        """The tools that differ from what is pinned; those never seen before are pinned now."""
        known = self._known(server)
        new = {tool: digest for tool, digest in digests.items() if tool not in known}
        if new:
            self.pin(server, new)
        return frozenset(tool for tool, digest in digests.items() if known.get(tool, digest) != digest)

    def pin(self, server: str, digests: Mapping[str, str]) -> None:
        """Record what the user has agreed to."""

        def update(text: str | None) -> str:
            records = _parsed(text)
            project = records.setdefault(self._root, {})
            held = project.get(server)
            project[server] = {**(held if isinstance(held, dict) else {}), **digests}
            return json.dumps(records, indent=1, sort_keys=True) + "\n"

        rewrite(self._file, update)

    def _known(self, server: str) -> Mapping[str, str]:
        try:
            text = self._file.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            return {}
        project = _parsed(text).get(self._root)
        found = project.get(server) if isinstance(project, dict) else None
        return found if isinstance(found, dict) else {}


def _parsed(text: str | None) -> dict[str, Any]:
    try:
        records = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return records if isinstance(records, dict) else {}
