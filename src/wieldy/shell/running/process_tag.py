"""Tags processes with the number of their command, stored in a resource limit that every child inherits.

The limit is RLIMIT_LOCKS: Linux keeps it for each process, shows it, and has not enforced it since 2.4. Unlike a variable, it
survives an emptied environment. Systems without it have only the tag in the environment.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

TAG_VARIABLE = "WIELDY_PROCESS_TAG"
"""Holds the tags of a process: a session's token and a command's count, such as `0123456789abcdef.3.`."""
TAG_NUMBER_VARIABLE = "WIELDY_TAG_NUMBER"
"""Brings the number to the preamble, so that bash tags itself before the command starts anything."""

RLIMIT_LOCKS = 10
COUNT_BITS = 20
MAX_PIDS_CHECKED = 512

_TAG = re.compile(r"([0-9a-f]{10})[0-9a-f]{6}(?:\.([0-9]+))?\.?")
_AVAILABLE_LINE = re.compile(rb"MemAvailable: *([0-9]+) kB")
_LIMITS_LINE = re.compile(rb"^Max file locks +([0-9]+) ", re.MULTILINE)


def tag_numbers(tag: str) -> range:
    """The numbers of a tag: one for a command, those of all its commands for a session, none for any other text."""
    if (parts := _TAG.fullmatch(tag)) is None:
        return range(0)
    first = int(parts[1], 16) << COUNT_BITS
    if parts[2] is None:
        return range(first, first + (1 << COUNT_BITS))
    number = first + int(parts[2]) % (1 << COUNT_BITS)
    return range(number, number + 1)


def tag_process(pid: int, tag: str) -> None:
    """Give a process the number of a command; children it has already are not changed."""
    with contextlib.suppress(OSError, ValueError):
        if (numbers := tag_numbers(tag)) and (prlimit := _prlimit()):
            prlimit(pid, RLIMIT_LOCKS, (numbers.start, prlimit(pid, RLIMIT_LOCKS)[1]))


def has_tag_number(pid: int, numbers: range) -> bool:
    """Whether a process is tagged with one of these numbers."""
    if not numbers or (prlimit := _prlimit()) is None:
        return False
    try:
        return prlimit(pid, RLIMIT_LOCKS)[0] in numbers
    except PermissionError:
        return _limit_in_proc(pid) in numbers
    except OSError:
        return False


def may_have_descendants(pid: int, tag: str, last: int) -> bool:
    """Whether a tagged process that started after `pid`, up to the pid `last`, may be alive.

    Checks at most `MAX_PIDS_CHECKED`, as it runs on the event loop. With more, or after pids wrapped around, it says yes.
    """
    if _prlimit() is None:
        return False
    if not pid <= last <= pid + MAX_PIDS_CHECKED:
        return True
    numbers = tag_numbers(tag)
    return any(has_tag_number(younger, numbers) for younger in range(pid + 1, last + 1))


def last_pid() -> int:
    """The pid that was assigned last; 0 if the system does not tell."""
    return int(_load()[-1])


def running_processes() -> int:
    """How many processes and threads the whole machine has; 0 if the system does not tell."""
    return int(_load()[-2].partition(b"/")[2])


def available_mb() -> int:
    """The memory that the whole machine can still give to programs; 0 if the system does not tell."""
    try:
        with open("/proc/meminfo", "rb") as file:
            match = _AVAILABLE_LINE.search(file.read())
    except OSError:
        return 0
    return int(match[1]) >> 10 if match else 0


def _load() -> list[bytes]:
    try:
        with open("/proc/loadavg", "rb") as file:
            return file.read().split()
    except OSError:
        return [b"0/0", b"0"]


def _limit_in_proc(pid: int) -> int:
    """The number as /proc shows it, also for a process with another group, such as ssh-agent; -1 if there is none."""
    try:
        os.kill(pid, 0)  # one that we cannot signal does not matter
        with open(f"/proc/{pid}/limits", "rb") as file:
            match = _LIMITS_LINE.search(file.read())
    except OSError:
        return -1
    return int(match[1]) if match else -1


@cache
def _prlimit() -> Callable[..., Any] | None:
    if sys.platform != "linux":
        return None
    import resource

    return resource.prlimit
