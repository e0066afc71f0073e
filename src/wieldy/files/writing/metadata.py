"""Copy mode, owner and extended attributes to a replacement file without widening access."""

from __future__ import annotations

import errno
import os
import stat as st

from wieldy.files.writing.disk import Disk

PRIVATE_MODE = 0o600
# The kernel drops these when a file is written to; a replacement must not carry them over either.
CONTENT_BOUND_ATTRIBUTES = frozenset({"security.capability", "security.ima", "security.evm"})
UNSUPPORTED_ERRNOS = frozenset({errno.ENOTSUP, errno.EPERM, errno.EACCES, errno.EINVAL})


def can_keep_owner(stat: os.stat_result) -> bool:
    """Whether we may give a new file this owner and group."""
    if os.geteuid() == 0:
        return True
    return stat.st_uid == os.geteuid() and (stat.st_gid == os.getegid() or stat.st_gid in os.getgroups())


def restorable_mode(status_mode: int, owner: int) -> int:
    """The permissions of a file that may be given to a new one of ours: with another owner, special bits mean another user."""
    mode = st.S_IMODE(status_mode)
    return mode if not hasattr(os, "geteuid") or owner == os.geteuid() else mode & 0o777


def copy_metadata(disk: Disk, original: int, new: int) -> tuple[str, ...]:
    """Copy what `original` has to the open file `new`; returns notes on what could not be kept."""
    old_stat, new_stat = os.fstat(original), os.fstat(new)
    notes: list[str] = []
    mode = st.S_IMODE(old_stat.st_mode)
    if (new_stat.st_uid, new_stat.st_gid) != (old_stat.st_uid, old_stat.st_gid):
        try:
            disk.chown(new, old_stat.st_uid, old_stat.st_gid)
        except PermissionError:
            # Another owner or group must not gain what the old one was allowed.
            others = mode & 0o007
            mode = (mode & 0o700) | (mode & (others << 3)) | others
            notes.append("its owner could not be kept, so its mode was narrowed")
    notes += _copy_attributes(disk, original, new)
    disk.chmod(new, mode)  # after chown, which clears bits, and after the access list, which sets them
    return tuple(notes)


def _copy_attributes(disk: Disk, original: int, new: int) -> list[str]:
    if not hasattr(os, "listxattr"):
        return []
    try:
        names = os.listxattr(original)
    except OSError:
        return []  # a file system without extended attributes
    lost: list[str] = []
    for name in names:
        if name in CONTENT_BOUND_ATTRIBUTES:
            continue
        try:
            disk.setxattr(new, name, os.getxattr(original, name))
        except OSError as error:
            if error.errno == errno.ENODATA:
                continue
            if error.errno not in UNSUPPORTED_ERRNOS:
                raise
            lost.append(name)
    return [f"extended attributes could not be kept: {', '.join(lost)}"] if lost else []
