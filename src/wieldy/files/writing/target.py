"""Where and in which manner a write will land: links followed, obstacles found, temporary names chosen beforehand."""

from __future__ import annotations

import errno
import os
import stat as bits
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from wieldy.core.realpath import open_exact
from wieldy.files.writing.disk import read_all
from wieldy.files.writing.errors import CannotWrite, Moved
from wieldy.files.writing.metadata import keeps_owner

if TYPE_CHECKING:
    from wieldy.files.editing.splicing import Splice


Manner: TypeAlias = Literal["create", "replace", "in_place", "delete"]
Identity: TypeAlias = tuple[int, int, int, int]

READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Step(Struct, frozen=True):
    """One file of a commit, called `name` in its `folder`. Every name that will exist even for a moment is fixed here: a
    crash hides nothing.

    `temp` and `aside` are names beside the file: its new content before, its old content after the switch (where one
    is needed). `folders` are parents, outermost first, that have to be made or, with a deletion, that go if they are left
    empty. `mode` is the file's own, None for a new one. `splice` says how `before` becomes `after`, where that is known.
    """

    path: str
    real_path: str
    folder: str
    name: str
    manner: Manner
    before: bytes | None
    after: bytes | None
    temp: str
    aside: str
    folders: tuple[str, ...] = ()
    seen: Identity | None = None
    mode: int | None = None
    notes: tuple[str, ...] = ()
    splice: Splice | None = None


class Landing(Struct, frozen=True):
    """Where a path really leads, and what is there."""

    path: str
    real_path: str
    stat: os.stat_result | None
    folders: tuple[str, ...] = ()
    content: bytes | None = None

    @property
    def locks(self) -> tuple[str, ...]:
        """What a writer must hold: the path and, for a file of several names, the file itself."""
        return _locks(self.real_path, self.stat)


def locks_at(real_path: str) -> tuple[str, ...]:
    """What a writer must hold at a place where no link is expected; whether it is so is seen under the locks."""
    try:
        return _locks(real_path, os.lstat(real_path))
    except OSError:
        return (real_path,)


def _locks(real_path: str, stat: os.stat_result | None) -> tuple[str, ...]:
    if stat is None or stat.st_nlink == 1:
        return (real_path,)
    return (real_path, f"{stat.st_dev}:{stat.st_ino}")


def locate(path: str, resolved: str | None = None) -> Landing:
    """Follow links and look, without opening the file. `led_to` is where the path led when it was judged."""
    real = resolved or os.path.realpath(path)
    try:
        stat = os.lstat(real)
    except FileNotFoundError:
        return Landing(path, real, None, _missing_folders(path, real))
    except NotADirectoryError:
        raise CannotWrite(path, f"{path} cannot exist: {_file_in_the_way(real)} is a file, not a folder.") from None
    if not bits.S_ISREG(stat.st_mode):
        raise CannotWrite(path, f"{path} is {_kind(stat.st_mode)}, not a regular file.")
    return Landing(path, real, stat)


def look(path: str, resolved: str | None = None) -> Landing:
    """Follow links and read what is there; where `led_to` is given, there and nowhere else."""
    landing = locate(path, resolved)
    return landing if landing.stat is None else looked_into(landing)


def looked_into(landing: Landing) -> Landing:
    """A landing where there is a file, with what that holds."""
    try:
        fd = open_exact(landing.real_path, READ_FLAGS)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENOENT):
            raise Moved(landing.path, "was replaced while it was being opened") from None
        raise
    try:
        stat = os.fstat(fd)
        if not bits.S_ISREG(stat.st_mode):
            raise Moved(landing.path, "was replaced while it was being opened")
        return Landing(landing.path, landing.real_path, stat, (), read_all(fd, stat.st_size))
    finally:
        os.close(fd)


def plan(
    landing: Landing,
    after: bytes | None,
    *,
    mode: int | None = None,
    splice: Splice | None = None,
    alone: bool = False,
) -> Step:
    """The step that turns what is there into `after`, by this `splice` where it is known; `mode` is for a file that is
    made anew. In a commit `alone`, no other file can fail after its switch and call for the old one."""
    notes = [] if landing.path == landing.real_path else _link_note(landing)
    stat = landing.stat
    manner: Manner
    if stat is None:
        manner = "create"
    elif after is None:
        manner = "delete"
        if stat.st_nlink > 1:
            notes.append("only this name was removed: the file has other names (hard links)")
    else:
        manner, why = _manner(landing, stat)
        notes += why
    token = f".wieldy-{os.getpid()}-{os.urandom(6).hex()}"
    folder, name = parted(landing.real_path)
    return Step(
        path=landing.path,
        real_path=landing.real_path,
        folder=folder,
        name=name,
        manner=manner,
        before=landing.content,
        after=after,
        temp=f"{token}.tmp",
        aside="" if alone and manner == "replace" else f"{token}.old.tmp",
        folders=landing.folders,
        seen=None if stat is None else identity(stat),
        mode=mode if stat is None else bits.S_IMODE(stat.st_mode),
        notes=tuple(notes),
        splice=splice,
    )


def parted(real_path: str) -> tuple[str, str]:
    """The folder of a file, and its name there."""
    folder, _, name = real_path.rpartition("/")
    return folder or "/", name


def in_place(step: Step, why: str) -> Step:
    """The same step without a replacement."""
    return replace(step, manner="in_place", notes=(*step.notes, f"written in place, because {why}"))


def identity(stat: os.stat_result) -> Identity:
    """What tells that a name still leads to the very file, unchanged, that was looked at."""
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def _manner(landing: Landing, stat: os.stat_result) -> tuple[Manner, list[str]]:
    _require_writing(landing.real_path)
    if stat.st_nlink > 1:
        return "in_place", [
            f"written in place, because the file has {stat.st_nlink} names (hard links) that stay one file"
        ]
    if not keeps_owner(stat):
        return "in_place", ["written in place, because a replacement would change its owner"]
    if not may_write(parted(landing.real_path)[0]):
        return "in_place", ["written in place, because its folder takes no new files"]
    return "replace", []


def may_write(path: str) -> bool:
    """Whether we, as we are now, may write there."""
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _require_writing(path: str) -> None:
    """A file that may not be written must not be replaced either; opening it tells the true reason."""
    if may_write(path):
        return
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        if error.errno != errno.ETXTBSY:  # a running program keeps its old file and may get a new one
            raise


def _link_note(landing: Landing) -> list[str]:
    if os.path.islink(landing.path):
        return [f"{landing.path} is a symlink and stays one: its target {landing.real_path} was written"]
    return []


def _missing_folders(path: str, real: str) -> tuple[str, ...]:
    missing: list[str] = []
    folder = os.path.dirname(real)
    while not os.path.isdir(folder):
        if os.path.lexists(folder):
            raise CannotWrite(path, f"{path} cannot be made: {folder} is not a folder.")
        missing.append(folder)
        folder = os.path.dirname(folder)
    return tuple(reversed(missing))


def _file_in_the_way(real: str) -> str:
    folder = os.path.dirname(real)
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    return folder


def _kind(mode: int) -> str:
    if bits.S_ISDIR(mode):
        return "a folder"
    if bits.S_ISLNK(mode):
        return "a symlink that leads round in a circle"
    return "a pipe, socket or device"
