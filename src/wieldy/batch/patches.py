"""What an attempt changed, as a patch. git compares two states of the tree in a repository of our own.

The project's own repository is not asked: the model may have changed it, and its configuration could run programs.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from wieldy.batch.git import SourceError, run_git
from wieldy.batch.identity import walk_files

MANY_FILES = 20_000  # above that, git is faster at finding what changed


class PatchRecorder:
    """Records the state of a tree, and later what has changed. Blocking: call it in a thread."""

    def __init__(self, tree: Path, scratch: Path) -> None:
        self._tree = tree
        self._repository = scratch / "base.git"
        self._before: frozenset[tuple[object, ...]] | None = None

    def start(self) -> None:
        """Record the tree as it is now. Raises `SourceError` or `OSError`."""
        for name in ("objects/info", "refs"):
            (self._repository / name).mkdir(parents=True)
        (self._repository / "HEAD").write_text("ref: refs/heads/none\n")
        own = self._tree / ".git"
        if (own / "objects").is_dir():
            alternates = self._repository / "objects" / "info" / "alternates"
            alternates.write_text(f"{own}/objects\n", encoding="utf-8", errors="surrogateescape")
            if (own / "index").is_file():
                shutil.copyfile(own / "index", self._repository / "index")
        self._git("add", "-A")
        if not (self._repository / "index").exists():
            self._git("read-tree", "--empty")
        shutil.copyfile(self._repository / "index", self._repository / "index.base")
        self._before = self._scan()

    def diff(self) -> bytes:
        """The patch from the recorded state to the present one. Raises `SourceError` or `OSError`."""
        if self._before is not None and self._before == self._scan():
            return b""
        base = self._git("write-tree", index="index.base").decode().strip()
        self._git("add", "-A")
        return self._git("diff", "--cached", "--binary", "--full-index", "--no-color", "--no-ext-diff", base)

    def _scan(self) -> frozenset[tuple[object, ...]] | None:
        """Path, size and times of every file; None for a tree that is too large to look at twice."""
        files: set[tuple[object, ...]] = set()
        for entry in walk_files(str(self._tree)):
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            files.add((entry.path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode))
            if len(files) > MANY_FILES:
                return None
        return frozenset(files)

    def _git(self, *arguments: str, index: str = "index") -> bytes:
        settings = ("core.checkStat=minimal", "core.trustctime=false", "core.autocrlf=false", "core.quotePath=true")
        options = [word for setting in settings for word in ("-c", setting)]
        environment = {
            "GIT_DIR": str(self._repository),
            "GIT_WORK_TREE": str(self._tree),
            "GIT_INDEX_FILE": str(self._repository / index),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
        }
        return run_git([*options, *arguments], self._tree, environment, seconds=600)


def write_patch(recorder: PatchRecorder, target: Path) -> tuple[int | None, str]:
    """Write the patch; returns its size, or None and why there is none."""
    try:
        patch = recorder.diff()
        target.write_bytes(patch)
    except (SourceError, OSError) as error:
        return None, f"there is no patch: {error}"
    return len(patch), ""
