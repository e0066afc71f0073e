"""A disk that is really full and one that is really read-only, mounted in a namespace of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from wieldy.core.workspace import Workspace
from wieldy.files.apply_edit import write_changes
from wieldy.files.journal.entries import ChangeOrigin, FileChange
from wieldy.files.journal.journal import Journal
from wieldy.files.writing.disk import WriteError


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


@pytest.mark.parametrize(
    "script", ["full", "full_journal", "growing_journal", "read_only", "read_only_journal", "vanished_journal"]
)
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
            write_changes(
                journal, [FileChange(str(root / name), before, os.urandom(250_000))], ChangeOrigin("s", "c", "Edit")
            )
        except WriteError as error:
            assert all(word in str(error) for word in words), error
        else:
            raise AssertionError("it was written")
        assert sorted(os.listdir(root)) == names
        assert (root / "a").read_bytes() == (root / "twin").read_bytes() == b"old"
    assert journal.store.find(active_only=False) == [] and journal.store.pending() == []


def journal_at(root: Path, home: Path, **settings: object) -> Journal:
    env = {"WIELDY_HOME": str(home)}
    return Journal(Workspace(root, session_dir=root, env=env, settings={"journal": settings}))


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


def growing_journal(root: Path) -> None:
    """The disk of the state folder fills up edit by edit; the project's own disk has space."""
    project = Path(tempfile.mkdtemp())
    path = project / "a"
    path.write_bytes(b"old")
    journal, contents = journal_at(project, root / "home"), [b"old"]
    for _ in range(50):
        content = os.urandom(20_000)
        try:
            write_changes(journal, [FileChange(str(path), contents[-1], content)], ChangeOrigin("s", "c", "Edit"))
        except WriteError as error:
            assert "undo copy" in str(error) and "The disk is full" in str(error), error
            break
        contents.append(content)
    else:
        raise AssertionError("the disk never got full")
    assert len(contents) > 2 and path.read_bytes() == contents[-1] and os.listdir(project) == ["a"]
    unsettled = len(journal.store.pending())  # the last edit that was made may have met the end of the disk
    assert unsettled <= 1
    journal.store.close()
    assert len(journal_at(project, root / "home").store.find()) == len(contents) - 1 - unsettled
    lenient = journal_at(project, root / "home", required=False)
    change = FileChange(str(path), contents[-1], os.urandom(20_000))
    assert "cannot be undone" in write_changes(lenient, [change], ChangeOrigin("s", "c", "Edit")).notes[0]
    assert path.read_bytes() == change.after
    shutil.rmtree(project)


def read_only_journal(root: Path) -> None:
    """The disk of the state folder becomes read-only, which the system permits only while no file on it is open for writing."""

    def lose(journals: Sequence[Journal]) -> None:
        for journal in journals:
            journal.store.close()
        subprocess.run(["mount", "-o", "remount,ro", str(root)], check=True)

    project = without_journal(root, lose)
    assert len(journal_at(project, root / "home").store.find()) == 2, "what is there can be read"


def vanished_journal(root: Path) -> None:
    """The disk of the state folder is gone, and the folder where it was cannot be written."""

    def lose(journals: Sequence[Journal]) -> None:
        subprocess.run(["umount", "-l", str(root)], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", str(root)], check=True)

    without_journal(root, lose)


def without_journal(root: Path, lose: Callable[[Sequence[Journal]], object]) -> Path:
    project = Path(tempfile.mkdtemp())
    path = project / "a"
    path.write_bytes(b"old")
    origin = ChangeOrigin("s", "c", "Edit")
    strict, lenient = journal_at(project, root / "home"), journal_at(project, root / "home", required=False)
    write_changes(strict, [FileChange(str(path), b"old", b"1")], origin)
    write_changes(lenient, [FileChange(str(path), b"1", b"2")], origin)
    lose((strict, lenient))
    for journal in (strict, journal_at(project, root / "home")):
        try:
            write_changes(journal, [FileChange(str(path), b"2", b"3")], origin)
        except WriteError as error:
            assert "undo copy" in str(error) and "read-only" in str(error) and "journal.required=false" in str(error), (
                error
            )
        else:
            raise AssertionError("it was written")
        assert path.read_bytes() == b"2" and os.listdir(project) == ["a"]
    for number, journal in enumerate((lenient, journal_at(project, root / "home", required=False)), 3):
        before, after = path.read_bytes(), str(number).encode()
        result = write_changes(journal, [FileChange(str(path), before, after)], origin)
        assert path.read_bytes() == after and "cannot be undone" in result.notes[0], result
    return project


if __name__ == "__main__":
    scripts = (full, full_journal, growing_journal, read_only, read_only_journal, vanished_journal)
    {script.__name__: script for script in scripts}[sys.argv[1]](Path(sys.argv[2]))
    print("as it was")
