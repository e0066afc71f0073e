"""The journal on disk: what is kept, how often, and what damage does to it."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from wieldy.journal.frame import HEAD_SIZE, digest_of
from wieldy.journal.record import Entry, PathRecord, Settled, decode_entry, encode
from wieldy.journal.segment import Unreadable
from wieldy.journal.store import Store
from wieldy.testing.chaos import Fault, HastyDisk, WatchedDisk


def entry(name: str, before: bytes | None, after: bytes | None, *, at: float = 1000.0) -> Entry:
    names = [None if data is None else digest_of(data).hex() for data in (before, after)]
    return Entry(name, "edit", "s", f"call-{name}", "Edit", at, (PathRecord("/p/a", "/p/a", names[0], names[1]),))


def add(store: Store, name: str, before: bytes, after: bytes, *, at: float = 1000.0) -> None:
    contents = {digest_of(data): data for data in (before, after)}
    store.append(entry(name, before, after, at=at), contents, durable=True)


def store_in(folder: Path, **options: int) -> Store:
    return Store(folder / "j", disk=HastyDisk(most=1 << 20), clock=lambda: 1000.0, **options)


def ids(store: Store) -> list[str]:
    return [record.id if isinstance(record, Entry) else f"{record.entry}:{record.how}" for record in store.records()]


def test_what_was_appended_is_found_by_another_reader(tmp_path: Path):
    store = store_in(tmp_path)
    add(store, "one", b"old", b"new")
    store.append(Settled("one", "done"), durable=False)
    other = store_in(tmp_path)
    assert ids(other) == ["one", "one:done"]
    assert other.content(digest_of(b"old").hex()) == b"old"
    assert next(iter(other.records())) == entry("one", b"old", b"new")


def test_equal_content_is_stored_once_even_by_two_writers(tmp_path: Path):
    content = os.urandom(50_000)
    one, other = store_in(tmp_path), store_in(tmp_path)
    add(one, "1", content, b"x")
    size = sum(path.stat().st_size for path in (tmp_path / "j").iterdir())
    add(other, "2", b"x", content)
    add(one, "3", content, b"y")
    grown = sum(path.stat().st_size for path in (tmp_path / "j").iterdir()) - size
    assert size > 50_000 and grown < 2_000


def test_content_is_compressed_and_private(tmp_path: Path):
    add(store_in(tmp_path), "1", b"very much the same " * 10_000, b"x")
    path = tmp_path / "j" / "000001.journal"
    assert path.stat().st_size < 5_000
    assert path.stat().st_mode & 0o077 == 0 and path.parent.stat().st_mode & 0o077 == 0


def test_a_record_is_json_as_anyone_reads_it():
    path = PathRecord('/p/"quoted"\n', "/p/\u00e9\U0001f600", None, "ab", 0o644, "create", folders=("/a", "/b\\"))
    told = Entry("1", "undo", "s", "c", "Edit", 1000.25, (path, path), turn="t\u2028", reverses=("0",))
    assert json.loads(encode(told)) == {
        **vars(told),
        "paths": [{**vars(path), "folders": ["/a", "/b\\"]}] * 2,
        "reverses": ["0"],
    }
    assert decode_entry(encode(told)) == told


def test_names_that_are_no_text_survive(tmp_path: Path):
    name = os.fsdecode(b"/p/caf\xe9")
    store_in(tmp_path).append(
        Entry("1", "edit", "s", "c", "Edit", 1.0, (PathRecord(name, name, None, None),)), durable=True
    )
    [record] = store_in(tmp_path).records()
    assert isinstance(record, Entry) and record.paths[0].path == name


@pytest.mark.parametrize("cut", [1, 10, HEAD_SIZE - 1, HEAD_SIZE, HEAD_SIZE + 1, 200])
def test_a_torn_end_is_passed_over_and_then_written_over(tmp_path: Path, cut: int):
    store = store_in(tmp_path)
    add(store, "1", b"old", b"new")
    path = tmp_path / "j" / "000001.journal"
    whole = path.stat().st_size
    add(store, "2", b"new", b"newer")
    os.truncate(path, whole + cut)
    late = store_in(tmp_path)
    assert ids(late)[0] == "1" and "2" not in ids(late)
    add(late, "3", b"new", b"other")
    assert ids(store_in(tmp_path)) == ["1", "3"]


def test_a_damaged_content_is_noticed_and_the_rest_still_read(tmp_path: Path):
    store = store_in(tmp_path)
    add(store, "1", b"old content", b"new content")
    add(store, "2", b"third", b"fourth")
    path = tmp_path / "j" / "000001.journal"
    data = bytearray(path.read_bytes())
    data[HEAD_SIZE + 8] ^= 0xFF  # in the first blob
    path.write_bytes(data)
    late = store_in(tmp_path)
    assert ids(late) == ["1", "2"]
    with pytest.raises(Unreadable, match="damaged"):
        late.content(digest_of(b"old content").hex())
    assert late.content(digest_of(b"third").hex()) == b"third"


def test_a_damaged_head_costs_only_its_own_frame(tmp_path: Path):
    store = store_in(tmp_path)
    add(store, "1", b"old", b"new")
    add(store, "2", b"third", b"fourth")
    path = tmp_path / "j" / "000001.journal"
    data = bytearray(path.read_bytes())
    data[5] ^= 0xFF
    path.write_bytes(data)
    late = store_in(tmp_path)
    assert ids(late) == ["1", "2"] and late.content(digest_of(b"new").hex()) == b"new"
    with pytest.raises(Unreadable):
        late.content(digest_of(b"old").hex())


def test_a_failed_append_adds_nothing(tmp_path: Path):
    add(store_in(tmp_path), "1", b"old", b"new")
    size = (tmp_path / "j" / "000001.journal").stat().st_size
    for call, number in [("pwrite", errno.ENOSPC), ("sync", errno.EIO)]:
        faulty = Store(
            tmp_path / "j", disk=WatchedDisk(Fault(1, number, calls=frozenset({call}))), clock=lambda: 1000.0
        )
        with pytest.raises(OSError):
            add(faulty, "2", b"new", b"newer")
        assert (tmp_path / "j" / "000001.journal").stat().st_size == size
        add(faulty, call, b"new", b"newer")
        size = (tmp_path / "j" / "000001.journal").stat().st_size
    assert ids(store_in(tmp_path)) == ["1", "pwrite", "sync"]


def test_a_full_file_is_followed_by_a_new_one_that_stands_alone(tmp_path: Path):
    store = store_in(tmp_path, segment_bytes=3_000)
    for number in range(6):
        add(store, str(number), os.urandom(1_000), b"same")
        store.append(Settled(str(number), "done"), durable=False)
    files = sorted(path.name for path in (tmp_path / "j").glob("*.journal"))
    assert len(files) == 3
    (tmp_path / "j" / files[0]).unlink()
    (tmp_path / "j" / files[1]).unlink()
    late = store_in(tmp_path)
    assert ids(late) and late.content(digest_of(b"same").hex()) == b"same"


def test_an_entry_under_way_moves_on_to_the_new_file_with_its_content(tmp_path: Path):
    store = store_in(tmp_path, segment_bytes=1_000)
    big = os.urandom(2_000)
    add(store, "open", big, b"after")
    add(store, "2", b"x", b"y")
    (tmp_path / "j" / "000001.journal").unlink()
    late = store_in(tmp_path, segment_bytes=1_000)
    assert set(late.refresh()) == {"open", "2"}
    assert late.content(digest_of(big).hex()) == big


def test_a_file_a_day_old_is_followed_by_a_new_one(tmp_path: Path):
    add(store_in(tmp_path), "1", b"a", b"b", at=1000.0)
    later = Store(tmp_path / "j", clock=lambda: 1000.0 + 90_000)
    add(later, "2", b"b", b"c", at=91_000.0)
    assert sorted(path.name for path in (tmp_path / "j").glob("*.journal")) == ["000001.journal", "000002.journal"]


def test_a_journal_that_was_removed_meanwhile_begins_anew(tmp_path: Path):
    store = store_in(tmp_path)
    add(store, "1", b"a", b"b")
    (tmp_path / "j" / "000001.journal").unlink()
    add(store, "2", b"b", b"c")
    assert ids(store_in(tmp_path)) == ["2"]


def test_two_processes_append_side_by_side_and_nothing_is_lost(tmp_path: Path):
    script = (
        "import sys; from pathlib import Path\n"
        "from wieldy.journal.store import Store; from wieldy.journal.record import Settled\n"
        "store = Store(Path(sys.argv[1]), segment_bytes=2000)\n"
        "for n in range(100): store.append(Settled(f'{sys.argv[2]}-{n}', 'done'), durable=False)\n"
    )
    children = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "j"), name]) for name in "ab"]
    assert [child.wait(timeout=30) for child in children] == [0, 0]
    found = [record.entry for record in store_in(tmp_path).records() if isinstance(record, Settled)]
    for name in "ab":
        assert [one for one in found if one.startswith(name)] == [f"{name}-{n}" for n in range(100)]
