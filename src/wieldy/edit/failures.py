"""Why a file was not written, in words that say what is needed."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from wieldy.core.failure import WieldyError


class Moved(WieldyError):
    """What is on disk is no longer what the writer saw. Nothing was written."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path} {why}. Nothing was written; read it again first.")
        self.path = path
        self.why = why


class CannotWrite(WieldyError):
    """The system does not let the file be written. The message says what is needed."""

    def __init__(self, path: str, message: str, *, number: int = 0) -> None:
        super().__init__(message)
        self.path = path
        self.message = message
        self.number = number


class NotRolledBack(CannotWrite):
    """A write failed and so did taking it back; the journal finishes that at the next start."""


def explain(error: OSError, path: str, *, needed: int = 0, roots: Sequence[str] = ()) -> CannotWrite:
    """What a failed call means for who wants to write `needed` bytes to `path`; `roots` are searched for caches."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        from wieldy.edit.space import shortage

        return CannotWrite(
            path, shortage(path, needed, quota=error.errno == errno.EDQUOT, roots=roots), number=error.errno
        )
    words = _WORDS.get(error.errno or 0, "{path} could not be written: {why}")
    why = (error.strerror or str(error)).lower()
    message = words.format(path=path, folder=os.path.dirname(path), why=why, who=_who(), mode=_mode(path))
    return CannotWrite(path, f"{message}. It is unchanged.", number=error.errno or 0)


_WORDS = {
    errno.EACCES: "{path} may not be written by {who}{mode}; it takes write permission on it and its folder {folder}",
    errno.EPERM: "{path} is protected{mode}: it, or its folder {folder}, is immutable or belongs to someone else",
    errno.EROFS: "{path} is on a file system mounted read-only; it takes another place, or a mount that allows writing",
    errno.EIO: "the disk reported an error while writing {path} ({why}); check the medium before trying again",
    errno.ENAMETOOLONG: "{path} has a name too long for its file system; choose a shorter one",
    errno.EBUSY: "{path} is held by the system (a mount point, perhaps) and cannot be replaced",
    errno.ETXTBSY: "{path} is a program that is running; stop it first",
    errno.EFBIG: "{path} would exceed the size limit for files here",
    errno.EMFILE: "too many files are open to write {path}; close some and try again",
}


def _who() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"user {os.geteuid()}"


def _mode(path: str) -> str:
    try:
        return f" (mode {os.stat(path).st_mode & 0o7777:04o})"
    except OSError:
        return ""
