"""Where the journal of a project is kept."""

from __future__ import annotations

import os
import re
from pathlib import Path

from wieldy.core.blake import blake2b
from wieldy.core.places import state_home
from wieldy.core.workspace import Workspace


def journal_folder(workspace: Workspace) -> Path:
    """The folder of a workspace's journal; it exists once something was changed."""
    return state_home(workspace.env) / "journal" / project_key(workspace.root)


def project_key(root: str) -> str:
    """The name of a project's folder in the journal: readable, and its own."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", os.path.basename(root)).strip("-.")[:40] or "root"
    return f"{readable}-{blake2b(os.fsencode(Path(root)), digest_size=6).hexdigest()}"
