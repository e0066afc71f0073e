"""What an attempt changed, as a patch. git compares two states of the tree in a repository of our own.

The project's own repository is not asked: the model may have changed it, and its configuration could run programs.
"""

from __future__ import annotations

import os
import shutil
import threading
from hashlib import blake2b
from pathlib import Path

from msgspec import Struct

from wieldy.files.working_copies.files import SMALL_TREE_BYTES, SMALL_TREE_FILES, walk_files
from wieldy.files.working_copies.git import SourceError, run_git

MANY_FILES = 20_000  # above that, git is faster at finding what changed


class PatchRecorder:
    """Records the state of a tree, and later what has changed. Blocking: call it in a thread.

    `shared` is a folder for what all copies of one small source have in common, so that it is recorded once.
    """

    def __init__(self, tree: Path, scratch: Path, shared: Path | None = None) -> None:
        self._tree = tree
        self._repository = scratch / "base.git"
        self._shared = shared
        self._before: TreeScan | None = None
        self._base = ""

    def start(self) -> None:
        """Record the tree as it is now. Raises `SourceError` or `OSError`."""
        _make_repository(self._repository)
        self._before = scan_tree(self._tree)
        if self._shared is not None and self._before is not None and self._before.is_small:
            self._start_shared(self._shared, self._before)
            return
        own = self._tree / ".git"
        if (own / "objects").is_dir():
            _add_alternate(self._repository, own / "objects")
            if (own / "index").is_file():
                shutil.copyfile(own / "index", self._repository / "index")
        self._record(self._repository)
        shutil.copyfile(self._repository / "index", self._repository / "index.base")

    def _start_shared(self, shared: Path, scan: TreeScan) -> None:
        """Take the record of another copy with the same files; make it where there is none yet."""
        record = shared / f"{scan.digest}.base"
        if not record.exists():
            temporary = shared / f"{scan.digest}.{os.getpid()}-{threading.get_ident()}.tmp"
            shutil.rmtree(temporary, ignore_errors=True)
            _make_repository(temporary)
            self._record(temporary)
            (temporary / "tree").write_bytes(self._git("write-tree", repository=temporary))
            try:
                temporary.rename(record)
            except OSError:  # another attempt was faster
                shutil.rmtree(temporary)
        _add_alternate(self._repository, record / "objects")
        shutil.copyfile(record / "index", self._repository / "index")
        self._base = (record / "tree").read_text().strip()

    def diff(self) -> bytes:
        """The patch from the recorded state to the present one. Raises `SourceError` or `OSError`."""
        if self._before is not None and self._before == scan_tree(self._tree):
            return b""
        base = self._base or self._git("write-tree", index="index.base").decode().strip()
        self._git("add", "-A")
        return self._git("diff", "--cached", "--binary", "--full-index", "--no-color", "--no-ext-diff", base)

    def _record(self, repository: Path) -> None:
        self._git("add", "-A", repository=repository)
        if not (repository / "index").exists():
            self._git("read-tree", "--empty", repository=repository)

    def _git(self, *arguments: str, index: str = "index", repository: Path | None = None) -> bytes:
        repository = repository or self._repository
        settings = ("core.checkStat=minimal", "core.trustctime=false", "core.autocrlf=false", "core.quotePath=true")
        options = [word for setting in settings for word in ("-c", setting)]
        environment = {
            "GIT_DIR": str(repository),
            "GIT_WORK_TREE": str(self._tree),
            "GIT_INDEX_FILE": str(repository / index),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
        }
        return run_git([*options, *arguments], self._tree, environment, seconds=600)


class TreeScan(Struct, frozen=True):
    """Path, size, times and mode of every file of a tree. The digest leaves out what differs between copies of the same files."""

    files: frozenset[tuple[str, int, int, int, int]]
    digest: str
    size: int

    @property
    def is_small(self) -> bool:
        return len(self.files) <= SMALL_TREE_FILES and self.size <= SMALL_TREE_BYTES


def scan_tree(tree: Path) -> TreeScan | None:
    """Look at every file; None for a tree that is too large to look at twice."""
    files: set[tuple[str, int, int, int, int]] = set()
    size = 0
    start = len(str(tree)) + 1
    for entry in walk_files(str(tree)):
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        size += status.st_size
        files.add((entry.path[start:], status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode))
        if len(files) > MANY_FILES:
            return None
    common = sorted((os.fsencode(path), size, mtime, mode) for path, size, mtime, _, mode in files)
    return TreeScan(frozenset(files), blake2b(repr(common).encode(), digest_size=12).hexdigest(), size)


def _make_repository(folder: Path) -> None:
    for name in ("objects/info", "refs"):
        (folder / name).mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/none\n")


def _add_alternate(repository: Path, objects: Path) -> None:
    alternates = repository / "objects" / "info" / "alternates"
    alternates.write_text(f"{objects}\n", encoding="utf-8", errors="surrogateescape")


def write_patch(recorder: PatchRecorder, target: Path) -> tuple[int | None, str]:
    """Write the patch; returns its size, or None and why there is none."""
    try:
        patch = recorder.diff()
        target.write_bytes(patch)
    except (SourceError, OSError) as error:
        return None, f"there is no patch: {error}"
    return len(patch), ""
