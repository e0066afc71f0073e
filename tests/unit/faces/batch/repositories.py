"""Small git repositories."""

from __future__ import annotations

import subprocess
from pathlib import Path


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def make_repository(folder: Path, **files: str) -> Path:
    """A repository with one commit of these files; `a_txt` is the file `a.txt`."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    for name, content in (files or {"a_txt": "one\n"}).items():
        (folder / name.replace("_", ".")).write_text(content)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")
    return folder
