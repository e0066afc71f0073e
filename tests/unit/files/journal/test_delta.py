"""Contents kept as changes of others: small, found again by anyone, and never more than some changes deep."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.core.workspace import Workspace
from wieldy.files.editing.splicing import Splice, diff_bytes
from wieldy.files.journal.entries import Change, Entry, PathRecord
from wieldy.files.journal.journal import Journal, Origin
from wieldy.files.journal.store import DEEPEST, HEAD_SIZE, Store, Unreadable, delta_of, digest_of, read_delta
from wieldy.testing.chaos import HastyDisk

BULK = os.urandom(60_000)


def store_in(folder: Path, segment_bytes: int = 1 << 24) -> Store:
    return Store(folder, disk=HastyDisk(most=1 << 20), clock=lambda: 1000.0, segment_bytes=segment_bytes)


def version(number: int) -> bytes:
    return BULK[:30_000] + b"version %d" % number + BULK[30_000:]


def add(store: Store, number: int) -> None:
    """The change from one version to the next."""
    before, after = version(number), version(number + 1)
    names = digest_of(before), digest_of(after)
    path = PathRecord("/p/a", "/p/a", names[0].hex(), names[1].hex())
    entry = Entry(str(number), "edit", "s", "c", "Edit", 1000.0, (path,))
    delta = delta_of(names[0], diff_bytes(before, after), len(after))
    assert delta is not None
    store.append(entry, dict(zip(names, (before, after), strict=True)), {names[1]: delta})


def grown(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.journal"))


def test_a_small_change_of_a_large_content_adds_little(tmp_path: Path):
    store = store_in(tmp_path)
    add(store, 0)
    first = grown(tmp_path)
    add(store, 1)
    assert first < 62_000 and grown(tmp_path) - first < 1_000


def test_every_content_of_a_long_row_of_changes_is_found_by_another_reader(tmp_path: Path):
    store = store_in(tmp_path)
    for number in range(3 * DEEPEST):
        add(store, number)
    late = store_in(tmp_path)
    assert len(list(late.entries())) == 3 * DEEPEST
    for number in range(3 * DEEPEST + 1):
        name = digest_of(version(number)).hex()
        assert late.content(name) == store.content(name) == version(number)
    assert 3 * 60_000 < grown(tmp_path) < 5 * 60_000  # a whole one now and then


def test_two_processes_can_go_on_from_each_others_changes(tmp_path: Path):
    one, other = store_in(tmp_path), store_in(tmp_path)
    for number in range(10):
        add((one, other)[number % 2], number)
    assert grown(tmp_path) < 70_000
    assert one.content(digest_of(version(9)).hex()) == version(9)
    assert other.content(digest_of(version(0)).hex()) == version(0)


def test_each_file_of_the_journal_stands_alone(tmp_path: Path):
    store = store_in(tmp_path, segment_bytes=61_000)
    for number in range(5):
        add(store, number)
    assert len(list(tmp_path.glob("*.journal"))) > 1
    (tmp_path / "000001.journal").unlink()
    late = store_in(tmp_path)
    assert list(late.entries())
    assert late.content(digest_of(version(4)).hex()) == version(4)


def test_what_depends_on_a_damaged_content_is_not_taken_for_good(tmp_path: Path):
    store = store_in(tmp_path)
    add(store, 0)
    path = tmp_path / "000001.journal"
    data = bytearray(path.read_bytes())
    data[HEAD_SIZE + 500] ^= 0xFF
    path.write_bytes(data)
    late = store_in(tmp_path)
    assert list(late.entries())
    for number in (0, 1):
        with pytest.raises(Unreadable, match="damaged"):
            late.content(digest_of(version(number)).hex())


def test_a_change_of_a_content_that_is_lost_can_be_added_anew(tmp_path: Path):
    store = store_in(tmp_path)
    add(store, 0)
    path = tmp_path / "000001.journal"
    data = bytearray(path.read_bytes())
    data[5] ^= 0xFF  # the head of the first content
    path.write_bytes(data)
    late = store_in(tmp_path)
    add(late, 1)
    assert late.content(digest_of(version(1)).hex()) == version(1)
    assert late.content(digest_of(version(2)).hex()) == version(2)


def test_many_edits_of_one_file_are_taken_back_one_by_one(tmp_path: Path):
    from wieldy.files.journal.undo import undo

    root = tmp_path / "root"
    root.mkdir()
    path = root / "a"
    path.write_bytes(version(0))
    env = {"WIELDY_HOME": str(tmp_path / "home")}
    journal = Journal(Workspace(root, session_dir=tmp_path / "s", env=env), disk=HastyDisk(most=1 << 20))
    edits = DEEPEST + 3
    for number in range(edits):
        change = Change(str(path), version(number), version(number + 1))
        journal.writer.apply([change], Origin("s", f"c{number}", "Edit"))
    anew = Journal(Workspace(root, session_dir=tmp_path / "s", env=env), disk=HastyDisk(most=1 << 20))
    for number in reversed(range(edits)):
        undo(anew, None)
        assert path.read_bytes() == version(number)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40), st.binary(max_size=2_000), st.binary(max_size=2_000), st.binary(max_size=40))
def test_a_delta_gives_the_content_it_tells_of(start: bytes, old: bytes, new: bytes, end: bytes):
    before, after = start + old + end, start + new + end
    told = delta_of(digest_of(before), diff_bytes(before, after), len(after))
    assert told is None or (told.applied(before) == after and read_delta(told.packed()) == told)


def test_a_content_that_is_mostly_new_is_no_delta():
    for old, new in ((BULK, os.urandom(60_000)), (b"", b"all new")):
        assert delta_of(digest_of(old), diff_bytes(old, new), len(new)) is None


TAIL = b"and a tail"
LONG = len(version(0))


@pytest.mark.parametrize(
    ("splice", "after"),
    [
        (None, version(1)),
        (Splice(30_008, 30_009, b"1"), version(1)),
        (Splice(30_009, 30_009, b"1"), version(1)),
        (Splice(0, 0, b""), version(1)),
        (Splice(7, 2, b"x"), version(1)),
        (Splice(LONG, LONG, TAIL), version(0) + TAIL),
        (Splice(1 << 40, 1 << 40, TAIL), version(0) + TAIL),
        (Splice(7, 2, TAIL), version(0)[:7] + TAIL + version(0)[2:]),
        (Splice(-1, LONG, TAIL), version(0)[:-1] + TAIL),
    ],
)
def test_contents_are_kept_right_whatever_is_said_of_the_change(tmp_path: Path, splice: Splice | None, after: bytes):
    root = tmp_path / "project"
    root.mkdir()
    (root / "a").write_bytes(version(0))
    workspace = Workspace(root, session_dir=tmp_path / "session", env={"WIELDY_HOME": str(tmp_path / "home")})
    journal = Journal(workspace)
    change = Change(str(root / "a"), version(0), after, splice=splice)
    journal.writer.apply([change], Origin("s", "c", "Edit"))
    (event,) = journal.chronicle().events
    (path,) = event.entry.paths
    assert path.before is not None and path.after is not None
    again = Store(journal.store.folder)
    assert list(again.entries()) == list(journal.store.entries())
    assert (again.content(path.before), again.content(path.after)) == (version(0), after)
