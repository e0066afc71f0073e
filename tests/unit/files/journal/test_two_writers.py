"""Two processes that write the same files: nothing is lost without a word."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from wieldy.core.errors import StaleFileError
from wieldy.core.workspace import Workspace
from wieldy.files.apply_edit import write_changes
from wieldy.files.journal.entries import ChangeOrigin, FileChange
from wieldy.files.journal.journal import Journal

TIMES = 60


def counting(root: Path, names: list[str]) -> tuple[int, int]:
    """Add one to the number in each file, all at once, many times; how often it was done and how often refused."""
    journal = Journal(Workspace(root, session_dir=root, env={"WIELDY_HOME": str(root.parent / "home")}))
    done = refused = 0
    for _ in range(TIMES):
        before = [(root / name).read_bytes() for name in names]
        changes = [
            FileChange(str(root / name), old, str(int(old) + 1).encode())
            for name, old in zip(names, before, strict=True)
        ]
        try:
            write_changes(journal, changes, ChangeOrigin("s", "c", "Edit"))
            done += 1
        except StaleFileError:
            refused += 1
    return done, refused


@pytest.mark.parametrize("kind", ["one file", "a batch", "two names of one file"])
def test_every_lost_update_of_two_processes_is_told(tmp_path: Path, kind: str):
    root = tmp_path / "project"
    root.mkdir()
    (root / "n").write_bytes(b"1000")
    (root / "m").write_bytes(b"1000")
    if kind == "two names of one file":
        os.link(root / "n", root / "twin")
    names = {"one file": ["n", "n"], "a batch": ["n,m", "m,n"], "two names of one file": ["n", "twin"]}[kind]
    children = [
        subprocess.Popen([sys.executable, __file__, str(root), mine], stdout=subprocess.PIPE, text=True)
        for mine in names
    ]
    outcomes = [json.loads(child.communicate(timeout=60)[0]) for child in children]
    done = sum(outcome[0] for outcome in outcomes)
    assert done + sum(outcome[1] for outcome in outcomes) == 2 * TIMES and done >= TIMES / 2
    assert int((root / "n").read_bytes()) == 1000 + done
    if kind == "a batch":
        assert int((root / "m").read_bytes()) == 1000 + done
    journal = Journal(Workspace(root, session_dir=root, env={"WIELDY_HOME": str(tmp_path / "home")}))
    assert len(journal.store.find(active_only=False)) == done
    assert not [name for name in os.listdir(root) if name.startswith(".wieldy")]


if __name__ == "__main__":
    print(json.dumps(counting(Path(sys.argv[1]), sys.argv[2].split(","))))
