"""Finds every process that a shell has left behind and ends it. Without event loop and threads: the guardian runs it too."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from wieldy.shell.running.process_tag import has_tag_number, tag_numbers

PROC = "/proc"
HAS_PROC = os.path.exists(f"{PROC}/self/stat")
PIDFD_OPEN: Callable[[int], int] | None = getattr(os, "pidfd_open", None)
GRACE = 0.4
LIMIT = 5.0
SHELLS = frozenset({"ash", "bash", "busybox", "csh", "dash", "fish", "ksh", "mksh", "rbash", "sh", "tcsh", "zsh"})
_SIGNAL_MASKS = re.compile(rb"^Sig(?:Blk|Cgt):\s*([0-9a-f]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Process:
    """One process; pid and start time together identify it for good."""

    pid: int
    parent: int
    group: int
    session: int
    started: int
    name: str
    state: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class ProcessTree:
    """The processes that carry a tag, belong to the group or session of a root, or descend from one of these.

    Tags survive `setsid`, double forks and a dead parent; the number in the resource limit also an emptied environment. A
    root must not have been waited for yet, because its pid could belong to a stranger afterwards.
    """

    tag: str
    roots: frozenset[int] = frozenset()
    more_tags: tuple[str, ...] = ()

    @property
    def tags(self) -> tuple[str, ...]:
        return (self.tag, *self.more_tags)


def end_tree(tree: ProcessTree, *, grace: float = GRACE, limit: float = LIMIT) -> list[Process]:
    """End every process of a tree before any of them continues; returns those that survived.

    All are stopped first, because the death of a child would let its parent take the next step. Programs that handle
    SIGTERM then get `grace` seconds to clean up. Shells do not: after its handler, a shell runs the next command.
    """
    if not HAS_PROC:
        _end_groups(tree.roots, grace)
        return []
    deadline = time.monotonic() + limit
    known = _freeze(tree, set(), deadline)
    polite = {process for process in known if grace > 0 and _cleans_up(process.pid)}
    _await_exits(_signal(known - polite, (signal.SIGKILL,)), 0)
    _await_exits(_signal(polite, (signal.SIGTERM, signal.SIGCONT)), grace)
    # A process may start while the table is read, its parent ending before its row is reached; one that is just calling
    # exec shows no environment. None is left only if two scans in a row find none.
    while _living(known, tree) or _living(known, tree):
        known |= _freeze(tree, known, deadline)
        _await_exits(_signal(known, (signal.SIGKILL,)), 0.1)
        if time.monotonic() > deadline:
            return _living(known, tree)
    return []


def members(tree: ProcessTree) -> list[Process]:
    """The living processes of a tree, except our own."""
    if not HAS_PROC:
        return []
    table = _process_table()
    tags = [tag.encode() for tag in tree.tags]
    numbers = [tag_numbers(tag) for tag in tree.tags]
    pids = {
        process.pid
        for process in table.values()
        if process.group in tree.roots
        or process.session in tree.roots
        or any(has_tag_number(process.pid, each) for each in numbers)
        or _has_tag_in_environment(process.pid, tags)
    }
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)
    unvisited = list(pids)
    while unvisited:
        for child in children.get(unvisited.pop(), ()):
            if child not in pids:
                pids.add(child)
                unvisited.append(child)
    pids.discard(os.getpid())
    return [table[pid] for pid in sorted(pids)]


def memory_mb(processes: Iterable[Process]) -> int:
    """The memory that processes have for themselves, without the files that they map."""
    pages = 0
    for process in processes:
        with contextlib.suppress(OSError, ValueError), open(f"{PROC}/{process.pid}/statm", "rb") as file:
            resident, shared = map(int, file.read().split()[1:3])
            pages += resident - shared
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


def wait_for_members(tree: ProcessTree, seconds: float) -> list[Process]:
    """Wait until all members of a tree have ended, but at most this long, and return those that have not."""
    processes = members(tree)
    _await_exits([_open_pidfd(process, PIDFD_OPEN) for process in processes], seconds)
    return [process for process in processes if _refresh(process)]


def _freeze(tree: ProcessTree, known: set[Process], deadline: float) -> set[Process]:
    """Stop the living processes of a tree, and those known before, until nothing new appears."""
    frozen: set[Process] = set()
    while (running := set(_living(known | frozen, tree)) - frozen) and time.monotonic() < deadline:
        _await_exits(_signal(running, (signal.SIGSTOP,)), 0)
        _wait_until_stopped(running, 0.1)
        frozen |= running
    return frozen


def _wait_until_stopped(processes: Iterable[Process], seconds: float) -> None:
    """Wait until SIGSTOP has taken effect, but not long: a process of another user cannot be stopped."""
    deadline = time.monotonic() + seconds
    for process in processes:
        while (now := _refresh(process)) and now.state in "RS" and time.monotonic() < deadline:
            time.sleep(0.001)


def _cleans_up(pid: int) -> bool:
    """Whether a process is no shell and handles SIGTERM, or waits for it with the signal blocked."""
    try:
        program = os.path.basename(os.readlink(f"{PROC}/{pid}/exe"))
        with open(f"{PROC}/{pid}/status", "rb") as file:
            masks = _SIGNAL_MASKS.findall(file.read())
    except OSError:
        return False
    return program not in SHELLS and any(int(mask, 16) >> signal.SIGTERM - 1 & 1 for mask in masks)


def _living(known: set[Process], tree: ProcessTree) -> list[Process]:
    """The tree's members now, and those known before that live: with a dead parent nothing else may show that they belong."""
    now = {process.pid: process for process in members(tree)}
    for process in known:
        if current := _refresh(process):
            now[process.pid] = current
    return [now[pid] for pid in sorted(now)]


