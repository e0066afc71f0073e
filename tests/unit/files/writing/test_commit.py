"""Writing a file: what it keeps, what it refuses, and what it says."""

from __future__ import annotations

import errno
import os
import stat as bits
import threading
from pathlib import Path

import pytest
from tests.fault_disks import FailAt, SlowDisk, WatchedDisk
from tests.unit.files.at_once import write_atomically

from wieldy.core.errors import StaleFileError
from wieldy.files.writing.commit import commit_writes
from wieldy.files.writing.disk import WriteError
from wieldy.files.writing.writers import LocalWriter


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_an_existing_file_is_replaced_and_nothing_else_remains(tmp_path: Path):
    target = tmp_path / "a.txt"
    target.write_bytes(b"old")
    written = write_atomically(str(target), b"new\r\n\xff")
    assert target.read_bytes() == b"new\r\n\xff"
    assert names(tmp_path) == ["a.txt"]
    assert written.stat is not None and written.stat == os.stat(target)
    assert written.notes == ()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no list of open files on this system")
@pytest.mark.parametrize("fault", [None, "rename"])
def test_no_descriptor_is_left_open(tmp_path: Path, fault: str | None):
    target = tmp_path / "a.txt"
    target.write_bytes(b"old")
    before = os.listdir("/proc/self/fd")
    if fault is None:
        write_atomically(str(target), b"new")
    else:
        with pytest.raises(WriteError):
            write_atomically(str(target), b"new", disk=WatchedDisk(FailAt(1, errno.EIO, calls=frozenset({fault}))))
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize("mode", [0o755, 0o600, 0o640, 0o444, 0o4755, 0o2750])
def test_the_mode_is_kept(tmp_path: Path, mode: int):
    target = tmp_path / "a"
    target.write_bytes(b"old")
    os.chmod(target, mode)
    if not os.access(target, os.W_OK):
        pytest.skip("only root may write a file without write permission")
    write_atomically(str(target), b"new")
    assert bits.S_IMODE(os.stat(target).st_mode) == mode


def test_the_new_content_is_never_readable_by_more_people_than_the_old(tmp_path: Path):
    target = tmp_path / "secret"
    target.write_bytes(b"old")
    os.chmod(target, 0o600)
    seen: list[int] = []

    def watch(call: str) -> None:
        seen.extend(bits.S_IMODE(os.lstat(tmp_path / name).st_mode) for name in os.listdir(tmp_path))

    write_atomically(str(target), b"new", disk=WatchedDisk(watch))
    assert len(seen) > 5 and set(seen) == {0o600}


def test_a_new_file_gets_the_usual_mode(tmp_path: Path):
    old = os.umask(0o027)
    try:
        write_atomically(str(tmp_path / "a"), b"x")
    finally:
        os.umask(old)
    assert bits.S_IMODE(os.stat(tmp_path / "a").st_mode) == 0o640


def test_extended_attributes_are_kept(tmp_path: Path):
    target = tmp_path / "a"
    target.write_bytes(b"old")
    try:
        os.setxattr(target, "user.origin", b"somewhere")
    except OSError as error:
        pytest.skip(f"this file system keeps no attributes: {error}")
    write_atomically(str(target), b"new")
    assert os.getxattr(target, "user.origin") == b"somewhere"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_owner_and_group_are_kept(tmp_path: Path):
    target = tmp_path / "a"
    target.write_bytes(b"old")
    os.chown(target, 12345, 54321)
    os.chmod(target, 0o4750)
    write_atomically(str(target), b"new")
    stat = os.stat(target)
    assert (stat.st_uid, stat.st_gid, bits.S_IMODE(stat.st_mode)) == (12345, 54321, 0o4750)


def test_a_symlink_stays_one_and_its_target_is_written(tmp_path: Path):
    (tmp_path / "real").mkdir()
    target = tmp_path / "real" / "a"
    target.write_bytes(b"old")
    link = tmp_path / "link"
    link.symlink_to("real/a")
    written = write_atomically(str(link), b"new")
    assert os.readlink(link) == "real/a" and target.read_bytes() == b"new"
    assert names(tmp_path) == ["link", "real"] and names(tmp_path / "real") == ["a"]
    assert written.real_path == str(target) and "symlink" in written.notes[0] and str(target) in written.notes[0]


def test_a_dangling_symlink_leads_to_a_new_file(tmp_path: Path):
    link = tmp_path / "link"
    link.symlink_to("sub/new")
    write_atomically(str(link), b"new")
    assert (tmp_path / "sub" / "new").read_bytes() == b"new" and link.is_symlink()


def test_hard_links_stay_one_file(tmp_path: Path):
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"a longer old content")
    os.link(one, other)
    inode = one.stat().st_ino
    written = write_atomically(str(one), b"new")
    assert other.read_bytes() == one.read_bytes() == b"new"
    assert one.stat().st_ino == other.stat().st_ino == inode
    assert "hard links" in written.notes[0] and names(tmp_path) == ["one", "other"]


@pytest.mark.parametrize("after", [b"", b"x", b"same length!", b"a good deal longer than before " * 400])
def test_content_arrives_whole_through_a_disk_that_writes_little_at_a_time(tmp_path: Path, after: bytes):
    single, one, other = tmp_path / "single", tmp_path / "one", tmp_path / "other"
    for path in (single, one):
        path.write_bytes(b"same length?")
    os.link(one, other)
    for path in (single, one):
        write_atomically(str(path), after, disk=SlowDisk())
        assert path.read_bytes() == after


