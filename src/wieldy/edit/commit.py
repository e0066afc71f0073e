"""Put new bytes in a file's place so that whoever looks sees the whole old file or the whole new one."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass

from wieldy.core.failure import WieldyError


class Moved(WieldyError):
    """What is on disk is no longer what the writer saw. Nothing was written."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path} {why}")
        self.path = path
        self.why = why


class CannotWrite(WieldyError):
    """The system does not let the file be written. The message says what is needed; every file is as it was."""

    def __init__(self, path: str, message: str, *, errno: int = 0) -> None:
        super().__init__(message)
        self.path = path
        self.message = message
        self.errno = errno


@dataclass(frozen=True, slots=True)
class Written:
    """One file after the write: where it really is, its stat (None when deleted) and what a reader should know."""

    path: str
    real_path: str
    stat: os.stat_result | None
    notes: tuple[str, ...] = ()


def write_atomically(target: str, data: bytes) -> Written:
    """Replace the content of `target`, following symlinks."""
    real = os.path.realpath(target)
    temp = os.path.join(os.path.dirname(real), f".wieldy-{os.getpid()}-{secrets.token_hex(4)}.tmp")
    with open(temp, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temp, real)
    return Written(target, real, os.stat(real))
