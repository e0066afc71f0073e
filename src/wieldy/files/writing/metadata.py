"""What a file carries beside its bytes (mode, owner, attributes), kept across a replacement and never widened."""

from __future__ import annotations

import errno
import os
import stat as bits

from wieldy.files.writing.disk import Disk

PRIVATE = 0o600
# The kernel drops these when a file is written to; a replacement must not carry them over either.
BOUND_TO_CONTENT = frozenset({"security.capability", "security.ima", "security.evm"})
NOT_HERE = frozenset({errno.ENOTSUP, errno.EPERM, errno.EACCES, errno.EINVAL})


def keeps_owner(stat: os.stat_result) -> bool:
    """Whether a new file can be given this file's owner and group by whoever we are."""
    if os.geteuid() == 0:
        return True
    return stat.st_uid == os.geteuid() and (stat.st_gid == os.getegid() or stat.st_gid in os.getgroups())


def carry_over(disk: Disk, original: int, new: int, fresh: os.stat_result) -> tuple[str, ...]:
    """Give the open file `new`, which is `fresh`, what `original` has; says what could not be kept."""
    wanted = os.fstat(original)
    notes: list[str] = []
    mode = bits.S_IMODE(wanted.st_mode)
    if (fresh.st_uid, fresh.st_gid) != (wanted.st_uid, wanted.st_gid):
        try:
            disk.chown(new, wanted.st_uid, wanted.st_gid)
        except PermissionError:
            # Another owner or group must not gain what the old one was allowed.
            others = mode & 0o007
            mode = (mode & 0o700) | (mode & (others << 3)) | others
            notes.append("its owner could not be kept, so its mode was narrowed")
    notes += _carry_attributes(disk, original, new)
    disk.chmod(new, mode)  # after chown, which clears bits, and after the access list, which sets them
    return tuple(notes)


def _carry_attributes(disk: Disk, original: int, new: int) -> list[str]:
    if not hasattr(os, "listxattr"):
        return []
    try:
        names = os.listxattr(original)
    except OSError:
        return []  # a file system without them
    lost: list[str] = []
    for name in names:
        if name in BOUND_TO_CONTENT:
            continue
        try:
            disk.setxattr(new, name, os.getxattr(original, name))
        except OSError as error:
            if error.errno == errno.ENODATA:
                continue
            if error.errno not in NOT_HERE:
                raise
            lost.append(name)
    return [f"extended attributes could not be kept: {', '.join(lost)}"] if lost else []
