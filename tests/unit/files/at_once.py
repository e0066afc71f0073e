"""What programs do step by step or on an event loop, in one blocking call: for tests of the steps."""

from __future__ import annotations

from wieldy.files.journal.journal import Journal
from wieldy.files.writing.commit import WrittenFile, commit_writes
from wieldy.files.writing.disk import LOCAL_DISK, Disk, explain_os_error
from wieldy.files.writing.writers import LocalWriter


def start_now(journal: Journal) -> tuple[str, ...]:
    """Do what `Journal.start` does; returns the notices."""
    journal.recover()
    if journal.retention.is_due():
        journal.retention.sweep()
    notices = tuple(journal.notices)
    journal.notices.clear()
    return notices


def write_atomically(path: str, data: bytes, *, disk: Disk = LOCAL_DISK) -> WrittenFile:
    """Replace the content of a file without a journal."""
    try:
        write = LocalWriter().plan_write(LocalWriter().read_target(path), data, alone=True)
    except OSError as error:
        raise explain_os_error(error, path, needed=len(data)) from error
    return commit_writes((write,), disk=disk)[0]