def test_missing_folders_are_made(tmp_path: Path):
    write_atomically(str(tmp_path / "x" / "y" / "a"), b"new")
    assert (tmp_path / "x" / "y" / "a").read_bytes() == b"new"
    assert names(tmp_path / "x" / "y") == ["a"]


def test_a_folder_that_somebody_else_makes_at_the_same_time_is_used(tmp_path: Path):
    rounds = 5_000

    def make() -> None:
        for number in range(rounds):
            (tmp_path / str(number)).mkdir()

    maker = threading.Thread(target=make)
    maker.start()
    for number in range(rounds):
        while not (tmp_path / str(number)).exists():
            LocalWriter().read_target(str(tmp_path / str(number + 1) / "f"))
    maker.join()


def test_folders_pipes_and_circles_are_refused(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "file").write_bytes(b"")
    for name, word in [("folder", "folder"), ("pipe", "pipe"), ("circle", "circle"), ("file/below", "not a folder")]:
        with pytest.raises(WriteError, match=word):
            write_atomically(str(tmp_path / name), b"new")
    assert names(tmp_path) == ["circle", "file", "folder", "pipe"]


def test_a_name_too_long_is_refused_in_words(tmp_path: Path):
    with pytest.raises(WriteError, match="shorter"):
        write_atomically(str(tmp_path / ("n" * 300)), b"")


def test_a_file_swapped_after_it_was_looked_at_is_not_overwritten(tmp_path: Path):
    target, other = tmp_path / "a", tmp_path / "b"
    target.write_bytes(b"old")
    step = LocalWriter().plan_write(LocalWriter().read_target(str(target)), b"new")
    other.write_bytes(b"theirs")

    def swap(call: str) -> None:
        if call == "sync" and other.exists():  # the last call before the file is checked and switched
            os.replace(other, target)

    with pytest.raises(StaleFileError, match="someone else"):
        commit_writes((step,), disk=WatchedDisk(swap))
    assert target.read_bytes() == b"theirs" and names(tmp_path) == ["a"]


def test_a_file_changed_after_it_was_looked_at_is_not_overwritten(tmp_path: Path):
    target = tmp_path / "a"
    target.write_bytes(b"old")
    step = LocalWriter().plan_write(LocalWriter().read_target(str(target)), b"new")
    target.write_bytes(b"theirs")
    with pytest.raises(StaleFileError):
        commit_writes((step,))
    assert target.read_bytes() == b"theirs" and names(tmp_path) == ["a"]


def test_a_file_that_appears_meanwhile_is_not_overwritten_or_removed(tmp_path: Path):
    target = tmp_path / "a"

    def appear(call: str) -> None:
        if call == "link":
            target.write_bytes(b"theirs")

    with pytest.raises(StaleFileError, match="made by someone else"):
        write_atomically(str(target), b"theirs", disk=WatchedDisk(appear))
    assert target.read_bytes() == b"theirs" and names(tmp_path) == ["a"]


def test_a_folder_swapped_for_a_link_is_not_written_through(tmp_path: Path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (inside / "a").write_bytes(b"old")
    (outside / "a").write_bytes(b"old")
    step = LocalWriter().plan_write(LocalWriter().read_target(str(inside / "a")), b"new")
    inside.rename(tmp_path / "moved")
    inside.symlink_to(outside)
    with pytest.raises(StaleFileError):
        commit_writes((step,))
    assert (outside / "a").read_bytes() == b"old" and names(outside) == ["a"]


def test_names_that_are_no_text_are_written_too(tmp_path: Path):
    target = os.path.join(os.fsencode(tmp_path), b"caf\xe9")
    write_atomically(os.fsdecode(target), b"new")
    with open(target, "rb") as file:
        assert file.read() == b"new"


def told(calls: list[str]) -> list[str]:
    return [call for call in calls if call in ("write", "sync", "link", "rename", "unlink")]


def test_the_new_content_is_on_the_medium_before_it_gets_the_name(tmp_path: Path):
    target = tmp_path / "a"
    target.write_bytes(b"old")
    calls: list[str] = []
    write_atomically(str(target), b"new", disk=WatchedDisk(calls.append))
    assert told(calls) == ["write", "sync", "rename", "sync"]


def test_among_several_files_the_old_ones_keep_a_name_until_the_new_ones_are_on_the_medium(tmp_path: Path):
    for name in "ab":
        (tmp_path / name).write_bytes(b"old")
    steps = [LocalWriter().plan_write(LocalWriter().read_target(str(tmp_path / name)), b"new") for name in "ab"]
    calls: list[str] = []
    commit_writes(steps, disk=WatchedDisk(calls.append))
    assert told(calls) == ["write", "sync", "link"] * 2 + ["rename", "rename", "sync", "unlink", "unlink"]


@pytest.mark.parametrize(
    ("call", "nth"), [("open", 1), ("write", 1), ("chmod", 1), ("sync", 1), ("rename", 1), ("sync", 2)]
)
def test_a_lone_file_is_as_it_was_when_any_of_its_calls_fails(tmp_path: Path, call: str, nth: int):
    target = tmp_path / "a"
    target.write_bytes(b"old")
    target.chmod(0o640)
    fault = FailAt(nth, errno.EIO, calls=frozenset({call}))
    with pytest.raises(WriteError):
        write_atomically(str(target), b"new", disk=WatchedDisk(fault))
    assert fault.has_failed and target.read_bytes() == b"old" and names(tmp_path) == ["a"]
    assert target.stat().st_mode & 0o777 == 0o640
