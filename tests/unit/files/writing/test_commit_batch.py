"""Several files at once: all or none, whatever fails."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fault_disks import FailAt, SlowDisk, WatchedDisk

from wieldy.core.errors import StaleFileError
from wieldy.files.writing.commit import commit_writes
from wieldy.files.writing.disk import Disk, FileWrite, WriteError
from wieldy.files.writing.writers import LocalWriter


@pytest.fixture(autouse=True)
def small_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk makes wieldy look for caches at home."""
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))


def lay_out(root: Path) -> None:
    (root / "plain").write_bytes(b"plain old")
    (root / "doomed").write_bytes(b"doomed old")
    os.chmod(root / "doomed", 0o750)
    (root / "one").write_bytes(b"linked old, and longer than the new")
    os.link(root / "one", root / "other")
    (root / "far").mkdir()
    (root / "far" / "target").write_bytes(b"far old")
    (root / "link").symlink_to("far/target")


def steps_in(root: Path) -> tuple[FileWrite, ...]:
    wanted = {"plain": b"plain new", "doomed": None, "one": b"linked new", "link": b"far new", "x/y/made": b"made"}
    return tuple(
        LocalWriter().plan_write(LocalWriter().read_target(str(root / name)), after) for name, after in wanted.items()
    )


def picture(root: Path) -> dict[str, tuple[int, bytes | str | None]]:
    """Every name below a folder with its mode and content."""
    seen: dict[str, tuple[int, bytes | str | None]] = {}
    for path in sorted(root.rglob("*")):
        stat = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        seen[str(path.relative_to(root))] = stat.st_mode, content
    return seen


def calls_of(root: Path, make: Callable[[Callable[[str], None]], Disk]) -> list[str]:
    root.mkdir()
    lay_out(root)
    calls: list[str] = []
    commit_writes(steps_in(root), disk=make(calls.append))
    return calls


def test_a_batch_does_everything_at_once(tmp_path: Path):
    lay_out(tmp_path)
    written = commit_writes(steps_in(tmp_path))
    after = {name: content for name, (_, content) in picture(tmp_path).items()}
    assert after == {
        "plain": b"plain new",
        "one": b"linked new",
        "other": b"linked new",
        "far": None,
        "far/target": b"far new",
        "link": "far/target",
        "x": None,
        "x/y": None,
        "x/y/made": b"made",
    }
    assert [one.stat is None for one in written] == [False, True, False, False, False]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EPERM])
def test_a_failure_at_any_call_leaves_every_byte_and_name_as_it_was(tmp_path: Path, number: int):
    count = len(calls_of(tmp_path / "counted", WatchedDisk))
    assert count > 25
    for nth in range(1, count + 1):
        root = tmp_path / f"fails{nth}"
        root.mkdir()
        lay_out(root)
        before = picture(root)
        fault = FailAt(nth, number)
        try:
            commit_writes(steps_in(root), disk=WatchedDisk(fault))
        except WriteError as error:
            assert error.number == number and picture(root) == before
        else:  # some calls can be done without: a second name where the system grants none
            assert fault.has_failed and "plain new" in str(picture(root)["plain"])
            assert not [name for name in picture(root) if "wieldy" in name]


def test_where_no_second_names_are_granted_old_content_is_written_back(tmp_path: Path):
    def without_links(fault: Callable[[str], None]) -> Callable[[str], None]:
        def watch(call: str) -> None:
            fault(call)
            if call == "link":
                raise OSError(errno.ENOTSUP, "no links here")

        return watch

    count = len(calls_of(tmp_path / "counted", lambda watch: WatchedDisk(without_links(watch))))
    for nth in range(1, count + 1):
        root = tmp_path / f"fails{nth}"
        root.mkdir()
        lay_out(root)
        before = picture(root)
        with pytest.raises(WriteError, match="error"):
            commit_writes(steps_in(root), disk=WatchedDisk(without_links(FailAt(nth, errno.EIO))))
        assert picture(root) == before


