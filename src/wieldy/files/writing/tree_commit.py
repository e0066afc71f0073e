"""Write files and change symlinks, folders and permissions around them, all or none: what undo of a command needs.

The order makes room before anything new comes: symlinks go, files go, folders go that something else replaces; then folders
come, files come, symlinks come; permissions are last, and folders that are no longer needed go if nothing is in them.
Rolling back, after a failure or in the next process after a crash, is the same in the other direction. Symlinks are never
followed, neither at a path nor on the way to it.
"""

from __future__ import annotations

import errno
import os
import stat as st
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from wieldy.core.errors import StaleFileError
from wieldy.core.realpath import PathChanged, open_resolved_folder
from wieldy.files.writing.commit import (
    WriteState,
    WrittenFile,
    commit_writes,
    is_finished,
    roll_back_writes,
    write_states,
)
from wieldy.files.writing.disk import (
    LOCAL_DISK,
    Disk,
    FileWrite,
    RollbackError,
    explain_os_error,
    is_at_or_below,
    restorable_mode,
    split_path,
    sync_folder,
)

NodeKind: TypeAlias = Literal["file", "symlink", "folder", "other"]


class Node(Struct, frozen=True):
    """`mode` are the permission bits of a file or folder, `target` is where a symlink leads. Others are pipes and devices."""

    kind: NodeKind
    mode: int = 0
    target: str = ""


class NodeChange(Struct, frozen=True):
    """A path before and after. None: neither symlink nor folder; whether there is a file is not said here."""

    path: str
    before: Node | None
    after: Node | None

    @property
    def is_folder(self) -> bool:
        """Whether nothing but folders is concerned."""
        return {node.kind for node in (self.before, self.after) if node is not None} == {"folder"}

    @property
    def makes_folder(self) -> bool:
        """Whether there is a folder afterwards and was none before."""
        kinds = [None if node is None else node.kind for node in (self.before, self.after)]
        return kinds[0] != "folder" and kinds[1] == "folder"


def read_node(path: str) -> Node | None:
    """What is at a path; None where there is nothing, or where the way to it leads through a symlink.

    Raises `OSError` where access is denied.
    """
    folder, name = split_path(path)
    try:
        descriptor = open_resolved_folder(folder)
    except (FileNotFoundError, NotADirectoryError, PathChanged):
        return None
    try:
        return node_at(name, descriptor)
    finally:
        os.close(descriptor)


def look_at(path: str) -> Node | None:
    """Like `read_node`; where access is denied, the kind is `other`."""
    try:
        return read_node(path)
    except OSError:
        return Node("other")


def node_at(name: str, folder: int) -> Node | None:
    """What is in an open folder by this name."""
    try:
        status = os.stat(name or ".", dir_fd=folder, follow_symlinks=False)
        if st.S_ISLNK(status.st_mode):
            return Node("symlink", target=os.readlink(name, dir_fd=folder))
    except FileNotFoundError:
        return None
    mode = st.S_IMODE(status.st_mode)
    if st.S_ISREG(status.st_mode):
        return Node("file", restorable_mode(status.st_mode, status.st_uid))
    return Node("folder", mode) if st.S_ISDIR(status.st_mode) else Node("other")


def is_same_node(actual: Node | None, recorded: Node | None) -> bool:
    """Whether a path is as it was recorded. A file that is not there is not looked for here: its content says that."""
    if recorded is None:
        return actual is None or actual.kind == "file"
    return actual == recorded or (actual is None and recorded.kind == "file")


OWNER_ACCESS = 0o700


