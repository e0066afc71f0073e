"""The copies of the project that isolated subagents work in, and what was changed there. Loaded when the first is made."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import time
from pathlib import Path

from msgspec import Struct

from wieldy.core.git import SourceError, read_git
from wieldy.core.state_dirs import make_private_folder, state_home, user_home
from wieldy.core.text import plural
from wieldy.core.workspace import Workspace
from wieldy.files.working_copies import (
    IsolationError,
    PatchRecorder,
    check_out,
    clone_or_copy,
    copy_tree,
    is_repository,
    remove_tree,
    walk_files,
)

MAX_COPY_BYTES = 2_000_000_000
MAX_COPY_FILES = 200_000
PATCH_NAME = "changes.patch"
KEPT_DAYS = 30
"""How long a copy with changes is kept after its last use."""


class WorkingTree(Struct, frozen=True):
    """A copy of the project. `top` is a copy of `live_top`, the repository or the folder; the subagent's root is in it.

    `note` says what is in the copy. `scratch` holds everything, and is removed as a whole.
    """

    scratch: Path
    top: Path
    live_top: str
    live_roots: tuple[str, ...]
    root: str
    note: str

    def map_path(self, path: str) -> str:
        """The path in the copy of a path in the original; any other path as it is."""
        if path == self.live_top or path.startswith(f"{self.live_top.rstrip('/')}/"):
            return os.path.normpath(os.path.join(self.top, os.path.relpath(path, self.live_top)))
        return path

    def prompt(self) -> str:
        """What the subagent is told about its copy."""
        return (
            f"You work in a copy of the project: {self.root} ({self.note}). The original at {self.live_roots[0]} must stay as it "
            "is; where your task names a file there, use the one in your copy. Your changes are handed over as a patch when "
            "you end, so you need not commit them."
        )


class CopyChanges(Struct, frozen=True):
    """What a subagent changed in its copy: the patch, and how to take it over. Nothing was changed if there is no patch."""

    tree: WorkingTree
    files: int = 0
    patch: str = ""
    problem: str = ""

    def as_text(self) -> str:
        """The paragraph of the report."""
        where = f"It worked in a copy of the project ({self.tree.note})"
        if self.problem:
            return f"{where}. What it changed could not be found out: {self.problem}. The copy is {self.tree.root}."
        if not self.patch:
            return f"{where} and changed nothing there."
        files = plural(self.files, "file")
        return (
            f"{where}. Its changes to {files} are NOT in your tree. They are in {self.patch}; to take them over, run "
            f"`git -C {shlex.quote(self.tree.live_top)} apply {shlex.quote(self.patch)}`. The copy is {self.tree.root}."
        )

    def as_dict(self) -> dict[str, object]:
        kept = bool(self.patch or self.problem)
        return {
            "path": self.tree.root if kept else None,
            "patch": self.patch or None,
            "files": self.files,
            "note": self.tree.note,
            "problem": self.problem or None,
        }


def copies_folder(workspace: Workspace) -> Path:
    """Where copies for subagents are made: in the user's cache, or with the state of a session that keeps it elsewhere."""
    env = workspace.env
    if workspace.state_dir != state_home(env):
        return workspace.state_dir / "copies"
    cache = env.get("XDG_CACHE_HOME") or ""
    base = Path(cache) if os.path.isabs(cache) else user_home(env) / ".cache"
    return base / "wieldy" / "agents"


def make_working_tree(scratch: Path, root: str, roots: tuple[str, ...]) -> WorkingTree:
    """Make the copy of a subagent, or find the one that it left, which is kept in any case. Blocking. Raises `IsolationError`.

    `roots` are all folders of the parent; the subagent must not change any of them.
    """
    try:
        live_top, commit = find_repository(root)
        top = scratch / "tree" / (os.path.basename(live_top) or "root")
        if not (scratch / "base.git" / "made").exists():
            _make_copy(scratch, live_top, commit, top)
        elif not top.is_dir():
            raise IsolationError(f"{scratch} is the copy of another folder than {live_top}")
        note = (scratch / "note").read_text(encoding="utf-8")
        own_root = os.path.normpath(os.path.join(top, os.path.relpath(root, live_top)))
        os.makedirs(own_root, exist_ok=True)
    except (SourceError, OSError) as error:
        raise IsolationError(str(error)) from None
    return WorkingTree(scratch, top, live_top, roots, os.path.realpath(own_root), note)


