"""A copy of the project for each attempt. Where none can be made the attempt fails: it never falls back to the live tree.

    reflink    copy-on-write clones of the files (btrfs, XFS, APFS)
    overlay    a mount of its own in a namespace of its own; the whole session runs inside (Linux 5.11)
    worktree   a checkout of the commit that borrows the repository's objects; without untracked files
    copy       a plain copy
    none       the live tree itself

`auto` takes the first that gives the same files: for a commit a checkout; for a folder reflink, a plain copy where it is
small, overlay, a plain copy.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from wieldy.core.git import SourceError, read_git
from wieldy.core.state_dirs import make_private_folder
from wieldy.faces.batch.tasks import Task, TaskSource, digest, is_remote
from wieldy.files.working_copies import (
    NO_REFLINK,
    IsolationError,
    check_out,
    clone,
    clone_mirror,
    clone_or_copy,
    copy_tree,
    detach_repository,
    fetch_commit,
    is_repository,
    is_small,
    plain_copy,
    remove_tree,
    resolve_commit,
    walk_files,
)
from wieldy.shell.backends.overlay import OverlayMount, overlay_problem


def attempt_identity(
    task: Task, *, sample: int = 1, isolate: str = "auto", base_url: str = "", fingerprint: str = ""
) -> str:
    """The identity of the `sample`-th independent attempt at a task, given the fingerprint of its files."""
    fields: dict[str, Any] = msgspec.to_builtins(task)
    for label in ("tags", "source"):
        fields.pop(label, None)
    return digest(
        {
            "v": 1,
            "task": fields,
            "source": [task.source.kind, task.source.ref, fingerprint],
            "script": _script_digest(task.model),
            "base_url": base_url,
            "isolate": isolate,
            "sample": sample,
        }
    )


def fingerprint(source: TaskSource, exclude: Collection[str] = (), isolate: str = "auto") -> str:
    """What the files of a source are, without reading more of them than necessary. Raises `SourceError`.

    `exclude` are the files of the run itself, which may be inside a source: the results, the copies, the tasks. Without
    isolation the run changes the folder itself: only its path counts.
    """
    if isolate == "none":
        return source.location
    if source.kind == "git":
        return f"{source.location}" if is_remote(source.location) else resolve_commit(source.location, source.ref)
    if source.kind == "archive":
        hash = blake2b(digest_size=12)
        with open(source.location, "rb") as file:
            while chunk := file.read(1 << 20):
                hash.update(chunk)
        return hash.hexdigest()
    return folder_fingerprint(source.location, exclude)


def folder_fingerprint(folder: str, exclude: Collection[str] = ()) -> str:
    """The commit and the uncommitted changes of a repository; names, sizes and times of the files of any other folder."""
    head = read_git(["rev-parse", "--verify", "--quiet", "HEAD"], folder) if is_repository(folder) else None
    if head is None:
        return digest(sorted(_stats(folder, _walk(folder, exclude))))
    status = read_git(["status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames"], folder) or b""
    paths = (os.fsdecode(entry[3:]) for entry in status.split(b"\0") if entry)
    changed = (path for path in paths if not is_excluded(os.path.join(folder, path), exclude))
    return digest([head.decode().strip(), sorted(_stats(folder, changed))])


def is_excluded(path: str, exclude: Collection[str]) -> bool:
    """Whether a path is one of the excluded ones, or inside of it."""
    return any(path == each or path.startswith(f"{each}/") for each in exclude)


def _walk(folder: str, exclude: Collection[str]) -> Iterator[str]:
    for entry in walk_files(folder, exclude=exclude):
        yield os.path.relpath(entry.path, folder)


def _stats(folder: str, paths: Iterator[str]) -> Iterator[tuple[str, int, int, int]]:
    for path in paths:
        try:
            status = os.lstat(os.path.join(folder, path))
        except OSError:
            yield _encodable(path), -1, 0, 0
            continue
        yield _encodable(path), status.st_size, status.st_mtime_ns, stat.S_IMODE(status.st_mode)


def _encodable(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _script_digest(model: str) -> str:
    if not model.startswith("script:"):
        return ""
    try:
        with open(model.removeprefix("script:"), "rb") as file:
            return blake2b(file.read(), digest_size=12).hexdigest()
    except OSError:
        return ""


Isolation: TypeAlias = Literal["auto", "reflink", "overlay", "worktree", "copy", "none"]

ISOLATIONS: tuple[Isolation, ...] = ("auto", "reflink", "overlay", "worktree", "copy", "none")


class WorkingCopy(Struct, frozen=True):
    """The folder that a session works in, and the way it was made. `overlay` has yet to be mounted, in a new process."""

    folder: str
    way: Isolation
    note: str = ""
    overlay: OverlayMount | None = None

    @property
    def path(self) -> Path:
        return Path(self.folder)


class SourceCache:
    """Sources on this machine, each fetched or frozen once for a run. Several processes may use one folder.

    `exclude` are the files of the run itself, which are never copied: the results, the copies, the tasks.
    """

    def __init__(self, folder: Path, exclude: Collection[str] = ()) -> None:
        self._folder = folder
        self.exclude = frozenset(exclude)

    def repository(self, source: TaskSource) -> Path:
        """The repository of a `git` source, cloned if it is remote. Raises `SourceError`."""
        if not is_remote(source.location):
            return Path(source.location)
        target = self._folder / f"{digest(source.location)}.git"
        with self._locked(target.name):
            if not target.exists():
                clone_mirror(source.location, target)
            if read_git(["cat-file", "-e", f"{source.ref}^{{commit}}"], target) is None:
                fetch_commit(target, source.ref)
        return target

    def tree(self, source: TaskSource) -> Path:
        """The files of a source as a folder that does not change; for a `root`, the live folder. Raises `SourceError`."""
        return Path(source.location) if source.kind == "root" else self.frozen_tree(source)

    def frozen_tree(self, source: TaskSource) -> Path:
        """A folder with the files of a source that stays as it is while attempts use it. Raises `SourceError`."""
        key = digest([source.kind, source.location, source.ref, fingerprint(source, self.exclude)])
        target = self._folder / f"{key}.tree"
        with self._locked(target.name):
            if not target.exists():
                temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
                shutil.rmtree(temporary, ignore_errors=True)
                try:
                    self._materialize(source, temporary)
                    temporary.replace(target)
                finally:
                    shutil.rmtree(temporary, ignore_errors=True)
        return target

    def _materialize(self, source: TaskSource, target: Path) -> None:
        if source.kind == "git":
            repository = self.repository(source)
            check_out(repository, resolve_commit(repository, source.ref), target)
        elif source.kind == "archive":
            extract_archive(source.location, target)
        else:
            copy_tree(source.location, target, clone_or_copy, self.exclude)
            detach_repository(source.location, target)

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        import fcntl

        make_private_folder(self._folder)
        with open(self._folder / f"{name}.lock", "w", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def clean_work_folder(work: Path) -> None:
    """Remove what a finished run has no more use for; clones stay, because they took long to fetch. Blocking."""
    sources = work / "sources"
    frozen = [entry for entry in sources.iterdir() if entry.suffix not in (".git", ".lock")] if sources.is_dir() else []
    for path in (work / "attempts", work / "commands", *frozen):
        remove_tree(path)
    for folder in (sources, work):
        with contextlib.suppress(OSError):
            if not any(entry.suffix != ".lock" for entry in folder.iterdir()):
                remove_tree(folder)


def make_copy(source: TaskSource, isolate: Isolation, scratch: Path, sources: SourceCache) -> WorkingCopy:
    """Make the copy of an attempt below its scratch folder. Raises `IsolationError` or `SourceError`."""
    make_private_folder(scratch)
    target = scratch / "copy"
    try:
        if isolate == "auto":
            return _make_best(source, target, sources)
        return _MAKERS[isolate](source, target, sources)
    except OSError as error:
        raise IsolationError(f"no copy by {isolate}: {error.strerror or error}") from None


def _make_best(source: TaskSource, target: Path, sources: SourceCache) -> WorkingCopy:
    if source.kind == "git":
        return _make_worktree(source, target, sources)
    with contextlib.suppress(IsolationError):
        return _make_reflink(source, target, sources)
    if is_small(sources.tree(source), sources.exclude):
        return _make_plain(source, target, sources)
    if overlay_problem() is None:
        return _make_overlay(source, target, sources)
    return _make_plain(source, target, sources)


def _make_reflink(source: TaskSource, target: Path, sources: SourceCache) -> WorkingCopy:
    tree = sources.tree(source)
    try:
        copy_tree(tree, target, clone, sources.exclude)
    except OSError as error:
        shutil.rmtree(target, ignore_errors=True)
        if error.errno in NO_REFLINK:
            raise IsolationError(
                "no copy by reflink: the file system has no copy-on-write clones (btrfs, XFS and APFS have), "
                f"or {target.parent} is on another one (--work)"
            ) from None
        raise
    detach_repository(tree, target)
    return WorkingCopy(str(target), "reflink")


def _make_plain(source: TaskSource, target: Path, sources: SourceCache) -> WorkingCopy:
    tree = sources.tree(source)
    copy_tree(tree, target, plain_copy, sources.exclude)
    detach_repository(tree, target)
    return WorkingCopy(str(target), "copy")


def _make_worktree(source: TaskSource, target: Path, sources: SourceCache) -> WorkingCopy:
    note = ""
    if source.kind == "git":
        repository = sources.repository(source)
        commit = resolve_commit(repository, source.ref)
    else:
        repository = sources.tree(source)
        if not is_repository(repository):
            raise IsolationError(f"no copy by worktree: {repository} is not a git repository")
        commit = resolve_commit(repository, "HEAD")
        if read_git(["status", "--porcelain", "--ignore-submodules"], repository):
            note = "uncommitted and untracked files of the folder are not in the checkout"
    check_out(repository, commit, target)
    return WorkingCopy(str(target), "worktree", note)


def _make_overlay(source: TaskSource, target: Path, sources: SourceCache) -> WorkingCopy:
    if (problem := overlay_problem()) is not None:
        raise IsolationError(f"no copy by overlay: {problem}")
    upper, work = target.with_name("upper"), target.with_name("overlay-work")
    for folder in (target, upper, work):
        folder.mkdir()
    mount = OverlayMount(str(sources.frozen_tree(source)), str(upper), str(work), str(target))
    return WorkingCopy(str(target), "overlay", overlay=mount)


def _use_live_tree(source: TaskSource, target: Path, sources: SourceCache) -> WorkingCopy:
    if source.kind != "root":
        raise IsolationError(f"--isolate none works in a live folder, and a `{source.kind}` has none")
    return WorkingCopy(source.location, "none")


_MAKERS: dict[str, Callable[[TaskSource, Path, SourceCache], WorkingCopy]] = {
    "reflink": _make_reflink,
    "overlay": _make_overlay,
    "worktree": _make_worktree,
    "copy": _make_plain,
    "none": _use_live_tree,
}


def extract_archive(archive: str, target: Path) -> None:
    """Extract a tar or zip file. A single folder at its top is left out. Raises `SourceError`."""
    whole = target.with_name(f"{target.name}.whole")
    shutil.rmtree(whole, ignore_errors=True)
    whole.mkdir()
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                for member in zipped.infolist():
                    path = zipped.extract(member, whole)
                    if mode := stat.S_IMODE(member.external_attr >> 16):
                        os.chmod(path, mode | stat.S_IRUSR | stat.S_IWUSR)
        elif tarfile.is_tarfile(archive):
            if not hasattr(tarfile, "data_filter"):
                raise SourceError(
                    f"{archive} cannot be extracted safely before Python 3.11.4: use a zip file or a folder"
                )
            with tarfile.open(archive) as tar:
                tar.extractall(whole, filter="data")
        else:
            raise SourceError(f"{archive} is neither a tar nor a zip file")
        entries = list(whole.iterdir())
        top = entries[0] if len(entries) == 1 and entries[0].is_dir() and not entries[0].is_symlink() else whole
        top.replace(target)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise SourceError(f"{archive} cannot be extracted: {error}") from None
    finally:
        shutil.rmtree(whole, ignore_errors=True)