def commit_tree(
    writes: Sequence[FileWrite],
    nodes: Sequence[NodeChange],
    *,
    disk: Disk = LOCAL_DISK,
    roots: Sequence[str] = (),
) -> tuple[WrittenFile, ...]:
    """Carry out all writes and all changes of nodes, or none."""
    # A deletion must leave nothing behind in a folder that goes next; a lone write has no second name of the old file.
    removed = [replace(write, folders=()) for write in writes if write.after is None]
    others = [write for write in writes if write.after is not None]
    written: list[WrittenFile] = []
    _require_unchanged(nodes, roots)
    try:
        _change_nodes(
            [(change.path, change.before, change.after) for change in nodes],
            {write.real_path for write in others},
            lambda: written.extend(commit_writes(removed, disk=disk, roots=roots)),
            lambda: written.extend(commit_writes(others, disk=disk, roots=roots)),
            disk,
            refuse_obstacles,
        )
    except RollbackError:
        raise
    except BaseException as error:
        path = nodes[0].path
        try:
            roll_back_tree(writes, nodes, disk)
        except OSError as failure:
            message = f"Writing {path} failed ({error}), and so did rolling it back ({failure}); retried at next start."
            raise RollbackError(path, message) from error
        if isinstance(error, OSError):
            raise explain_os_error(error, str(error.filename or path), roots=roots) from error
        raise
    return tuple(written)


def recover_tree(writes: Sequence[FileWrite], nodes: Sequence[NodeChange], *, disk: Disk = LOCAL_DISK) -> bool:
    """Bring what a dead process was about to change to all new (true) or all old (false). The caller holds the locks."""
    states = _write_states(writes, nodes)
    are_new = all(is_same_node(read_node(change.path), change.after) for change in nodes)
    if are_new and (not writes or is_finished(states)):
        roll_back_writes(writes, states, disk, finished=True)
        return True
    roll_back_tree(writes, nodes, disk)
    return False


def roll_back_tree(writes: Sequence[FileWrite], nodes: Sequence[NodeChange], disk: Disk) -> None:
    """Bring everything back to how it was before. What someone else has changed since is left alone."""
    states = dict(zip(map(id, writes), _write_states(writes, nodes), strict=True))

    def roll_back(chosen: list[FileWrite]) -> None:
        roll_back_writes(chosen, [states[id(write)] for write in chosen], disk, finished=False)

    _change_nodes(
        [
            (change.path, now, change.before)
            for change in nodes
            if (now := read_node(change.path)) is None or _is_ours(now, change)
        ],
        {write.real_path for write in writes if write.before is not None},
        lambda: roll_back([write for write in writes if write.before is None]),
        lambda: roll_back([write for write in writes if write.before is not None]),
        disk,
        leave_obstacles,
    )


def _require_unchanged(nodes: Sequence[NodeChange], roots: Sequence[str]) -> None:
    for change in nodes:
        try:
            now = read_node(change.path)
        except OSError as error:
            raise explain_os_error(error, change.path, roots=roots) from error
        if not is_same_node(now, change.before):
            raise StaleFileError(change.path, "was changed by someone else meanwhile")


def _write_states(writes: Sequence[FileWrite], nodes: Sequence[NodeChange]) -> list[WriteState]:
    """How far each write came. Where a symlink or folder of ours is, there is no file."""
    paths = {change.path for change in nodes}
    states = write_states(writes)
    for position, write in enumerate(writes):
        if states[position] == "foreign" and write.real_path in paths:
            node = read_node(write.real_path)
            if node is not None and node.kind in ("symlink", "folder"):
                states[position] = "new" if write.after is None else "old" if write.before is None else "foreign"
    return states


@contextmanager
def refuse_obstacles(path: str) -> Iterator[None]:
    """While something is changed: what someone else has put in the way is a reason to change nothing."""
    try:
        yield
    except FileExistsError:
        raise StaleFileError(path, "was made by someone else meanwhile") from None
    except FileNotFoundError:
        raise StaleFileError(path, "was removed meanwhile") from None


@contextmanager
def leave_obstacles(path: str) -> Iterator[None]:
    """While something is rolled back: what someone else has put in the way stays."""
    with suppress(StaleFileError, FileExistsError, FileNotFoundError):
        yield


def _is_ours(now: Node, change: NodeChange) -> bool:
    """Whether a node is in one of the states that a commit passes through."""
    states = (change.before, change.after)
    if now.kind == "folder":
        modes = {
            state.mode | extra for state in states if state and state.kind == "folder" for extra in (0, OWNER_ACCESS)
        }
        return now.mode in modes or now.mode == OWNER_ACCESS
    if now.kind == "file" and not all(_is(state, "file") for state in states):
        return True  # a file that came or is about to go; its permissions are set last
    return any(is_same_node(now, state) for state in states)


