"""A file looked at and changed in one go, under its lock: whoever else writes it comes before or after."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from wieldy.core.workspace import Workspace
from wieldy.files.editing.revision import Revision
from wieldy.files.editing.splicing import diff_bytes
from wieldy.files.journal.entries import Change
from wieldy.files.journal.journal import Journal, Origin
from wieldy.files.writing.errors import StaleFileError, WriteError
from wieldy.files.writing.target import read_target
from wieldy.testing.chaos import Gone, Vanishing, WatchedDisk

TIMES = 60
EDIT = Origin("s", "c", "Edit")


def journal_of(root: Path, watch: Callable[[str], None] = lambda call: None) -> Journal:
    env = {"WIELDY_HOME": str(root.parent / "home")}
    return Journal(Workspace(root, session_dir=root.parent / "session", env=env), disk=WatchedDisk(watch))


def revised(path: str, make: Callable[[bytes], bytes]) -> Revision:
    target = read_target(path, path)
    before = target.content or b""
    after = make(before)
    return Revision(target, after, (diff_bytes(before, after),))


def one_more(before: bytes) -> bytes:
    return str(int(before) + 1).encode()


def counting(root: Path, name: str) -> int:
    journal = journal_of(root)
    for _ in range(TIMES):
        journal.writer.revise(str(root / name), partial(revised, str(root / name), one_more), EDIT)
    return TIMES


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("names", [("n", "n"), ("n", "twin")])
def test_two_processes_lose_nothing_and_are_never_refused(root: Path, names: tuple[str, str]):
    (root / "n").write_bytes(b"1000")
    os.link(root / "n", root / "twin") if "twin" in names else None
    children = [
        subprocess.Popen([sys.executable, __file__, str(root), name], stdout=subprocess.PIPE, text=True)
        for name in names
    ]
    assert [json.loads(child.communicate(timeout=60)[0]) for child in children] == [TIMES, TIMES]
    assert int((root / "n").read_bytes()) == 1000 + 2 * TIMES
    assert len(journal_of(root).chronicle().events) == 2 * TIMES
    assert not [name for name in os.listdir(root) if name.startswith(".wieldy")]


@pytest.mark.asyncio
async def test_calls_of_one_process_take_turns(root: Path):
    path = root / "n"
    path.write_bytes(b"0")
    journal = journal_of(root)
    prepare = partial(revised, str(path), one_more)
    turns = [journal.revise(str(path), prepare, call_id="c", tool="Edit") for _ in range(20)]
    revisions = [revision for revision, _ in await asyncio.gather(*turns)]
    assert path.read_bytes() == b"20"
    assert sorted(int(revision.after) for revision in revisions) == list(range(1, 21))


@pytest.mark.asyncio
async def test_what_was_written_is_known_and_can_be_undone(root: Path):
    path = root / "a"
    path.write_bytes(b"old")
    journal = journal_of(root)
    revision, written = await journal.revise(
        str(path), partial(revised, str(path), bytes.upper), call_id="c1", tool="Edit", turn="t1"
    )
    assert (revision.before, revision.after, written.stat) == (b"old", b"OLD", os.stat(path))
    [event] = await journal.history()
    assert (event.entry.call_id, event.entry.tool, event.entry.turn) == ("c1", "Edit", "t1")
    await journal.undo()
    assert path.read_bytes() == b"old"


@pytest.mark.asyncio
async def test_a_new_file_is_made_with_its_folders(root: Path):
    path = root / "x" / "y" / "a"
    journal = journal_of(root)
    await journal.revise(str(path), lambda: revised(str(path), lambda before: b"new"), call_id="c", tool="Write")
    assert path.read_bytes() == b"new"
    await journal.undo()
    assert os.listdir(root) == []


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_that_came_to_lie_on_the_way_is_not_followed(root: Path, exists: bool):
    folder, elsewhere = root / "folder", root.parent / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    path = folder / "a"
    if exists:
        path.write_bytes(b"mine")
        (elsewhere / "a").write_bytes(b"mine")

    def swapped() -> Revision:
        folder.rename(root / "away")
        folder.symlink_to(elsewhere)
        return revised(str(path), lambda before: b"new")

    with pytest.raises(StaleFileError):
        journal_of(root).writer.revise(str(path), swapped, EDIT)
    assert sorted(elsewhere.iterdir()) == ([elsewhere / "a"] if exists else [])
    assert not exists or (elsewhere / "a").read_bytes() == b"mine"


def test_a_file_that_is_changed_after_the_look_is_not_written(root: Path):
    path = root / "a"
    path.write_bytes(b"old")

    def interfere(call: str) -> None:
        if call == "pwrite":
            path.write_bytes(b"theirs")

    with pytest.raises(StaleFileError, match="changed by someone else"):
        journal_of(root, interfere).writer.revise(str(path), partial(revised, str(path), bytes.upper), EDIT)
    assert path.read_bytes() == b"theirs" and os.listdir(root) == ["a"]
    assert journal_of(root).chronicle().events == ()


def test_what_cannot_be_prepared_is_not_recorded_and_holds_no_lock(root: Path):
    path = root / "a"
    path.write_bytes(b"old")
    journal = journal_of(root)

    def refuse() -> Revision:
        raise LookupError("not in there")

    with pytest.raises(LookupError, match="not in there"):
        journal.writer.revise(str(path), refuse, EDIT)
    assert journal.chronicle().events == () and path.read_bytes() == b"old"
    journal.writer.revise(str(path), partial(revised, str(path), bytes.upper), EDIT)
    assert path.read_bytes() == b"OLD"


def test_what_changes_nothing_is_not_recorded(root: Path):
    path = root / "a"
    path.write_bytes(b"old")
    journal = journal_of(root)
    revision, receipt = journal.writer.revise(str(path), partial(revised, str(path), bytes.lower), EDIT)
    assert revision.before == revision.after and receipt.entry is None
    assert receipt.written[0].stat == os.stat(path) and journal.chronicle().events == ()


def of_known(path: Path, known: bytes) -> Callable[[], Revision]:
    """Prepares a change of a content that was read before, and of no other."""

    def prepare() -> Revision:
        if path.read_bytes() != known:
            raise LookupError("changed since it was read")
        return revised(str(path), bytes.upper)

    return prepare


def test_what_a_dead_writer_left_of_the_same_file_is_put_right_before_it_is_given_up(root: Path):
    path, old = root / "a", b"old content\n" * 10
    path.write_bytes(old)
    os.link(path, root / "twin")
    change = Change(str(path), old, b"new")
    with pytest.raises(Gone):
        journal_of(root, Vanishing("truncate")).writer.apply([change], EDIT)
    assert path.read_bytes() not in (old, b"new")
    journal = journal_of(root)
    journal.writer.revise(str(path), of_known(path, old), EDIT)
    assert path.read_bytes() == old.upper() == (root / "twin").read_bytes()
    assert list(journal.writer.news) == [f"an interrupted change was taken back: {path}"]


def test_what_a_dead_writer_left_of_another_file_is_put_right_too(root: Path):
    path, other = root / "a", root / "b"
    path.write_bytes(b"old")
    other.write_bytes(b"theirs")
    with pytest.raises(Gone):
        journal_of(root, Vanishing("rename")).writer.apply([Change(str(other), b"theirs", b"new")], EDIT)
    assert len(os.listdir(root)) == 3
    journal = journal_of(root)
    journal.writer.revise(str(path), of_known(path, b"old"), EDIT)
    assert (path.read_bytes(), other.read_bytes(), sorted(os.listdir(root))) == (b"OLD", b"theirs", ["a", "b"])
    assert len(journal.chronicle().events) == 1 and journal.store.refresh() == {}


def test_a_name_that_is_told_does_not_command_a_terminal(root: Path):
    path = root / "a\x1b[31m\nb"
    path.write_bytes(b"old")
    with pytest.raises(Gone):
        journal_of(root, Vanishing("rename")).writer.apply([Change(str(path), b"old", b"new")], EDIT)
    assert journal_of(root).start_now() == (f"an interrupted change was taken back: {root}/a\\x1b[31m\\nb",)


def test_a_writer_that_is_still_at_it_is_left_alone_and_holds_up_nobody(root: Path):
    path, other = root / "a", root / "b"
    path.write_bytes(b"old")
    other.write_bytes(b"theirs")
    late = journal_of(root)

    def meanwhile(call: str) -> None:
        if call == "rename":
            late.writer.revise(str(path), of_known(path, b"old"), EDIT)

    journal_of(root, meanwhile).writer.apply([Change(str(other), b"theirs", b"new")], EDIT)
    assert (path.read_bytes(), other.read_bytes(), tuple(late.writer.news)) == (b"OLD", b"new", ())
    assert len(late.chronicle().events) == 2 and late.store.refresh() == {}


def test_what_cannot_be_written_is_not_tried_for_ever(root: Path):
    path = root / "a"
    path.write_bytes(b"old")
    tries: list[str] = []

    def broken(call: str) -> None:
        tries.append(call)
        if call in ("rename", "unlink"):
            raise OSError(errno.EIO, "broken")

    with pytest.raises(WriteError):
        journal_of(root, broken).writer.revise(str(path), of_known(path, b"old"), EDIT)
    assert tries.count("rename") == 1 and path.read_bytes() == b"old"


if __name__ == "__main__":
    print(json.dumps(counting(Path(sys.argv[1]), sys.argv[2])))
