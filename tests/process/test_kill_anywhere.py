"""kill -9 at every system call of every kind of write: afterwards each file is whole, and the journal can go on.

A victim is forked for every call there is and traced with ptrace, so that the calls of SQLite are counted like our own: it
dies also within the commits of the journal's database. Where ptrace is not allowed, only our own calls are counted.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import pytest
from tests.fault_disks import KillAt, SlowDisk, UnsyncedDisk

from wieldy.core.workspace import Workspace
from wieldy.files.apply_edit import FileEdit, write_changes, write_files
from wieldy.files.journal.entries import ChangeOrigin, FileChange
from wieldy.files.journal.journal import Journal
from wieldy.files.journal.undo import redo, undo
from wieldy.files.writing.disk import Disk, Target

Act: TypeAlias = Callable[[Journal, Path], None]
Picture: TypeAlias = dict[str, tuple[int, bytes | str | None]]

OLD = {"a.txt": b"old a\n" * 20, "b.txt": b"old b\n", "doomed.txt": b"doomed\n", "linked.txt": b"old linked\n" * 9}
MOST = 5_000

PTRACE_TRACEME, PTRACE_SYSCALL, PTRACE_SETOPTIONS, PTRACE_GET_SYSCALL_INFO = 0, 24, 0x4200, 0x420E
TRACE_SYSTEM_CALLS, KILL_WITH_TRACER = 1, 1 << 20
# The system calls that change files, that which counts only where it creates one, and that which SQLite locks by.
X86_64 = {1, 18, 20, 296, 74, 75, 76, 77, 82, 83, 84, 86, 87, 91, 93, 190, 257, 258, 263, 264, 265, 285, 316}, 257, 72
AARCH64 = {64, 68, 66, 70, 82, 83, 45, 46, 52, 55, 7, 56, 34, 35, 37, 38, 47, 276}, 56, 25
SYSTEM_CALLS = {"x86_64": X86_64, "aarch64": AARCH64}.get(platform.machine())


FAST = UnsyncedDisk(max_bytes=1 << 20)  # a killed process loses nothing that was written, synced or not


def lay_out(root: Path) -> None:
    for name, content in OLD.items():
        (root / name).write_bytes(content)
    os.chmod(root / "a.txt", 0o640)
    os.chmod(root / "doomed.txt", 0o755)
    os.link(root / "linked.txt", root / "twin.txt")
    (root / "link.txt").symlink_to("b.txt")


def journal_of(root: Path, disk: Disk = FAST) -> Journal:
    env = {"WIELDY_HOME": str(root.parent / f"{root.name}-home")}
    return Journal(Workspace(root, session_dir=root.parent / "session", env=env), disk=disk)


def acting(act: Act, root: Path, disk: Disk = FAST) -> None:
    """Act on a project with a journal of its own, which is closed again: no connection may cross a fork."""
    journal = journal_of(root, disk)
    act(journal, root)
    journal.store.close()


def edit(journal: Journal, root: Path, wanted: dict[str, bytes | None]) -> None:
    changes = []
    for name, after in wanted.items():
        path = root / name
        changes.append(FileChange(str(path), path.read_bytes() if path.exists() else None, after))
    write_changes(journal, changes, ChangeOrigin("s", "call", "Edit"))


def nothing(journal: Journal, root: Path) -> None:
    return


def editing(**wanted: bytes | None) -> Act:
    named = {name.replace("__", "/") + ".txt": after for name, after in wanted.items()}
    return lambda journal, root: edit(journal, root, named)


def computing(name: str, after: bytes) -> Act:
    """What `editing` does, computed under the lock."""

    class Computed(FileEdit):
        def compute(self, target: Target) -> bytes:
            return after

    def act(journal: Journal, root: Path) -> None:
        path = str(root / name)
        write_files(journal, [Computed(path, path)], ChangeOrigin("s", "call", "Edit"))

    return act


def undoing(journal: Journal, root: Path) -> None:
    undo(journal)


def redoing(journal: Journal, root: Path) -> None:
    redo(journal)


def starting(journal: Journal, root: Path) -> None:
    journal.recover()


batch = editing(a=b"new a\n", x__y__made=b"made\n", doomed=None, linked=b"new linked\n", link=b"new b, by its link\n")


def batch_and_undo(journal: Journal, root: Path) -> None:
    batch(journal, root)
    undo(journal)


SCENARIOS: dict[str, tuple[Act, Act]] = {
    # name: what has happened already, what is killed
    "overwrite": (nothing, editing(a=b"new a\n" * 25)),
    "compute": (nothing, computing("a.txt", b"new a\n" * 25)),
    "compute again": (computing("a.txt", b"newer a\n" * 20), computing("a.txt", b"new a\n" * 25)),
    "compute linked": (nothing, computing("linked.txt", b"less\n")),
    "create": (nothing, editing(x__y__made=b"made\n" * 10)),
    "delete": (nothing, editing(doomed=None)),
    "shrink linked": (nothing, editing(linked=b"less\n")),
    "grow linked": (nothing, editing(linked=b"more than there was before\n" * 8)),
    "through a link": (nothing, editing(link=b"new b\n")),
    "batch": (nothing, batch),
    "undo": (batch, undoing),
    "redo": (batch_and_undo, redoing),
}


LEAST_KILLS = {
    "overwrite": 95,
    "compute": 95,
    "compute again": 95,
    "compute linked": 95,
    "create": 95,
    "delete": 90,
    "shrink linked": 90,
    "grow linked": 95,
    "through a link": 90,
    "batch": 115,
    "undo": 70,
    "redo": 65,
    "recovery": 120,
}


def picture(root: Path) -> Picture:
    seen: Picture = {}
    for path in sorted(root.rglob("*")):
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        seen[str(path.relative_to(root))] = path.lstat().st_mode, content
    return seen


def contents(root: Path) -> dict[str, bytes | str | None]:
    return {name: content for name, (_, content) in picture(root).items()}


def killed(act: Act, root: Path, nth: int, *, most: int) -> bool:
    """Whether a fork of this process that acts on the project meets its end at the nth call."""
    child = os.fork()
    if child == 0:
        status = 1
        with suppress(BaseException):
            if CAN_TRACE:
                stop_for_tracer()
                acting(act, root, SlowDisk(max_bytes=most))
            else:
                acting(act, root, UnsyncedDisk(KillAt(nth), max_bytes=most))
            status = 0
        os._exit(status)
    status = trace_until(child, nth) if CAN_TRACE else os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "it failed without being killed"
    return False


def ptrace(request: int, pid: int, address: int, data: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    return int(libc.ptrace(request, pid, address, data))


def stop_for_tracer() -> None:
    if ptrace(PTRACE_TRACEME, 0, 0, None) != 0:
        os._exit(77)
    os.kill(os.getpid(), signal.SIGSTOP)


def trace_until(child: int, nth: int) -> int:
    """Let a stopped child run, and kill it when it enters the nth call that counts; its exit status."""
    assert SYSTEM_CALLS is not None
    counted, create, lock = SYSTEM_CALLS
    if AT_LOCKS:
        counted = counted | {lock}
    os.waitpid(child, 0)
    ptrace(PTRACE_SETOPTIONS, child, 0, TRACE_SYSTEM_CALLS | KILL_WITH_TRACER)
    info = ctypes.create_string_buffer(88)
    count = signal_number = 0
    while True:
        ptrace(PTRACE_SYSCALL, child, 0, signal_number)
        _, status = os.waitpid(child, 0)
        if not os.WIFSTOPPED(status):
            return status
        signal_number = os.WSTOPSIG(status)
        if signal_number != signal.SIGTRAP | 0x80:
            continue
        signal_number = 0
        ptrace(PTRACE_GET_SYSCALL_INFO, child, len(info), ctypes.addressof(info))
        is_entry = info.raw[0] == 1
        number, _, _, flags = struct.unpack_from("<QQQQ", info.raw, 24)
        if is_entry and number in counted and (number != create or flags & os.O_CREAT):
            count += 1
            if count == nth:
                os.kill(child, signal.SIGKILL)
                return os.waitpid(child, 0)[1]


def can_trace() -> bool:
    """Whether this machine lets us trace a child."""
    if SYSTEM_CALLS is None or not sys.platform.startswith("linux"):
        return False
    child = os.fork()
    if child == 0:
        stop_for_tracer()
        os.mkdir("/proc/never")
        os._exit(0)
    _, status = os.waitpid(child, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        return False
    info = ctypes.create_string_buffer(88)
    ptrace(PTRACE_SETOPTIONS, child, 0, TRACE_SYSTEM_CALLS | KILL_WITH_TRACER)
    ptrace(PTRACE_SYSCALL, child, 0, 0)
    os.waitpid(child, 0)
    traced = ptrace(PTRACE_GET_SYSCALL_INFO, child, len(info), ctypes.addressof(info)) > 0
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return traced


CAN_TRACE = __name__ == "__main__" and can_trace()
# One scenario dies at SQLite's locks too, between which it writes to memory that it shares with other processes.
AT_LOCKS = "compute again" in sys.argv


def check_raw(root: Path, old: Picture, new: Picture) -> None:
    """Before anything is put right: every file is whole. A file of several names alone may be caught half-way."""
    for name, found in contents(root).items():
        if ".wieldy-" not in name and name not in ("linked.txt", "twin.txt"):
            assert found in (old.get(name, (0, None))[1], new.get(name, (0, None))[1]), f"{name} is in pieces"


def check_after(root: Path, old: Picture, new: Picture, act: Act, name: str) -> None:
    """After recovery: all old or all new, nothing left over, and the journal goes on both ways."""
    acting(starting, root)
    found = picture(root)
    assert found in (old, new), f"neither old nor new: {contents(root)}"
    if found == old:
        acting(act, root)
        assert picture(root) == new, "it could not be done again"
    acting(redoing if name == "undo" else undoing, root)
    assert picture(root) == old, "it could not be undone"
    assert not list(root.parent.rglob("*unusable*")), "the journal's database was damaged"


def run_scenario(name: str, place: Path) -> int:
    prepare, act = SCENARIOS[name]

    def fresh(label: str) -> Path:
        root = place / label
        root.mkdir()
        lay_out(root)
        acting(prepare, root)
        return root

    model = fresh("model")
    old = picture(model)
    acting(act, model)
    new = picture(model)
    for nth in range(1, MOST):
        root = fresh(str(nth))
        if not killed(act, root, nth, most=32):
            return nth - 1
        check_raw(root, old, new)
        check_after(root, old, new, act, name)
    raise AssertionError("it never ended")


def run_recovery(place: Path) -> int:
    """A batch killed in its middle, and then the process that puts it right killed at every call as well."""
    kills = 0

    def fresh(label: str) -> Path:
        root = place / label
        root.mkdir()
        lay_out(root)
        return root

    model = fresh("model")
    old = picture(model)
    acting(batch, model)
    new = picture(model)
    last = next(nth for nth in range(1, MOST, 10) if not killed(batch, fresh(f"probe-{nth}"), nth, most=32))
    for first in range(last - 80, last - 9, 20):
        for second in range(1, MOST):
            root = fresh(f"{first}-{second}")
            assert killed(batch, root, first, most=32)
            if not killed(starting, root, second, most=200):
                break
            kills += 1
            check_after(root, old, new, batch, "batch")
    return kills


@pytest.mark.parametrize("name", [*SCENARIOS, "recovery"])
def test_a_kill_at_any_call_leaves_files_whole_and_the_journal_able(name: str):
    # In memory, where there is such a folder: a process that is killed loses nothing that was written, synced or not.
    place = tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    try:
        command = [sys.executable, __file__, name, place]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        child = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
        assert child.returncode == 0, child.stderr
        kills, traced = json.loads(child.stdout)
        assert kills >= (LEAST_KILLS[name] if traced else 10)
    finally:
        shutil.rmtree(place)


def test_the_scenarios_kill_five_hundred_times():
    assert LEAST_KILLS.keys() == {*SCENARIOS, "recovery"} and sum(LEAST_KILLS.values()) >= 500


if __name__ == "__main__":
    scenario, folder = sys.argv[1], Path(sys.argv[2])
    kills = run_recovery(folder) if scenario == "recovery" else run_scenario(scenario, folder)
    print(json.dumps([kills, CAN_TRACE]))
