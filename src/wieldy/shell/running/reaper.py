"""Finds every process a shell has left behind and ends it. No event loop and no threads: the guardian runs it too."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from wieldy.shell.running.process_tag import carries, numbers

PROC = "/proc"
HAS_PROC = os.path.exists(f"{PROC}/self/stat")
PIDFD: Callable[[int], int] | None = getattr(os, "pidfd_open", None)
GRACE = 0.4
LIMIT = 5.0


@dataclass(frozen=True, slots=True)
class Process:
    """One line of the process table; pid and start time together name a process for good."""

    pid: int
    parent: int
    group: int
    session: int
    started: int
    name: str


@dataclass(frozen=True, slots=True)
class Tree:
    """Processes that belong together: by a mark in their environment or its brand, by group or session of `roots`, by birth.

    Both survive `setsid`, double forks and a dead parent, the brand an emptied environment too; roots and parentage serve
    where there are no brands. A root must still be ours (not yet waited for), or its number could have been given to a stranger.
    """

    mark: str
    roots: frozenset[int] = frozenset()


def process_table() -> dict[int, Process]:
    """All living processes; the dead that nobody has waited for are left out."""
    table = {}
    for name in os.listdir(PROC):
        if name.isdigit() and (process := _process(int(name))):
            table[process.pid] = process
    return table


def members(tree: Tree) -> list[Process]:
    """The living processes of a tree, except the one that asks."""
    if not HAS_PROC:
        return []
    table = process_table()
    mark, branded = tree.mark.encode(), numbers(tree.mark)
    own = os.getpid()
    found = {
        process.pid
        for process in table.values()
        if process.group in tree.roots
        or process.session in tree.roots
        or carries(process.pid, branded)
        or _is_marked(process.pid, mark)
    }
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)
    unvisited = list(found)
    while unvisited:
        for child in children.get(unvisited.pop(), ()):
            if child not in found:
                found.add(child)
                unvisited.append(child)
    found.discard(own)
    return [table[pid] for pid in sorted(found)]


def lasting(tree: Tree, seconds: float) -> list[Process]:
    """The members of a tree that are still there after so many seconds; the answer comes at once when all have ended."""
    found = members(tree)
    _await_exits([_handle(process, PIDFD) for process in found], seconds)
    return [process for process in found if _same(process)]


def end(tree: Tree, *, grace: float = GRACE, limit: float = LIMIT) -> list[Process]:
    """Ask every process of a tree to end, kill those that have not after `grace` seconds, and return who survived."""
    if not HAS_PROC:
        _end_groups(tree.roots, grace)
        return []
    deadline = time.monotonic() + limit
    seen = set(members(tree))
    _await_exits(_signal(seen, (signal.SIGTERM, signal.SIGCONT)), grace)
    # One can be born while the table is read, and its parent die before its line is reached; one that is just becoming
    # another program shows no environment. Only when nobody is seen twice in a row is nobody left.
    while living := _still_there(seen, tree) or _still_there(seen, tree):
        if time.monotonic() > deadline:
            return living
        seen.update(living)
        _await_exits(_signal(living, (signal.SIGKILL,)), 0.1)
    return []


def _still_there(seen: set[Process], tree: Tree) -> list[Process]:
    """The tree as it is now, and whoever was seen in it before: with its parent dead, nothing else may tell that it belongs."""
    now = {process.pid: process for process in members(tree)}
    for process in seen:
        if same := _same(process):
            now[process.pid] = same
    return [now[pid] for pid in sorted(now)]


def _same(process: Process) -> Process | None:
    """How a process stands now, if it lives."""
    now = _process(process.pid)
    return now if now and now.started == process.started else None


def _process(pid: int) -> Process | None:
    try:
        with open(f"{PROC}/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    head, _, tail = text.rpartition(b")")
    state, parent, group, session, *rest = tail.split(None, 20)
    if state in (b"Z", b"X"):
        return None
    name = head.partition(b"(")[2].decode(errors="replace")
    return Process(pid, int(parent), int(group), int(session), int(rest[15]), name)


def _is_marked(pid: int, mark: bytes) -> bool:
    try:
        with open(f"{PROC}/{pid}/environ", "rb") as file:
            return mark in file.read()
    except OSError:
        return False


def _signal(
    processes: Iterable[Process],
    signals: tuple[signal.Signals, ...],
    open_handle: Callable[[int], int] | None = PIDFD,
) -> list[int | None]:
    """Send signals to these very processes, never to a later owner of the number.

    Returns handles that tell of their end, None for one that could not be had: old kernels and strict containers have none.
    """
    handles: list[int | None] = []
    for process in processes:
        handle = _handle(process, open_handle)
        if _same(process) is None:
            if handle is not None:
                os.close(handle)
            continue
        handles.append(handle)
        for each in signals:
            with contextlib.suppress(OSError):
                if handle is None:
                    os.kill(process.pid, each)
                else:
                    signal.pidfd_send_signal(handle, each)
    return handles


def _handle(process: Process, open_handle: Callable[[int], int] | None) -> int | None:
    try:
        return open_handle(process.pid) if open_handle else None
    except OSError:
        return None


def _await_exits(handles: list[int | None], seconds: float) -> None:
    """Wait until all have ended, but not longer than told; without a handle on each there is only the waiting."""
    known = {handle for handle in handles if handle is not None}
    deadline = time.monotonic() + seconds
    poll = select.poll()
    for handle in known:
        poll.register(handle, select.POLLIN)
    waiting = set(known)
    while waiting and (left := deadline - time.monotonic()) > 0:
        for handle, _ in poll.poll(left * 1000):
            poll.unregister(handle)
            waiting.discard(handle)
    for handle in known:
        os.close(handle)
    if len(known) < len(handles):
        time.sleep(max(deadline - time.monotonic(), 0))


def _end_groups(groups: Collection[int], grace: float) -> None:
    """Where there is no process table to read, process groups are all that can be reached."""
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGTERM)
    if groups:
        time.sleep(grace)
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
