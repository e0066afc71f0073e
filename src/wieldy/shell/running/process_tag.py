"""A brand: the number of a command in a resource limit, inherited by all it starts and lost by none of them by accident.

The limit is that on file locks. Every Linux since 2.6 keeps it for each process, shows it, and enforces it nowhere; it
outlives what wipes off a mark in the environment. Systems that refuse it, or have none, are left with the mark.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

VARIABLE = "WIELDY_BRAND"
"""Brings the number to the preamble, by which bash brands itself before the command can start anything."""

LOCKS = 10
COUNT_BITS = 20
MOST_LOOKED_AT = 512

_MARK = re.compile(r"([0-9a-f]{10})[0-9a-f]{6}(?:\.([0-9]+))?\.?")
_SHOWN = re.compile(rb"^Max file locks +([0-9]+) ", re.MULTILINE)


def numbers(mark: str) -> range:
    """The numbers that belong to a mark: one for a command's, all of its commands' for a session's, else none."""
    if (parts := _MARK.fullmatch(mark)) is None:
        return range(0)
    first = int(parts[1], 16) << COUNT_BITS
    if parts[2] is None:
        return range(first, first + (1 << COUNT_BITS))
    number = first + int(parts[2]) % (1 << COUNT_BITS)
    return range(number, number + 1)


def brand(pid: int, mark: str) -> None:
    """Give a process the number of a command's mark; what it has started before keeps its own."""
    with contextlib.suppress(OSError, ValueError):
        if (own := numbers(mark)) and (limit := _limit()):
            limit(pid, LOCKS, (own.start, limit(pid, LOCKS)[1]))


def carries(pid: int, wanted: range) -> bool:
    """Whether a process is branded with one of these numbers. Costs about a microsecond."""
    if not wanted or (limit := _limit()) is None:
        return False
    try:
        return limit(pid, LOCKS)[0] in wanted
    except PermissionError:
        return _shown(pid) in wanted
    except OSError:
        return False


def may_have_left(pid: int, mark: str, last: int) -> bool:
    """Whether a branded process born after `pid`, and not after `last`, may be alive.

    No more are looked at than can be without leaving the event loop. Beyond that, and where numbers were begun anew, one may.
    """
    if _limit() is None:
        return False
    if not pid <= last <= pid + MOST_LOOKED_AT:
        return True
    wanted = numbers(mark)
    return any(carries(younger, wanted) for younger in range(pid + 1, last + 1))


def last_born() -> int:
    """The number that was given to a process last; 0 if nobody tells."""
    try:
        with open("/proc/loadavg", "rb") as file:
            return int(file.read().split()[-1])
    except (OSError, ValueError, IndexError):
        return 0


def _shown(pid: int) -> int:
    """The number as /proc shows it to everybody: also that of one with a group of its own, such as ssh-agent.

    Where there is none it is -1, as for a limit that is none: only for whole numbers a range need not be gone through.
    """
    try:
        os.kill(pid, 0)  # whoever cannot be signalled need not be known
        with open(f"/proc/{pid}/limits", "rb") as file:
            found = _SHOWN.search(file.read())
    except OSError:
        return -1
    return int(found[1]) if found else -1


@cache
def _limit() -> Callable[..., Any] | None:
    """Reads and sets a limit of any process of ours; None where there is no such call."""
    if sys.platform != "linux":
        return None
    import resource

    return resource.prlimit