def test_a_full_disk_that_stays_full_leaves_every_byte_as_it_was(tmp_path: Path):
    space = frozenset({"open", "write", "pwrite", "mkdir", "link", "setxattr"})
    (tmp_path / "grown").write_bytes(b"short")
    os.link(tmp_path / "grown", tmp_path / "twin")
    for nth in range(1, 6):
        before = picture(tmp_path)
        step = LocalWriter().plan_write(
            LocalWriter().read_target(str(tmp_path / "grown")), b"much longer than it was before"
        )
        with pytest.raises(WriteError, match="full"):
            commit_writes(
                (step,), disk=SlowDisk(FailAt(nth, errno.ENOSPC, calls=space - {"open"}, lasting=True), max_bytes=5)
            )
        assert picture(tmp_path) == before


def test_the_error_names_the_file_and_what_is_needed(tmp_path: Path):
    lay_out(tmp_path)
    path = str(tmp_path / "plain")
    for number, words in [
        (errno.ENOSPC, "The disk is full: .*plain needs 9 bytes, .* are free. It is unchanged"),
        (errno.EDQUOT, "The quota is used up: .*plain needs 9 bytes"),
        (errno.EROFS, "plain is on a file system mounted read-only"),
        (errno.EACCES, "plain may not be written by .*mode 0.*write permission"),
        (errno.EIO, "reported an error"),
    ]:
        with pytest.raises(WriteError, match=words) as caught:
            commit_writes(
                (LocalWriter().plan_write(LocalWriter().read_target(path), b"plain new"),),
                disk=WatchedDisk(FailAt(2, number)),
            )
        assert caught.value.path == path and caught.value.number == number


def test_a_full_disk_names_the_largest_folders_that_could_go(tmp_path: Path):
    lay_out(tmp_path)
    for folder, size in [
        ("node_modules/a", 300_000),
        ("sub/__pycache__", 100_000),
        ("target", 200_000),
        ("src", 900_000),
    ]:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "file").write_bytes(b"x" * size)
    step = LocalWriter().plan_write(LocalWriter().read_target(str(tmp_path / "plain")), b"new")
    with pytest.raises(WriteError) as caught:
        commit_writes((step,), disk=WatchedDisk(FailAt(1, errno.ENOSPC)), roots=(str(tmp_path),))
    text = caught.value.message
    found = [text.find(str(tmp_path / name)) for name in ("node_modules", "target", "sub/__pycache__")]
    assert -1 not in found and found == sorted(found)
    assert str(tmp_path / "src") not in text and "if the user agrees" in text


@pytest.mark.parametrize("kind", ["replaced", "rewritten", "linked", "deleted", "to be deleted"])
def test_what_someone_else_does_to_a_later_file_survives_the_rollback(tmp_path: Path, kind: str):
    lay_out(tmp_path)
    target = tmp_path / ("one" if kind == "linked" else "doomed")
    after = None if kind == "to be deleted" else b"new"
    steps = (
        LocalWriter().plan_write(LocalWriter().read_target(str(tmp_path / "plain")), b"plain new"),
        LocalWriter().plan_write(LocalWriter().read_target(str(target)), after),
    )
    (tmp_path / "theirs").write_bytes(b"theirs")

    def interfere(call: str) -> None:
        if call != "rename" or not (tmp_path / "theirs").exists():
            return
        if kind in ("replaced", "to be deleted"):
            os.replace(tmp_path / "theirs", target)
        else:
            (tmp_path / "theirs").unlink()
            target.unlink() if kind == "deleted" else target.write_bytes(b"theirs")

    with pytest.raises(StaleFileError) as caught:
        commit_writes(steps, disk=WatchedDisk(interfere))
    assert caught.value.path == str(target)
    assert (target.read_bytes() if target.exists() else None) == (None if kind == "deleted" else b"theirs")
    assert (tmp_path / "plain").read_bytes() == b"plain old"
    assert not [name for name in os.listdir(tmp_path) if "wieldy" in name]


def test_a_file_that_cannot_be_replaced_only_written_is_left_alone_without_a_journal(tmp_path: Path):
    lay_out(tmp_path)
    before = picture(tmp_path)
    with pytest.raises(WriteError, match="mount point"):
        commit_writes(steps_in(tmp_path)[:1], disk=WatchedDisk(FailAt(1, errno.EBUSY, calls=frozenset({"rename"}))))
    assert picture(tmp_path) == before
