"""The identity of an attempt: a hash of the task and of everything that changes its outcome.

An identity that has a finished result never runs again. Names that only label a task (`tags`) and the user's own settings
files are no part of it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from hashlib import blake2b
from typing import Any

import msgspec

from wieldy.faces.batch.tasks import Task, TaskSource, is_remote
from wieldy.files.working_copies.files import walk_files
from wieldy.files.working_copies.git import is_repository, read_git, resolve_commit


def digest(value: Any) -> str:
    """A short hash of a JSON value, whatever the order of its keys."""
    return blake2b(msgspec.json.encode(value, order="sorted"), digest_size=12).hexdigest()


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


class Fingerprints:
    """Fingerprints of sources, each computed once. Without isolation the run changes the folder itself: only its path counts.

    `exclude` are the files of the run itself, which may be inside a source: the results, the copies, the tasks.
    """

    def __init__(self, isolate: str, exclude: Collection[str] = ()) -> None:
        self._isolate = isolate
        self._exclude = exclude
        self._known: dict[TaskSource, str] = {}

    def of(self, source: TaskSource) -> str:
        """The fingerprint of a source. Raises `SourceError`."""
        if source not in self._known:
            self._known[source] = source.location if self._isolate == "none" else fingerprint(source, self._exclude)
        return self._known[source]


def fingerprint(source: TaskSource, exclude: Collection[str] = ()) -> str:
    """What the files of a source are, without reading more of them than necessary. Raises `SourceError`."""
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
