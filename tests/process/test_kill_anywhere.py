"""kill -9 at every system call of every kind of write: afterwards each file is whole, and the journal can go on.

Each scenario runs in one warm process of its own, which forks a victim for every call there is.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import pytest

from wieldy.core.workspace import Workspace
from wieldy.files.editing.revision import Revision
from wieldy.files.editing.splicing import diff_bytes
from wieldy.files.journal.entries import Change
from wieldy.files.journal.journal import Journal, Origin
from wieldy.files.journal.undo import redo, undo
from wieldy.files.writing.disk import Disk
from wieldy.files.writing.target import read_target
from wieldy.testing.chaos import Death, HastyDisk

Act: TypeAlias = Callable[[Journal, Path], None]
Picture: TypeAlias = dict[str, tuple[int, bytes | str | None]]

OLD = {"a.txt": b"old a\n" * 20, "b.txt": b"old b\n", "doomed.txt": b"doomed\n", "linked.txt": b"old linked\n" * 9}
UNSYNCED = HastyDisk(most=1 << 20)  # a killed process loses nothing that was written, synced or not
MOST = 5_000


def lay_out(root: Path) -> None:
    for name, content in OLD.items():
        (root / name).write_bytes(content)
    os.chmod(root / "a.txt", 0o640)
    os.chmod(root / "doomed.txt", 0o755)
    os.link(root / "linked.txt", root / "twin.txt")
    (root / "link.txt").symlink_to("b.txt")


def journal_of(root: Path, disk: Disk = UNSYNCED) -> Journal:
    env = {"WIELDY_HOME": str(root.parent / f"{root.name}-home")}
    return Journal(Workspace(root, session_dir=root.parent / "session", env=env), disk=disk)


def edit(journal: Journal, root: Path, wanted: dict[str, bytes | None]) -> None:
    changes = []
    for name, after in wanted.items():
        path = root / name
        changes.append(Change(str(path), path.read_bytes() if path.exists() else None, after))
    journal.writer.apply(changes, Origin("s", "call", "Edit"))


def nothing(journal: Journal, root: Path) -> None:
    return


def editing(**wanted: bytes | None) -> Act:
    named = {name.replace("__", "/") + ".txt": after for name, after in wanted.items()}
    return lambda journal, root: edit(journal, root, named)


def edit_preparer(name: str, after: bytes) -> Act:
    """What `editing` does, looked at and written in one go."""

    def act(journal: Journal, root: Path) -> None:
        def prepare() -> Revision:
            target = read_target(path, path)
            return Revision(target, after, (diff_bytes(target.content or b"", after),))

        path = str(root / name)
        journal.writer.revise(path, prepare, Origin("s", "call", "Edit"))

    return act


def undoing(journal: Journal, root: Path) -> None:
    undo(journal)


def redoing(journal: Journal, root: Path) -> None:
    redo(journal)


def starting(journal: Journal, root: Path) -> None:
    journal.start_now()


batch = editing(a=b"new a\n", x__y__made=b"made\n", doomed=None, linked=b"new linked\n", link=b"new b, by its link\n")


def batch_and_undo(journal: Journal, root: Path) -> None:
    batch(journal, root)
    undo(journal)


SCENARIOS: dict[str, tuple[Act, Act]] = {
    # name: what has happened already, what is killed
    "overwrite": (nothing, editing(a=b"new a\n" * 25)),
    "revise": (nothing, edit_preparer("a.txt", b"new a\n" * 25)),
    "revise again": (edit_preparer("a.txt", b"newer a\n" * 20), edit_preparer("a.txt", b"new a\n" * 25)),
    "revise linked": (nothing, edit_preparer("linked.txt", b"less\n")),
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
    "overwrite": 34,
    "revise": 34,
    "revise again": 24,
    "revise linked": 28,
    "create": 32,
    "delete": 24,
    "shrink linked": 28,
    "grow linked": 34,
    "through a link": 30,
    "batch": 100,
    "undo": 95,
    "redo": 88,
    "recovery": 60,
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
            act(journal_of(root, HastyDisk(Death(nth), most=most)), root)
            status = 0
        os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "it failed without being killed"
    return False


def check_raw(root: Path, old: Picture, new: Picture) -> None:
    """Before anything is put right: every file is whole. A file of several names alone may be caught half-way."""
    for name, found in contents(root).items():
        if ".wieldy-" not in name and name not in ("linked.txt", "twin.txt"):
            assert found in (old.get(name, (0, None))[1], new.get(name, (0, None))[1]), f"{name} is in pieces"


def check_after(root: Path, old: Picture, new: Picture, act: Act, name: str) -> None:
    """After recovery: all old or all new, nothing left over, and the journal goes on both ways."""
    journal_of(root).start_now()
    found = picture(root)
    assert found in (old, new), f"neither old nor new: {contents(root)}"
    journal = journal_of(root)
    if found == old:
        act(journal, root)
        assert picture(root) == new, "it could not be done again"
    (redo if name == "undo" else undo)(journal)
    assert picture(root) == old, "it could not be taken back"


def run_scenario(name: str, place: Path) -> int:
    prepare, act = SCENARIOS[name]

    def fresh(label: str) -> Path:
        root = place / label
        root.mkdir()
        lay_out(root)
        prepare(journal_of(root), root)
        return root

    model = fresh("model")
    old = picture(model)
    act(journal_of(model), model)
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
    model = place / "model"
    model.mkdir()
    lay_out(model)
    old = picture(model)
    calls: list[str] = []
    batch(journal_of(model, HastyDisk(calls.append, most=32)), model)
    new = picture(model)
    for first in range(len(calls) - 60, len(calls), 8):
        for second in range(1, MOST):
            root = place / f"{first}-{second}"
            root.mkdir()
            lay_out(root)
            if not killed(batch, root, first, most=32):
                return kills
            if not killed(starting, root, second, most=200):
                break
            kills += 1
            check_after(root, old, new, batch, "batch")
    return kills


@pytest.mark.parametrize("name", [*SCENARIOS, "recovery"])
def test_a_kill_at_any_call_leaves_files_whole_and_the_journal_able(name: str, tmp_path: Path):
    child = subprocess.run([sys.executable, __file__, name, str(tmp_path)], capture_output=True, text=True, timeout=100)
    assert child.returncode == 0, child.stderr
    assert json.loads(child.stdout) >= LEAST_KILLS[name]


def test_the_scenarios_kill_five_hundred_times():
    assert LEAST_KILLS.keys() == {*SCENARIOS, "recovery"} and sum(LEAST_KILLS.values()) >= 500


if __name__ == "__main__":
    scenario, folder = sys.argv[1], Path(sys.argv[2])
    print(json.dumps(run_recovery(folder) if scenario == "recovery" else run_scenario(scenario, folder)))
