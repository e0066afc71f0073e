"""Put new bytes in the place of old ones, in one file or several: whoever looks sees a file whole, old or new, and a
failure at any point leaves every byte as it was.

How a file is written depends on what it is. Usually a temporary file beside it takes its name. A file of several names
(hard links), of another owner, or in a folder that takes no new files is written in place, because a replacement would
split or give it away; the journal's copy covers the crash that such a write may suffer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from msgspec import Struct

from wieldy.core.realpath import Swapped, open_exact_folder
from wieldy.files.writing.disk import LOCAL, Disk, sync_folder, write_all
from wieldy.files.writing.errors import CannotWrite, Moved, NotRolledBack, explain
from wieldy.files.writing.metadata import PRIVATE, carry_over
from wieldy.files.writing.recovery import (
    NEW_FILE,
    NO_LINKS,
    drop_emptied,
    drop_folders,
    inode,
    overwrite,
    state_of,
    sweep,
    sweep_switched,
    take_back,
)
from wieldy.files.writing.target import READ_FLAGS, Step, identity, look, plan

__all__ = ["CannotWrite", "Moved", "NotRolledBack", "Written", "commit", "write_atomically"]


class Written(Struct, frozen=True):
    """One file after the write: where it really is, its stat (None when deleted) and what a reader should know."""

    path: str
    real_path: str
    stat: os.stat_result | None
    notes: tuple[str, ...] = ()


def write_atomically(target: str, data: bytes, *, disk: Disk = LOCAL, roots: Sequence[str] = ()) -> Written:
    """Give `target` this content; a symlink stays one and its target is written, missing folders are made."""
    try:
        step = plan(look(target), data, alone=True)
    except OSError as error:
        raise explain(error, target, needed=len(data), roots=roots) from error
    return commit((step,), disk=disk, roots=roots)[0]


def commit(
    steps: Sequence[Step],
    *,
    disk: Disk = LOCAL,
    roots: Sequence[str] = (),
    meanwhile: Callable[[], object] | None = None,
) -> tuple[Written, ...]:
    """Carry out all steps or none. `roots` are searched for caches to name when the disk is full; `meanwhile` is called
    when the disk is about to be waited for the first time.
    """
    if not steps:
        return ()
    work = _Work(steps, disk, meanwhile)
    try:
        try:
            return work.carry_out()
        except BaseException as error:
            work.roll_back(error)
            if isinstance(error, OSError):
                needed = sum(len(step.after or b"") for step in steps)
                raise explain(error, work.current.path, needed=needed, roots=roots) from error
            raise
    finally:
        work.close()


class _Work:
    """The open descriptors and the progress of one commit."""

    def __init__(self, steps: Sequence[Step], disk: Disk, meanwhile: Callable[[], object] | None) -> None:
        self._steps = steps
        self._disk = disk
        self._meanwhile = meanwhile
        self._folders: dict[str, int] = {}
        self._grown: list[int] = []
        self._replaced: list[int] = []
        self._made: list[str] = []
        self._switched: list[Step] = []
        self._fresh: dict[str, tuple[int, int]] = {}
        self._notes: dict[str, tuple[str, ...]] = {}
        self.current = steps[0]

    def carry_out(self) -> tuple[Written, ...]:
        for step in self._steps:
            self.current = step
            self._enter(step)
            self._prepare(step)
        for step in self._steps:
            self.current = step
            self._switch(step)
        for fd in (*self._folders.values(), *self._grown):
            sync_folder(self._disk, fd)
        for step in self._steps:
            if step.manner != "in_place":
                sweep_switched(step, self._folders[step.folder], self._disk)
        written = tuple(map(self._written, self._steps))
        drop_emptied(self._steps, self._disk)
        return written

    def roll_back(self, cause: BaseException) -> None:
        failures: list[OSError] = []
        for step in reversed(self._switched):
            try:
                if self._is_ours(step):
                    take_back(step, self._folders[step.folder], self._disk)
            except OSError as error:
                failures.append(error)
        for step in self._steps:
            try:
                if step.folder in self._folders:
                    sweep(step, self._folders[step.folder], self._disk)
            except OSError as error:
                failures.append(error)
        try:
            drop_folders(self._made, self._disk)
        except OSError as error:
            failures.append(error)
        if failures:
            path = self.current.path
            raise NotRolledBack(
                path,
                f"Writing {path} failed ({cause}), and so did taking it back ({failures[0]}); retried at next start.",
            ) from cause

    def close(self) -> None:
        for fd in (*self._folders.values(), *self._grown):
            os.close(fd)
        for fd in self._replaced:
            os.close(fd)

    def _enter(self, step: Step) -> None:
        """Open the step's folder, making what is missing of it."""
        folder = step.folder
        if folder in self._folders:
            return
        for path in step.folders:
            outer = open_exact_folder(os.path.dirname(path))
            self._grown.append(outer)
            try:
                self._disk.mkdir(os.path.basename(path), dir_fd=outer)
            except FileExistsError:
                continue
            self._made.append(path)
        try:
            self._folders[folder] = open_exact_folder(folder)
        except (NotADirectoryError, Swapped):
            raise Moved(step.path, "lies in a folder that was replaced meanwhile") from None

    def _prepare(self, step: Step) -> None:
        """Have the new content ready beside the file and, where it is needed, a second name for the old one."""
        if step.after is None or step.manner == "in_place":
            return
        folder = self._folders[step.folder]
        private = step.manner == "replace" or step.mode is not None
        fd = self._disk.open(step.temp, NEW_FILE, PRIVATE if private else 0o666, dir_fd=folder)
        try:
            fresh = os.fstat(fd)
            self._fresh[step.temp] = fresh.st_dev, fresh.st_ino
            write_all(self._disk, fd, step.after)
            if step.manner == "replace":
                self._carry_over(step, fd, fresh, folder)
            elif step.mode is not None:
                self._disk.chmod(fd, step.mode)
            if self._meanwhile is not None:
                self._meanwhile()
                self._meanwhile = None
            self._disk.sync(fd)
        finally:
            os.close(fd)
        if step.manner == "replace" and step.aside:
            try:
                self._disk.link(step.name, step.aside, dir_fd=folder)
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise

    def _carry_over(self, step: Step, fd: int, fresh: os.stat_result, folder: int) -> None:
        """Give the new file what the old one has beside its content.

        A file that loses its last name is taken apart before the call returns, unless a descriptor leads to it: then when
        that is closed, which nobody has to wait for. Only on a disk of our own: elsewhere a file in use may be renamed
        first, and its name would be gone for a moment."""
        try:
            original = os.open(step.name, READ_FLAGS, dir_fd=folder)
        except FileNotFoundError:
            raise Moved(step.path, "was removed meanwhile") from None
        try:
            self._notes[step.temp] = carry_over(self._disk, original, fd, fresh)
        finally:
            if step.aside or not os.major(fresh.st_dev):
                os.close(original)
            else:
                self._replaced.append(original)

    def _switch(self, step: Step) -> None:
        folder, name = self._folders[step.folder], step.name
        if step.manner != "create":
            self._check(step, name, folder)
        self._switched.append(step)
        if step.manner == "create":
            self._create(step, folder)
        elif step.manner == "replace":
            self._disk.rename(step.temp, name, dir_fd=folder)
        elif step.manner == "delete":
            self._disk.rename(name, step.aside, dir_fd=folder)
            self._check(step, step.aside, folder)
        else:
            fd = self._disk.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            try:
                if identity(os.fstat(fd)) != step.seen:
                    raise Moved(step.path, "was changed by someone else meanwhile")
                overwrite(self._disk, fd, len(step.before or b""), step.after or b"")
            finally:
                os.close(fd)

    def _create(self, step: Step, folder: int) -> None:
        """A new file must not take the place of one that appeared meanwhile: linking refuses, renaming would not."""
        try:
            self._disk.link(step.temp, step.name, dir_fd=folder)
        except FileExistsError:
            raise Moved(step.path, "was made by someone else meanwhile") from None
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            if inode(step.name, folder) is not None:
                raise Moved(step.path, "was made by someone else meanwhile") from None
            self._disk.rename(step.temp, step.name, dir_fd=folder)

    def _check(self, step: Step, name: str, folder: int) -> None:
        try:
            stat = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            raise Moved(step.path, "was removed meanwhile") from None
        if identity(stat) != step.seen:
            raise Moved(step.path, "was changed by someone else meanwhile")

    def _is_ours(self, step: Step) -> bool:
        """Whether what has the file's name now is our doing, and not that of someone who came after us."""
        folder = self._folders[step.folder]
        if step.manner == "in_place":
            return state_of(step, folder) in ("new", "torn")
        return inode(step.name, folder) == self._fresh.get(step.temp)

    def _written(self, step: Step) -> Written:
        notes = step.notes + self._notes.get(step.temp, ())
        if step.after is None:
            return Written(step.path, step.real_path, None, notes)
        stat = os.stat(step.name, dir_fd=self._folders[step.folder], follow_symlinks=False)
        return Written(step.path, step.real_path, stat, notes)
