"""Writing over a file where replacing it would cut it off from its other names or its owner.

Here alone a crash can leave a mixture of old and new. It is recognised afterwards and put right from the journal.
"""

from __future__ import annotations

from itertools import zip_longest

from wieldy.edit.alike import same_start
from wieldy.edit.disk import Disk, pwrite_all, read_all

BLOCK = 4096
MIXED_BLOCKS = 64


def overwrite(disk: Disk, fd: int, old_size: int, data: bytes) -> None:
    """Turn an open file of `old_size` bytes into `data`. It grows first: a full disk shows before anything is lost."""
    view = memoryview(data)
    pwrite_all(disk, fd, view[old_size:], old_size)
    pwrite_all(disk, fd, view[:old_size], 0)
    if len(data) < old_size:
        disk.truncate(fd, len(data))
    disk.sync(fd)


def put_back(disk: Disk, fd: int, before: bytes) -> None:
    """Undo an overwrite, finished or not, touching only the bytes that differ: this works on a full disk too."""
    found = read_all(fd)
    if len(found) > len(before):
        disk.truncate(fd, len(before))
    first = same_start(found, before)
    if first < len(before):
        pwrite_all(disk, fd, memoryview(before)[first:], first)
    disk.sync(fd)


def is_torn(found: bytes, before: bytes, after: bytes) -> bool:
    """Whether `found` is what an interrupted `overwrite` leaves: in every place the old byte or the new one."""
    if not min(len(before), len(after)) <= len(found) <= max(len(before), len(after)):
        return False
    mixed = 0
    for at in range(0, len(found), BLOCK):
        piece, old, new = (content[at : at + BLOCK] for content in (found, before, after))
        if piece in (old[: len(piece)], new[: len(piece)]):
            continue
        mixed += 1
        if mixed > MIXED_BLOCKS or not all(p is None or p in (o, n) for p, o, n in zip_longest(piece, old, new)):
            return False
    return True