def _process_table() -> dict[int, Process]:
    """All living processes, without zombies."""
    table = {}
    for name in os.listdir(PROC):
        if name.isdigit() and (process := _read_process(int(name))):
            table[process.pid] = process
    return table


def _refresh(process: Process) -> Process | None:
    """The same process as it is now; None if it has ended."""
    now = _read_process(process.pid)
    return now if now and now.started == process.started else None


def _read_process(pid: int) -> Process | None:
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
    return Process(pid, int(parent), int(group), int(session), int(rest[15]), name, state.decode())


def _has_tag_in_environment(pid: int, tags: Iterable[bytes]) -> bool:
    try:
        with open(f"{PROC}/{pid}/environ", "rb") as file:
            environment = file.read()
    except OSError:
        return False
    return any(tag in environment for tag in tags)


def _signal(
    processes: Iterable[Process],
    signals: tuple[signal.Signals, ...],
    pidfd_open: Callable[[int], int] | None = PIDFD_OPEN,
) -> list[int | None]:
    """Signal these very processes, never a later owner of the pid.

    Returns a pidfd for each to wait on, or None where the kernel or the container does not allow one.
    """
    pidfds: list[int | None] = []
    for process in processes:
        pidfd = _open_pidfd(process, pidfd_open)
        if _refresh(process) is None:
            if pidfd is not None:
                os.close(pidfd)
            continue
        pidfds.append(pidfd)
        for each in signals:
            with contextlib.suppress(OSError):
                if pidfd is None:
                    os.kill(process.pid, each)
                else:
                    signal.pidfd_send_signal(pidfd, each)
    return pidfds


def _open_pidfd(process: Process, pidfd_open: Callable[[int], int] | None) -> int | None:
    try:
        return pidfd_open(process.pid) if pidfd_open else None
    except OSError:
        return None


def _await_exits(pidfds: list[int | None], seconds: float) -> None:
    """Wait until all have ended, but at most this long; if a pidfd is missing, wait the whole time. Closes them."""
    known = {pidfd for pidfd in pidfds if pidfd is not None}
    deadline = time.monotonic() + seconds
    poll = select.poll()
    for pidfd in known:
        poll.register(pidfd, select.POLLIN)
    waiting = set(known)
    while waiting and (left := deadline - time.monotonic()) > 0:
        for pidfd, _ in poll.poll(left * 1000):
            poll.unregister(pidfd)
            waiting.discard(pidfd)
    for pidfd in known:
        os.close(pidfd)
    if len(known) < len(pidfds):
        time.sleep(max(deadline - time.monotonic(), 0))


def _end_groups(groups: Collection[int], grace: float) -> None:
    """End process groups, which is all that can be reached without /proc."""
    for group in groups:
        with contextlib.suppress(OSError):
            # Stopped, they all have SIGTERM pending before any of them continues.
            for each in (signal.SIGSTOP, signal.SIGTERM, signal.SIGCONT):
                os.killpg(group, each)
    if groups:
        time.sleep(grace)
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
