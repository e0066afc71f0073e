"""The folder of one session on this machine: the name of its transcript, who has it open, and the removal of old ones."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from wieldy.core.errors import SessionError

TRANSCRIPT_NAME = "transcript.jsonl"
OWNER_NAME = "owner"


class TranscriptLocked(SessionError):
    """Another process has the session open."""


def lock_transcript(file: int, folder: Path) -> None:
    """Lock an open transcript until it is closed. Raises `TranscriptLocked`; does nothing where there are no such locks."""
    try:
        if not _try_lock(file):
            raise TranscriptLocked(
                f"the session {folder.name} is open in {_owner(folder)}; wait until that ends, "
                "or continue in a copy: --fork-session"
            )
        (folder / OWNER_NAME).write_text(f"{os.getpid()}\n", encoding="utf-8")
    except OSError:
        return


def remove_old_sessions(folder: Path, before: float) -> None:
    """Remove the sessions below a folder that have not been used since a time, and that are not open."""
    with suppress(OSError):
        for session in [path for path in folder.iterdir() if path.is_dir()]:
            with suppress(OSError):
                if _last_use(session) < before and not _is_open(session / TRANSCRIPT_NAME):
                    import shutil

                    shutil.rmtree(session)


def _last_use(session: Path) -> float:
    return max(path.stat().st_mtime for path in (session, *session.iterdir()))


def _is_open(transcript: Path) -> bool:
    try:
        file = os.open(transcript, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _try_lock(file)
    finally:
        os.close(file)


def _try_lock(file: int) -> bool:
    """Lock an open file; false if another process, or another part of this one, has locked it."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _owner(folder: Path) -> str:
    try:
        pid = int((folder / OWNER_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "another process"
    return "this process" if pid == os.getpid() else f"another process (pid {pid})"
