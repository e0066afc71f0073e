"""What is at a path apart from the content of a file: a symlink, a folder, or the permissions of a file or folder.

Symlinks are never followed, neither at the path nor on the way to it.
"""

from __future__ import annotations

import os
import stat as st
from typing import Literal, TypeAlias

from msgspec import Struct

from wieldy.core.realpath import PathChanged, open_resolved_folder
from wieldy.files.writing.metadata import restorable_mode
from wieldy.files.writing.target import split_path

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

    Raises `OSError` where nobody may look.
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
    """Like `read_node`; what nobody may look at is something other."""
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
