"""The journal on disk: what is kept, how often, and what damage does to it."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import asdict

from wieldy.files.journal.entries import Entry, PathRecord, Settlement, decode, encode
from wieldy.files.journal.store import HEAD_SIZE, LEAST_ROOM, ROOM_BYTES, Added, Store, Unreadable, digest_of
from wieldy.testing.chaos import Fault, HastyDisk, WatchedDisk


def entry(name: str, before: bytes | None, after: bytes | None, *, at: float = 1000.0) -> Entry:
    names = [None if data is None else digest_of(data).hex() for data in (before, after)]
    return Entry(name, "edit", "s", f"call-{name}", "Edit", at, (PathRecord("/p/a", "/p/a", names[0], names[1]),))


def contents(*all_of_them: bytes) -> dict[bytes, bytes]:
    return {digest_of(data): data for data in all_of_them}


def begin(store: Store, name: str, before: bytes, after: bytes, *, at: float = 1000.0) -> Added:
    return store.begin(entry(name, before, after, at=at), contents(before, after))


def add(store: Store, name: str, before: bytes, after: bytes, *, at: float = 1000.0) -> None:
    store.append(entry(name, before, after, at=at), contents(before, after))


def store_in(folder: Path, **options: int) -> Store:
    return Store(folder / "j", disk=HastyDisk(most=1 << 20), clock=lambda: 1000.0, **options)


def ids(store: Store) -> list[str]:
    return [entry.id for entry, _ in store.entries()]


def ends(store: Store) -> list[tuple[str, str | None]]:
    return [(entry.id, how) for entry, how in store.entries()]


def written(path: Path) -> bytes:
    """A file of the journal without the room at its end."""
    return path.read_bytes().rstrip(b"\0")


def test_what_was_appended_is_found_by_another_reader(tmp_path: Path):
    store = store_in(tmp_path)
    add(store, "one", b"old", b"new")
    other = store_in(tmp_path)
    assert list(other.entries()) == [(entry("one", b"old", b"new"), "done")]
    assert other.content(digest_of(b"old").hex()) == b"old"


@pytest.mark.parametrize("how", ["done", "taken_back", "given_up"])
@pytest.mark.parametrize("by_other", [False, True])
def test_how_an_entry_ended_is_seen_by_whoever_knew_of_it(tmp_path: Path, how: Settlement, by_other: bool):
    store, other = store_in(tmp_path), store_in(tmp_path)
    added = begin(store, "one", b"old", b"new")
    assert set(other.refresh()) == set(store.refresh()) == {"one"} and ends(other) == [("one", None)]
    if by_other:
        other.settle_last("one", how)
    else:
        added.settle(how)
    added.close()
    for each in (store, other, store_in(tmp_path)):
        assert each.refresh() == {} and ends(each) == [("one", how)]


def test_an_entry_ends_once(tmp_path: Path):
    store, other = store_in(tmp_path), store_in(tmp_path)
    added = begin(store, "one", b"old", b"new")
    added.settle("done")
    other.settle_last("one", "taken_back")
    added.settle("given_up")
    added.close()
    assert ends(store) == ends(other) == ends(store_in(tmp_path)) == [("one", "done")]


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
        **asdict(told),
        "paths": [{**asdict(path), "folders": ["/a", "/b\\"]}] * 2,
        "reverses": ["0"],
    }
    assert decode(encode(told)) == told


def test_names_that_are_no_text_survive(tmp_path: Path):
    name = os.fsdecode(b"/p/caf\xe9")
    store_in(tmp_path).append(Entry("1", "edit", "s", "c", "Edit", 1.0, (PathRecord(name, name, None, None),)), {})
    [(entry, _)] = store_in(tmp_path).entries()
    assert entry.paths[0].path == name


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
    path = tmp_path / "j" / "000001.journal"
    size = path.stat().st_size
    for call, number in [("pwrite", errno.ENOSPC), ("sync", errno.EIO)]:
        faulty = Store(
            tmp_path / "j", disk=WatchedDisk(Fault(1, number, calls=frozenset({call}))), clock=lambda: 1000.0
        )
        with pytest.raises(OSError):
            add(faulty, "2", b"new", b"newer")
        assert path.stat().st_size == size
        add(faulty, call, b"new", b"newer")
        size = path.stat().st_size
    assert ids(store_in(tmp_path)) == ["1", "pwrite", "sync"]


def test_a_full_file_is_followed_by_a_new_one_that_stands_alone(tmp_path: Path):
    store = store_in(tmp_path, segment_bytes=2_500)
    for number in range(6):
        add(store, str(number), os.urandom(1_000), b"same")
    files = sorted(path.name for path in (tmp_path / "j").glob("*.journal"))
    assert len(files) == 3
    (tmp_path / "j" / files[0]).unlink()
    (tmp_path / "j" / files[1]).unlink()
    late = store_in(tmp_path)
    assert ids(late) and late.content(digest_of(b"same").hex()) == b"same"


def test_an_entry_under_way_moves_on_to_the_new_file_with_its_content(tmp_path: Path):
    store = store_in(tmp_path, segment_bytes=1_000)
    big = os.urandom(2_000)
    added = begin(store, "open", big, b"after")
    begin(store, "2", b"x", b"y").close()
    (tmp_path / "j" / "000001.journal").unlink()
    late = store_in(tmp_path, segment_bytes=1_000)
    assert set(late.refresh()) == {"open", "2"}
    assert late.content(digest_of(big).hex()) == big
    added.settle("done")
    added.close()
    assert set(late.refresh()) == set(store_in(tmp_path).refresh()) == {"2"}


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


@pytest.mark.parametrize("longer", [False, True])
def test_a_journal_that_someone_else_began_anew_is_read_from_its_start(tmp_path: Path, longer: bool):
    store, other = store_in(tmp_path), store_in(tmp_path)
    settled(store, "1", os.urandom(500), b"b")
    (tmp_path / "j" / "000001.journal").rename(tmp_path / "kept, so that its number is not given again")
    for number in range(5 if longer else 1):
        settled(other, f"other {number}", b"c" * number, b"d")
    late = ids(store_in(tmp_path))
    assert len(late) == (5 if longer else 1)
    settled(store, "2", b"e", b"f")
    assert ids(store) == ids(other) == ids(store_in(tmp_path)) == [*late, "2"]


def appending(folder: Path, name: str) -> None:
    store = Store(folder, segment_bytes=20_000, disk=HastyDisk(most=1 << 20))
    for number in range(100):
        added = store.begin(entry(f"{name}-{number}", None, None), {})
        added.settle("done" if number % 3 else "taken_back")
        added.close()


def test_two_processes_append_side_by_side_and_nothing_is_lost(tmp_path: Path):
    children = [subprocess.Popen([sys.executable, __file__, str(tmp_path / "j"), name]) for name in "ab"]
    assert [child.wait(timeout=30) for child in children] == [0, 0]
    # One that was under way when a file was full is in the next one too, and may have ended in both.
    found = dict.fromkeys(one for one in ends(store_in(tmp_path)) if one[1])
    for name in "ab":
        wanted = [(f"{name}-{number}", "done" if number % 3 else "taken_back") for number in range(100)]
        assert [one for one in found if one[0].startswith(name)] == wanted
    assert store_in(tmp_path).refresh() == {} and len(list((tmp_path / "j").glob("*.journal"))) > 1


def settled(store: Store, name: str, before: bytes, after: bytes) -> None:
    added = begin(store, name, before, after)
    added.settle("done")
    added.close()


def test_what_is_added_takes_room_that_is_there_already(tmp_path: Path):
    path = tmp_path / "j" / "000001.journal"
    store = store_in(tmp_path)
    settled(store, "0", b"old", b"new")
    sizes = []
    for number in range(1, 40):
        settled(store, str(number), b"old", b"new %d" % number)
        sizes.append(path.stat().st_size)
    assert len(set(sizes)) == 1 and len(written(path)) < sizes[0]
    assert ids(store_in(tmp_path)) == [str(number) for number in range(40)]


def test_room_is_made_anew_before_there_is_none(tmp_path: Path):
    path = tmp_path / "j" / "000001.journal"
    one, other = store_in(tmp_path), store_in(tmp_path)
    for number in range(300):
        settled((one, other)[number % 2], str(number), b"old", os.urandom(300))
    assert path.stat().st_size > 2 * ROOM_BYTES and path.stat().st_size - len(written(path)) > LEAST_ROOM // 2
    assert ids(one) == ids(other) == ids(store_in(tmp_path)) == [str(number) for number in range(300)]


def test_no_room_is_left_in_a_file_that_is_complete(tmp_path: Path):
    store = store_in(tmp_path, segment_bytes=1_000)
    settled(store, "1", os.urandom(1_000), b"x")
    first = tmp_path / "j" / "000001.journal"
    assert first.stat().st_size > ROOM_BYTES
    settled(store, "2", b"x", b"y")
    assert first.stat().st_size < 2_000 and ids(store_in(tmp_path)) == ["1", "2"]


def test_where_there_is_no_space_for_room_all_goes_on(tmp_path: Path):
    disk = WatchedDisk(Fault(1, errno.ENOSPC, calls=frozenset({"lengthen"}), lasting=True))
    store = Store(tmp_path / "j", disk=disk, clock=lambda: 1000.0)
    for name in "123":
        added = begin(store, name, b"old", name.encode())
        with suppress(OSError):
            added.settle("done")
        added.close()
    assert ends(store) == ends(store_in(tmp_path)) == [("1", "done"), ("2", "done"), ("3", "done")]


@pytest.mark.parametrize("kept", [1, HEAD_SIZE, HEAD_SIZE + 3, 100, 150])
@pytest.mark.parametrize("lost", [slice(0, 0), slice(0, 10), slice(0, HEAD_SIZE)])
def test_a_torn_end_within_the_room_is_passed_over_and_then_written_over(tmp_path: Path, kept: int, lost: slice):
    store = store_in(tmp_path)
    settled(store, "1", b"old", b"new")
    path = tmp_path / "j" / "000001.journal"
    before = path.read_bytes()
    whole = len(written(path))
    settled(store, "2", b"new", b"newer")
    torn = bytearray(path.read_bytes()[whole:])
    torn[kept:] = bytes(len(torn) - kept)  # as after a power cut: pieces of it never came to the medium
    torn[lost] = bytes(len(torn[lost]))
    path.write_bytes(before[:whole] + torn)
    late = store_in(tmp_path)
    assert ids(late) == ["1"]
    settled(late, "3", b"new", b"other")
    again = store_in(tmp_path)
    assert ids(again) == ["1", "3"]
    assert [again.content(digest_of(data).hex()) for data in (b"old", b"new", b"other")] == [b"old", b"new", b"other"]


def test_a_content_without_its_entry_is_not_counted_on(tmp_path: Path):
    store = store_in(tmp_path)
    settled(store, "1", b"old", b"new")
    path = tmp_path / "j" / "000001.journal"
    whole = len(written(path))
    settled(store, "2", b"new", b"a content whose head alone was kept")
    data = path.read_bytes()
    path.write_bytes(data[: whole + HEAD_SIZE] + bytes(len(data) - whole - HEAD_SIZE))
    late = store_in(tmp_path)
    settled(late, "3", b"new", b"a content whose head alone was kept")
    for store in (late, store_in(tmp_path)):
        assert ids(store) == ["1", "3"]
        assert store.content(digest_of(b"a content whose head alone was kept").hex()).startswith(b"a content")


def test_a_content_that_is_found_damaged_is_kept_anew(tmp_path: Path):
    store = store_in(tmp_path)
    settled(store, "1", b"old content", b"new content")
    path = tmp_path / "j" / "000001.journal"
    data = bytearray(path.read_bytes())
    data[HEAD_SIZE + 8] ^= 0xFF
    path.write_bytes(data)
    late, name = store_in(tmp_path), digest_of(b"old content").hex()
    assert ids(late) == ["1"]
    with pytest.raises(Unreadable, match="damaged"):
        late.content(name)
    settled(late, "2", b"new content", b"old content")
    for store in (late, store_in(tmp_path)):
        assert ids(store) == ["1", "2"] and store.content(name) == b"old content"


if __name__ == "__main__":
    appending(Path(sys.argv[1]), sys.argv[2])
