"""A disk that is really full and one that is really read-only, mounted in a namespace of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from wieldy.core.workspace import Workspace
from wieldy.files.journal.entries import Change
from wieldy.files.journal.journal import Journal, Origin
from wieldy.files.writing.errors import WriteError


def on_small_disk(script: str, place: Path) -> subprocess.CompletedProcess[str]:
    """Run this file with 300 KB mounted at a place that nobody else sees."""
    unshare = shutil.which("unshare")
    if unshare is None or os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    place.mkdir()
    mount = 'mount -t tmpfs -o size=300k none "$1" && exec "$2" "$3" "$4" "$1"'
    command = [unshare, "-m", "sh", "-c", mount, "sh", str(place), sys.executable, __file__, script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if "permission denied" in done.stderr.lower():
        pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")
    return done


@pytest.mark.parametrize("script", ["full", "full_journal", "read_only"])
def test_a_write_that_cannot_be_leaves_all_as_it_was_and_says_what_it_takes(tmp_path: Path, script: str):
    done = on_small_disk(script, tmp_path / "small")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "as it was\n"


def lay_out(root: Path) -> None:
    (root / "node_modules").mkdir()
    (root / "node_modules" / "big").write_bytes(b"x" * 100_000)
    (root / "a").write_bytes(b"old")
    (root / "linked").write_bytes(b"old")
    os.link(root / "linked", root / "twin")


def refused(journal: Journal, root: Path, *words: str) -> None:
    """Try a large change of every kind; none may leave a trace."""
    names = sorted(os.listdir(root))
    for name, before in [("a", b"old"), ("linked", b"old"), ("new", None), ("x/y/new", None)]:
        try:
            journal.writer.apply([Change(str(root / name), before, os.urandom(250_000))], Origin("s", "c", "Edit"))
        except WriteError as error:
            assert all(word in str(error) for word in words), error
        else:
            raise AssertionError("it was written")
        assert sorted(os.listdir(root)) == names
        assert (root / "a").read_bytes() == (root / "twin").read_bytes() == b"old"
    assert journal.chronicle().events == () and journal.store.refresh() == {}


def journal_at(root: Path, home: Path) -> Journal:
    return Journal(Workspace(root, session_dir=root, env={"WIELDY_HOME": str(home)}))


def full(root: Path) -> None:
    lay_out(root)
    refused(journal_at(root, root.parent / "home"), root, "The disk is full", "needs 250 KB", "node_modules (1")


def full_journal(root: Path) -> None:
    lay_out(root)
    (root / "home").mkdir()
    refused(journal_at(root, root / "home"), root, "undo copy", "The disk is full", "node_modules (1")


def read_only(root: Path) -> None:
    lay_out(root)
    subprocess.run(["mount", "-o", "remount,ro", str(root)], check=True)
    refused(journal_at(root, root.parent / "home"), root, "mounted read-only")


if __name__ == "__main__":
    {"full": full, "full_journal": full_journal, "read_only": read_only}[sys.argv[1]](Path(sys.argv[2]))
    print("as it was")
