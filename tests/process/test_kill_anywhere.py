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

import pytest

from wieldy.core.workspace import Workspace
from wieldy.edit.disk import Disk
from wieldy.journal.change import Change
from wieldy.journal.journal import Journal
from wieldy.journal.undo import redo, undo
from wieldy.journal.writer import Origin
from wieldy.testing.chaos import Death, HastyDisk

OLD = {"a.txt": b"old a\n" * 20, "b.txt": b"old b\n", "doomed.txt": b"doomed\n", "linked.txt": b"old linked\n" * 9}
UNSYNCED = HastyDisk(most=1 << 20)  # a killed process loses nothing that was written, synced or not
MOST = 5_000
ENOUGH = 500


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


def editing(**wanted: bytes | None) -> Callable[[Journal, Path], None]:
    named = {name.replace("__", "/") + ".txt": after for name, after in wanted.items()}
    return lambda journal, root: edit(journal, root, named)


overwrite = editing(a=b"new a\n" * 25)
batch = editing(a=b"new a\n", x__y__made=b"made\n", doomed=None, linked=b"new linked\n", link=b"new b, by its link\n")
SCENARIOS: dict[str, tuple[Callable[[Journal, Path], None], Callable[[Journal, Path], None]]] = {
    # name: what has happened already, what is killed
    "overwrite": (nothing, overwrite),
    "create": (nothing, editing(x__y__made=b"made\n" * 10)),
    "delete": (nothing, editing(doomed=None)),
    "shrink linked": (nothing, editing(linked=b"less\n")),
    "grow linked": (nothing, editing(linked=b"more than there was before\n" * 8)),
    "through a link": (nothing, editing(link=b"new b\n")),
    "batch": (nothing, batch),
    "undo": (batch, lambda journal, root: void(undo(journal))),
    "redo": (
        lambda journal, root: (batch(journal, root), void(undo(journal)))[1],
        lambda journal, root: void(redo(journal)),
    ),
}


def void(_: object) -> None:
    return


def picture(root: Path) -> dict[str, tuple[int, bytes | str | None]]:
    seen: dict[str, tuple[int, bytes | str | None]] = {}
    for path in sorted(root.rglob("*")):
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        seen[str(path.relative_to(root))] = path.lstat().st_mode, content
    return seen


def contents(root: Path) -> dict[str, bytes | str | None]:
    return {name: content for name, (_, content) in picture(root).items()}


def killed(work: Callable[[], None]) -> bool:
    """Whether the work, done by a fork of this process, met its end."""
    child = os.fork()
    if child == 0:
        status = 1
        with suppress(BaseException):
            work()
            status = 0
        os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "the work failed without being killed"
    return False


def check_raw(root: Path, old: dict, new: dict) -> None:
    """Before anything is put right: every file is whole. A file of several names alone may be caught half-way."""
    for name, found in contents(root).items():
        if ".wieldy-" not in name and name not in ("linked.txt", "twin.txt"):
            assert found in (old.get(name, (0, None))[1], new.get(name, (0, None))[1]), f"{name} is in pieces"


def check_after(root: Path, old: dict, new: dict, act: Callable[[Journal, Path], None], name: str) -> None:
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
        if not killed(lambda root=root, nth=nth: act(journal_of(root, HastyDisk(Death(nth), most=32)), root)):
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
    batch(journal_of(model), model)
    new = picture(model)
    for first in range(60, 120, 10):
        for second in range(1, MOST):
            root = place / f"{first}-{second}"
            root.mkdir()
            lay_out(root)
            if not killed(lambda root=root, n=first: batch(journal_of(root, HastyDisk(Death(n), most=32)), root)):
                return kills
            again = HastyDisk(Death(second), most=200)
            if not killed(lambda root=root, disk=again: void(journal_of(root, disk).start_now())):
                break
            kills += 1
            check_after(root, old, new, batch, "batch")
    return kills


@pytest.mark.parametrize("name", [*SCENARIOS, "recovery"])
def test_a_kill_at_any_call_leaves_files_whole_and_the_journal_able(name: str, tmp_path: Path, kills: dict[str, int]):
    child = subprocess.run([sys.executable, __file__, name, str(tmp_path)], capture_output=True, text=True, timeout=100)
    assert child.returncode == 0, child.stderr
    kills[name] = json.loads(child.stdout)
    assert kills[name] >= 10


@pytest.fixture(scope="module")
def kills() -> dict[str, int]:
    return {}


def test_there_were_enough_kills(kills: dict[str, int]):
    if len(kills) < len(SCENARIOS) + 1:
        pytest.skip("the scenarios ran elsewhere")
    assert sum(kills.values()) >= ENOUGH, kills


if __name__ == "__main__":
    scenario, folder = sys.argv[1], Path(sys.argv[2])
    print(json.dumps(run_recovery(folder) if scenario == "recovery" else run_scenario(scenario, folder)))