def _make_copy(scratch: Path, live_top: str, commit: str, top: Path) -> None:
    """Make the copy, whole or not at all."""
    remove_tree(scratch)
    try:
        make_private_folder(top.parent)
        note = _check_out_repository(live_top, commit, top) if commit else _copy_folder(live_top, top, scratch)
        PatchRecorder(top, scratch).start()
        (scratch / "note").write_text(note, encoding="utf-8")
        (scratch / "base.git" / "made").touch()
    except BaseException:
        remove_tree(scratch)
        raise


def find_repository(root: str) -> tuple[str, str]:
    """The top of the repository that has files of a folder, and its commit; the folder itself and nothing without one."""
    top = next((folder for folder in (root, *map(str, Path(root).parents)) if is_repository(folder)), None)
    if top is None or (commit := read_git(["rev-parse", "--verify", "-q", "HEAD"], top)) is None:
        return root, ""
    if top != root and not read_git(["ls-files", "-z", "--", os.path.relpath(root, top)], top):
        return root, ""  # a folder that the repository around it does not know
    return top, commit.decode().strip()


def _check_out_repository(live: str, commit: str, top: Path) -> str:
    """Check the commit out and bring uncommitted work over; returns what is in the copy."""
    entries = read_git(["ls-files", "-s", "-z"], live) or b""
    modules = [os.fsdecode(entry.partition(b"\t")[2]) for entry in entries.split(b"\0") if entry.startswith(b"160000 ")]
    if modules:
        raise IsolationError(f"the repository has submodules ({modules[0]}), which a copy would not contain")
    check_out(live, commit, top)
    status = read_git(["status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames"], live)
    if status is None:
        raise IsolationError(f"git cannot tell what is uncommitted in {live}")
    changed = [os.fsdecode(entry[3:]) for entry in status.split(b"\0") if entry]
    for path in changed:
        _bring_over(os.path.join(live, path), os.path.join(top, path))
    uncommitted = f" with {plural(len(changed), 'uncommitted file')}" if changed else ""
    return f"commit {commit[:10]}{uncommitted}, without ignored files"


def _bring_over(source: str, target: str) -> None:
    """Make a path in the copy what it is in the original: a file, a symlink, or nothing."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        shutil.rmtree(target) if os.path.isdir(target) and not os.path.islink(target) else os.unlink(target)
    if not os.path.lexists(source):
        return
    if source.endswith("/") or (os.path.isdir(source) and not os.path.islink(source)):
        raise IsolationError(f"{source} is a repository inside the repository, which a copy would not contain")
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
    elif os.path.isfile(source):
        clone_or_copy(source, target)


def _copy_folder(live: str, top: Path, scratch: Path) -> str:
    exclude = (os.path.realpath(scratch.parent),)
    size = 0
    for count, entry in enumerate(walk_files(live, exclude=exclude, git=True), 1):
        with contextlib.suppress(OSError):
            size += entry.stat(follow_symlinks=False).st_size
        if count > MAX_COPY_FILES or size > MAX_COPY_BYTES:
            raise IsolationError(f"{live} is no git repository, and too large to be copied")
    copy_tree(live, top, clone_or_copy, exclude)
    return "all of its files"


def finish_working_tree(tree: WorkingTree, patch_folder: Path) -> CopyChanges:
    """Write the patch of what has changed; without changes the copy is removed. Blocking."""
    try:
        patch = PatchRecorder(tree.top, tree.scratch).diff()
        target = patch_folder / PATCH_NAME
        if not patch:
            target.unlink(missing_ok=True)
            remove_tree(tree.scratch)
            return CopyChanges(tree)
        make_private_folder(patch_folder)
        target.write_bytes(patch)
        os.utime(tree.scratch)
    except (SourceError, OSError) as error:
        return CopyChanges(tree, problem=str(error))
    return CopyChanges(tree, len(re.findall(rb"^diff --git ", patch, re.MULTILINE)), str(target))


def remove_old_copies(folder: Path) -> None:
    """Remove copies that nobody has used for a while. Blocking."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if entry.stat().st_mtime < time.time() - KEPT_DAYS * 86_400:
                remove_tree(Path(entry.path))
