"""Copies of a project to work in, and what has changed in them: whole folders, git checkouts, patches."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
import shutil
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from wieldy.core.errors import WieldyError
from wieldy.core.git import SourceError, read_git, run_git
from wieldy.core.state_dirs import make_private_folder, state_home, user_home
from wieldy.core.text import plural
from wieldy.core.workspace import Workspace
from wieldy.files.search.patterns import repository_of

SMALL_TREE_BYTES = 50_000_000
SMALL_TREE_FILES = 5_000
FICLONE = 0x40049409
NO_REFLINK = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS)

CopyFile: TypeAlias = Callable[[str, str], object]


class IsolationError(WieldyError):
    """No copy can be made in the way that was asked for; the message says why."""


def walk_files(folder: str, *, exclude: Collection[str] = (), git: bool = False) -> Iterator[os.DirEntry[str]]:
    """Every entry below a folder that is no folder itself; with `git`, also the repository."""
    folders = [folder]
    while folders:
        try:
            entries = os.scandir(folders.pop())
        except OSError:
            continue
        with entries:
            for entry in entries:
                if (entry.name == ".git" and not git) or entry.path in exclude:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    yield entry


def is_small(tree: Path, exclude: Collection[str] = ()) -> bool:
    """Whether a plain copy of a folder costs next to nothing."""
    return not _exceeds(str(tree), exclude, SMALL_TREE_FILES, SMALL_TREE_BYTES)


def _exceeds(folder: str, exclude: Collection[str], max_files: int, max_bytes: int) -> bool:
    """Whether a folder with its repository has more files or bytes."""
    size = 0
    for count, entry in enumerate(walk_files(folder, exclude=exclude, git=True), 1):
        with contextlib.suppress(OSError):
            size += entry.stat(follow_symlinks=False).st_size
        if count > max_files or size > max_bytes:
            return True
    return False


def copy_tree(source: str | Path, target: str | Path, copy_file: CopyFile, exclude: Collection[str] = ()) -> None:
    """Copy a folder: symlinks as they are, modes and times kept, sockets and pipes left out. Raises `OSError`.

    What vanishes meanwhile is left out: another program may be working in the folder.
    """
    folders = [(os.fspath(source), os.fspath(target))]
    times: list[tuple[str, os.stat_result]] = []
    while folders:
        here, there = folders.pop()
        try:
            status, entries = os.stat(here), os.scandir(here)
        except (FileNotFoundError, NotADirectoryError):
            if not times:
                raise
            continue
        with entries:
            os.mkdir(there, 0o700)
            times.append((there, status))
            for entry in entries:
                if entry.path in exclude:
                    continue
                to = os.path.join(there, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    folders.append((entry.path, to))
                    continue
                try:
                    if entry.is_symlink():
                        os.symlink(os.readlink(entry.path), to)
                    elif entry.is_file(follow_symlinks=False):
                        copy_file(entry.path, to)
                except FileNotFoundError:
                    if os.path.lexists(entry.path):
                        raise
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(to)
    for folder, status in reversed(times):
        os.chmod(folder, stat.S_IMODE(status.st_mode) | stat.S_IRWXU)
        os.utime(folder, ns=(status.st_atime_ns, status.st_mtime_ns))


def plain_copy(source: str, target: str) -> None:
    """Copy a file with its mode and times. Raises `OSError`."""
    shutil.copyfile(source, target, follow_symlinks=False)
    shutil.copystat(source, target, follow_symlinks=False)


def clone(source: str, target: str) -> None:
    """Clone a file copy-on-write. Raises `OSError`, one of `NO_REFLINK` where the file system cannot."""
    import fcntl

    with open(source, "rb") as old, open(target, "xb") as new:
        fcntl.ioctl(new.fileno(), FICLONE, old.fileno())
    shutil.copystat(source, target, follow_symlinks=False)


def clone_or_copy(source: str, target: str) -> None:
    """Clone a file where that is possible, else copy it. Raises `OSError`."""
    try:
        clone(source, target)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(target)
        plain_copy(source, target)


def _open_folders(path: Path) -> None:
    """Give the owner of a tree all rights to its folders, each before it is entered."""
    with contextlib.suppress(OSError):
        os.chmod(path, 0o700)
    for folder, names, _ in os.walk(path):
        for name in names:
            child = os.path.join(folder, name)
            if not os.path.islink(child):
                with contextlib.suppress(OSError):
                    os.chmod(child, 0o700)


def remove_tree(path: Path) -> None:
    """Remove a folder, also one with folders that its owner may not write to, as far as that is possible."""
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except OSError:
        _open_folders(path)
        shutil.rmtree(path, ignore_errors=True)


CLONE_SECONDS = 3600.0


def is_repository(folder: str | Path) -> bool:
    return os.path.lexists(os.path.join(folder, ".git"))


def resolve_commit(repository: str | Path, ref: str) -> str:
    """The commit that a ref names. Raises `SourceError`."""
    commit = None if ref.startswith("-") else read_git(["rev-parse", "--verify", "-q", f"{ref}^{{commit}}"], repository)
    if commit is None:
        raise SourceError(f"the repository {repository} has no commit `{ref}`")
    return commit.decode().strip()


def clone_mirror(url: str, target: Path) -> None:
    """Clone a remote repository with all its commits. Raises `SourceError`."""
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        run_git(["clone", "-q", "--mirror", "--", url, str(temporary)], target.parent, seconds=CLONE_SECONDS)
        temporary.replace(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def fetch_commit(repository: Path, ref: str) -> None:
    """Fetch a commit that no branch of the remote contains any more. Raises `SourceError`."""
    run_git(["fetch", "-q", "origin", "--", ref], repository, seconds=CLONE_SECONDS)


def check_out(repository: str | Path, commit: str, target: Path) -> None:
    """Check a commit out into a repository of its own that borrows the objects. Raises `SourceError`.

    It has no branches, tags or remotes: nothing later than the commit can be found by name, and nothing can be pushed.
    """
    target.mkdir()
    _init_borrowing(repository, target)
    run_git(["checkout", "-q", "--detach", commit], target, seconds=CLONE_SECONDS)


def detach_repository(source: str | Path, copy: Path) -> None:
    """Give a copied linked worktree a repository of its own; its `.git` leads to that of the source. Raises `SourceError`."""
    link = copy / ".git"
    if not os.path.lexists(link) or (link.is_dir() and not link.is_symlink()):
        return
    link.unlink()
    _init_borrowing(source, copy)
    if (head := read_git(["rev-parse", "--verify", "-q", "HEAD"], source)) is not None:
        run_git(["update-ref", "--no-deref", "HEAD", head.decode().strip()], copy)
        run_git(["reset", "-q"], copy)


def _init_borrowing(repository: str | Path, target: Path) -> None:
    located = read_git(["rev-parse", "--path-format=absolute", "--git-path", "objects"], repository)
    if located is None:
        raise SourceError(f"{repository} is not a git repository")
    objects = Path(os.fsdecode(located).removesuffix("\n"))
    run_git(["init", "-q", "--template=", str(target)], target.parent)
    information = target / ".git" / "objects" / "info"
    information.mkdir(parents=True, exist_ok=True)
    (information / "alternates").write_text(f"{objects}\n", encoding="utf-8", errors="surrogateescape")
    shallow = objects.parent / "shallow"
    if shallow.exists():
        shutil.copyfile(shallow, target / ".git" / "shallow")


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


# The copies of subagents: each has a folder of the repository or of the project, what was changed there becomes a patch.

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
    top = repository_of(root)
    if not top or (commit := read_git(["rev-parse", "--verify", "-q", "HEAD"], top)) is None:
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
    if _exceeds(live, exclude, MAX_COPY_FILES, MAX_COPY_BYTES):
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
    """Remove copies that have not been used for a while. Blocking."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if entry.stat().st_mtime < time.time() - KEPT_DAYS * 86_400:
                remove_tree(Path(entry.path))
