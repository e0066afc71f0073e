"""Where the journal of a project lies in the state folder."""

from __future__ import annotations

import os
import re
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wieldy.core.workspace import Workspace

DATABASE_NAME = "journal.sqlite3"


def journal_path(workspace: Workspace) -> Path:
    """The database of a workspace's journal; it exists once something was changed."""
    place = "" if workspace.backend is None else workspace.backend.id
    return workspace.state_dir / "journal" / project_key(workspace.root, place) / DATABASE_NAME


def project_key(root: str, place: str = "") -> str:
    """A folder name for a project: readable, and unique by a hash of its path. `place` is the id of its backend."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", os.path.basename(root)).strip("-.")[:40] or "root"
    place_key = b"\0" + os.fsencode(place) if place else b""
    return f"{readable}-{blake2b(os.fsencode(Path(root)) + place_key, digest_size=6).hexdigest()}"


def snapshot_folder(workspace: Workspace) -> Path:
    """Where copies of files are kept while commands run, one folder for each process."""
    return journal_path(workspace).parent / "snapshots"