# A path, what is there now, and what shall be.
Move: TypeAlias = tuple[str, Node | None, Node | None]


def _change_nodes(
    moves: Sequence[Move],
    files: Collection[str],
    remove_files: Callable[[], None],
    write_files: Callable[[], None],
    disk: Disk,
    guard: Callable[[str], AbstractContextManager[None]],
) -> None:
    """Bring nodes from one state to another; `files` are the paths where there will be files."""
    outer_first = sorted(moves, key=lambda move: move[0])
    inner_first = outer_first[::-1]
    for path, now, then in outer_first:
        if now is not None and now.kind == "folder" and _is(then, "folder") and now != then:
            _set_mode(path, "folder", now.mode | OWNER_ACCESS, disk)
    for path, now, then in outer_first:
        if _is(now, "symlink") and now != then:
            with guard(path), _parent(path) as (name, folder):
                disk.unlink(name, dir_fd=folder)
    remove_files()
    in_the_way = {path for path, now, then in moves if _is(now, "folder") and (path in files or _is(then, "symlink"))}
    for path, now, then in inner_first:
        if _is(now, "folder") and not _is(then, "folder") and is_at_or_below(path, in_the_way):
            with guard(path):
                _remove_folder(path, disk)
    for path, now, then in outer_first:
        if _is(then, "folder") and not _is(now, "folder"):
            with guard(path), _parent(path) as (name, folder):
                disk.mkdir(name, OWNER_ACCESS, dir_fd=folder)
    write_files()
    for path, now, then in outer_first:
        if then is not None and then.kind == "symlink" and now != then:
            with guard(path), _parent(path) as (name, folder):
                disk.symlink(then.target, name, dir_fd=folder)
    for path, now, then in inner_first:
        if _is(now, "folder") and (then is None or then.kind == "file") and not is_at_or_below(path, in_the_way):
            _remove_if_empty(path, disk)
    for path, _, then in inner_first:
        if then is not None and then.kind in ("file", "folder"):
            _set_mode(path, then.kind, then.mode, disk)
    _sync_parents(moves, disk)


def _is(node: Node | None, kind: str) -> bool:
    return node is not None and node.kind == kind


@contextmanager
def _parent(path: str) -> Iterator[tuple[str, int]]:
    """The name of a path and its open folder."""
    above, name = split_path(path)
    try:
        folder = open_resolved_folder(above)
    except (NotADirectoryError, PathChanged):
        raise StaleFileError(path, "lies in a folder that was replaced meanwhile") from None
    try:
        yield name, folder
    finally:
        os.close(folder)


def _set_mode(path: str, kind: str, mode: int, disk: Disk) -> None:
    """Set the permissions of a file or folder that is there and has others."""
    try:
        parent = open_resolved_folder(split_path(path)[0])
    except (FileNotFoundError, NotADirectoryError, PathChanged):
        return
    try:
        name = split_path(path)[1]
        now = node_at(name, parent)
        if now is not None and now.kind == kind and now.mode != mode:
            disk.chmod_at(name, mode, dir_fd=parent)
    finally:
        os.close(parent)


def _remove_folder(path: str, disk: Disk) -> None:
    with _parent(path) as (name, folder):
        try:
            disk.rmdir(name, dir_fd=folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            raise StaleFileError(path, "has something in it that would be lost") from None


def _remove_if_empty(path: str, disk: Disk) -> None:
    """Remove a folder, unless something else has come into it."""
    try:
        with _parent(path) as (name, folder):
            disk.rmdir(name, dir_fd=folder)
    except (StaleFileError, FileNotFoundError):
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise


def _sync_parents(moves: Sequence[Move], disk: Disk) -> None:
    with ExitStack() as stack:
        for folder in {split_path(path)[0] for path, _, _ in moves}:
            try:
                descriptor = open_resolved_folder(folder)
            except OSError:
                continue  # gone, and with it what was in it
            stack.callback(os.close, descriptor)
            sync_folder(disk, descriptor)
