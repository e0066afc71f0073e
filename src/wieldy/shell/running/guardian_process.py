"""The guardian process: it waits until its owner has exited, then ends every process that carries a tag of the owner."""

from __future__ import annotations

import os
import select
import time

IMPORT_DELAY_MS = 1_000
"""Leave the CPU to the owner's first commands, then import the reaper: our files may be gone when it is needed."""


def main(tag: str, owner: str, ended_file: str = "") -> None:
    """Wait for the end of the owner, then end the processes it left, and write down when that was done."""
    watch = OwnerWatch(int(owner), {tag: ended_file})
    has_exited = watch.wait_for_exit(IMPORT_DELAY_MS)
    from wieldy.shell.running.reaper import ProcessTree, end_tree

    if not has_exited:
        watch.wait_for_exit()
    first, *others = watch.tags or ("nobody.",)
    end_tree(ProcessTree(first, frozenset(watch.groups), tuple(others)), limit=30.0)
    for file in filter(None, watch.tags.values()):
        _write_time(file)


def _write_time(path: str) -> None:
    try:
        with open(f"{path}.tmp", "w", encoding="ascii") as file:
            file.write(str(time.time_ns()))
        os.replace(f"{path}.tmp", path)
    except OSError:
        return


class OwnerWatch:
    """Watches the process that holds the other end of our stdin.

    `tags` are those that it wants guarded, each with the file for the time of the end; `groups` the running shells that it
    reported.
    """

    def __init__(self, owner: int, tags: dict[str, str]) -> None:
        self.tags = tags
        self.groups: set[int] = set()
        self._owner = owner
        self._buffer = b""
        self._poll = select.poll()
        self._poll.register(0, select.POLLIN | select.POLLHUP)
        os.set_blocking(0, False)
        try:
            # A fork of the owner may hold the pipe open after its death; a pidfd still tells.
            self._poll.register(os.pidfd_open(owner), select.POLLIN)
        except (OSError, AttributeError):
            return

    def wait_for_exit(self, timeout_ms: int | None = None) -> bool:
        """Wait for the owner's exit; False if nothing happened for this long."""
        has_exited = os.getppid() != self._owner
        while not has_exited:
            events = self._poll.poll(timeout_ms)
            if not events:
                return False
            pidfd_fired = any(descriptor != 0 for descriptor, _ in events)
            has_exited = self._read_reports() or pidfd_fired or os.getppid() != self._owner
        self._read_reports()
        return True

    def _read_reports(self) -> bool:
        """Read the reports of shells; whether the pipe has ended."""
        at_eof = False
        try:
            while data := os.read(0, 65536):
                self._buffer += data
            at_eof = True
        except BlockingIOError:
            pass
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            self._read_report(line[:1], line[1:])
        return at_eof

    def _read_report(self, kind: bytes, rest: bytes) -> None:
        if kind == b"w":
            tag, _, file = rest.partition(b" ")
            self.tags[tag.decode()] = os.fsdecode(file.replace(b"%0A", b"\n").replace(b"%25", b"%"))
        elif kind == b"f":
            self.tags.pop(rest.decode(), None)
        else:
            (self.groups.add if kind == b"+" else self.groups.discard)(int(rest))
