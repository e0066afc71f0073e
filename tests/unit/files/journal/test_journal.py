"""Changes through the journal: verified, recorded before they happen, written all or none."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path

import pytest

from wieldy.core.errors import WieldyError
from wieldy.core.events import Event, Notice
from wieldy.core.workspace import Workspace
from wieldy.files.journal.entries import Change
from wieldy.files.journal.journal import Journal, Origin
from wieldy.files.journal.locks import Locks
from wieldy.files.journal.store import project_key
from wieldy.files.writing.commit import write_atomically
from wieldy.files.writing.disk import LOCAL_DISK, Data, Disk
from wieldy.files.writing.errors import StaleFileError, WriteError
from wieldy.testing.chaos import Fault, Gone, Vanishing, WatchedDisk

EDIT = Origin("s", "call", "Edit")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def journal_of(root: Path, disk: Disk = LOCAL_DISK, **settings: object) -> Journal:
    env = {"WIELDY_HOME": str(root.parent / "home")}
    workspace = Workspace(root, session_dir=root.parent / "session-1", env=env, settings={"journal": settings})
    return Journal(workspace, disk=disk)


@pytest.mark.asyncio
async def test_a_receipt_says_what_was_written(root: Path):
    journal = journal_of(root)
    path = root / "x" / "a"
    receipt = await journal.apply([Change(str(path), None, b"new")], call_id="c1", tool="Write", turn="t1")
    [written] = receipt.written
    assert path.read_bytes() == b"new" and written.stat == os.stat(path) and written.real_path == str(path)
    [event] = await journal.history()
    assert event.entry.id == receipt.entry and event.stands
    assert (event.entry.session, event.entry.call_id, event.entry.tool, event.entry.turn) == (
        "session-1",
        "c1",
        "Write",
        "t1",
    )


@pytest.mark.parametrize(
    ("on_disk", "before", "word"),
    [(b"theirs", b"mine", "changed on disk"), (None, b"mine", "gone"), (b"theirs", None, "exists already")],
)
def test_a_file_that_is_not_as_it_was_read_is_not_written(
    root: Path, on_disk: bytes | None, before: bytes | None, word: str
):
    path, other = root / "a", root / "b"
    if on_disk is not None:
        path.write_bytes(on_disk)
    changes = [Change(str(other), None, b"other"), Change(str(path), before, b"new")]
    with pytest.raises(StaleFileError, match=word) as caught:
        journal_of(root).writer.apply(changes, EDIT)
    assert caught.value.path == str(path)
    assert not other.exists() and (path.read_bytes() if path.exists() else None) == on_disk
    assert journal_of(root).chronicle().events == ()


def test_a_path_that_leads_elsewhere_than_judged_is_not_written(root: Path, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.write_bytes(b"")
    (root / "a").symlink_to(outside)
    with pytest.raises(StaleFileError, match="leads to"):
        journal_of(root).writer.apply([Change(str(root / "a"), b"", b"new", real_path=str(root / "a"))], EDIT)
    assert outside.read_bytes() == b""


@pytest.mark.parametrize("content", [b"old", None])
def test_a_folder_that_has_become_a_link_leads_nowhere(root: Path, tmp_path: Path, content: bytes | None):
    outside, folder = tmp_path / "outside", root / "folder"
    outside.mkdir()
    if content is not None:
        (outside / "a").write_bytes(content)
    folder.symlink_to(outside)
    path = str(folder / "a")
    with pytest.raises(StaleFileError, match="leads to"):
        journal_of(root).writer.apply([Change(path, content, b"new", real_path=path)], EDIT)
    assert [file.read_bytes() for file in outside.iterdir()] == ([] if content is None else [content])


def test_content_that_is_there_already_is_not_written_again(root: Path):
    path = root / "a"
    path.write_bytes(b"same")
    stat = path.stat()
    receipt = journal_of(root).writer.apply([Change(str(path), b"same", b"same")], EDIT)
    assert receipt.entry is None and "already" in receipt.written[0].notes[0]
    assert path.stat().st_mtime_ns == stat.st_mtime_ns and path.stat().st_ino == stat.st_ino


def test_one_file_named_twice_is_refused(root: Path):
    (root / "link").symlink_to("a")
    with pytest.raises(WieldyError, match="twice"):
        journal_of(root).writer.apply(
            [Change(str(root / "a"), None, b"1"), Change(str(root / "link"), None, b"2")], EDIT
        )
    assert not (root / "a").exists()


class JournalDisk(WatchedDisk):
    """Tells the journal's sync from the others, and lets it fail with an error."""

    __slots__ = ("journal_fd", "number", "seen")

    def __init__(self, number: int = 0) -> None:
        super().__init__(self.note)
        self.seen: list[str] = []
        self.journal_fd = -1
        self.number = number

    def note(self, call: str) -> None:
        self.seen.append(call)

    def pwrite(self, fd: int, data: Data, offset: int) -> int:
        if self.journal_fd < 0:
            self.journal_fd = fd
        return super().pwrite(fd, data, offset)

    def sync_content(self, fd: int) -> None:
        assert fd == self.journal_fd
        if self.number:
            raise OSError(self.number, os.strerror(self.number))
        os.fdatasync(fd)
        self.seen.append("the undo copy is kept")


def test_the_undo_copy_is_kept_before_anything_is_put_beside_the_file(root: Path):
    path = root / "a"
    path.write_bytes(b"old")
    journal_of(root).writer.apply([Change(str(path), b"old", b"older")], EDIT)
    disk = JournalDisk()
    journal_of(root, disk).writer.apply([Change(str(path), b"older", b"new")], EDIT)
    kept = disk.seen.index("the undo copy is kept")
    assert disk.seen[:kept] == ["open", "pwrite"]
    assert kept < disk.seen.index("write") < disk.seen.index("sync") < disk.seen.index("rename")
    assert path.read_bytes() == b"new"


def test_an_undo_copy_that_turns_out_not_to_be_kept_leaves_the_file_and_nothing_beside_it(root: Path):
    path = root / "a"
    path.write_bytes(b"old")
    journal_of(root).writer.apply([Change(str(path), b"old", b"older")], EDIT)
    with pytest.raises(WriteError, match="undo copy"):
        journal_of(root, JournalDisk(errno.ENOSPC)).writer.apply([Change(str(path), b"older", b"new")], EDIT)
    assert path.read_bytes() == b"older" and os.listdir(root) == ["a"]
    assert journal_of(root).start_now() == ()


def test_keeping_an_undo_copy_takes_one_sync_more(root: Path):
    path = root / "a"
    path.write_bytes(b"old")
    journal_of(root).writer.apply([Change(str(path), b"old", b"older")], EDIT)  # the journal's file exists from here on
    bare: list[str] = []
    write_atomically(str(path), b"new", disk=WatchedDisk(bare.append))
    kept: list[str] = []
    journal_of(root, WatchedDisk(kept.append)).writer.apply([Change(str(path), b"new", b"newer")], EDIT)
    assert kept[:2] == ["open", "pwrite"]
    assert kept.count("sync") == bare.count("sync") + 1 == 3


def test_a_journal_that_cannot_be_written_stops_the_write(root: Path):
    path = root / "a"
    path.write_bytes(b"old")
    disk = WatchedDisk(Fault(1, errno.EROFS))
    with pytest.raises(WriteError, match=r"undo copy .*read-only"):
        journal_of(root, disk).writer.apply([Change(str(path), b"old", b"new")], EDIT)
    assert path.read_bytes() == b"old" and os.listdir(root) == ["a"]


def test_a_journal_that_has_become_something_else_stops_the_write(root: Path):
    path, journal = root / "a", journal_of(root)
    path.write_bytes(b"old")
    journal.writer.apply([Change(str(path), b"old", b"new")], EDIT)
    journal.store.folder.rename(root.parent / "elsewhere")
    journal.store.folder.write_bytes(b"a file is in the way")
    with pytest.raises(WriteError, match="undo copy"):
        journal.writer.apply([Change(str(path), b"new", b"newer")], EDIT)
    assert path.read_bytes() == b"new" and os.listdir(root) == ["a"]


def test_a_state_folder_that_cannot_be_made_is_named_and_can_be_done_without(root: Path):
    (root.parent / "home").write_bytes(b"a file is in the way")
    change = Change(str(root / "a"), None, b"new")
    with pytest.raises(WriteError, match=r"undo copy .*WIELDY_HOME"):
        journal_of(root).writer.apply([change], EDIT)
    assert os.listdir(root) == [] and journal_of(root).start_now() == ()
    journal_of(root, enabled=False).writer.apply([change], EDIT)
    assert (root / "a").read_bytes() == b"new"


def test_without_a_journal_files_are_written_all_the_same(root: Path):
    journal = journal_of(root, enabled=False)
    receipt = journal.writer.apply([Change(str(root / "a"), None, b"new")], EDIT)
    assert receipt.entry is None and (root / "a").read_bytes() == b"new"
    assert not (root.parent / "home" / "journal").exists()


def test_a_failed_write_is_no_part_of_history(root: Path):
    path = root / "a"
    path.write_bytes(b"old")
    journal = journal_of(root, WatchedDisk(Fault(1, errno.EIO, calls=frozenset({"rename"}))))
    with pytest.raises(WriteError):
        journal.writer.apply([Change(str(path), b"old", b"new")], EDIT)
    assert path.read_bytes() == b"old"
    assert journal.chronicle().events == () and journal.store.refresh() == {}


def test_what_could_not_be_taken_back_is_taken_back_at_the_next_start(root: Path):
    path, other = root / "a", root / "b"
    path.write_bytes(b"old")
    other.write_bytes(b"old")
    renames = 0

    def watch(call: str) -> None:
        nonlocal renames
        renames += call == "rename"
        if call == "rename" and renames >= 2:
            raise OSError(errno.EIO, "broken")

    with pytest.raises(WriteError, match="so did rolling it back"):
        changes = [Change(str(path), b"old", b"new"), Change(str(other), b"old", b"new")]
        journal_of(root, WatchedDisk(watch)).writer.apply(changes, EDIT)
    assert path.read_bytes() == b"new"
    assert journal_of(root).start_now() == (f"an interrupted change was taken back: {path}, {other}",)
    assert path.read_bytes() == other.read_bytes() == b"old" and sorted(os.listdir(root)) == ["a", "b"]


@pytest.mark.asyncio
async def test_a_start_tells_what_it_put_right(root: Path):
    path = root / "a"
    path.write_bytes(b"old")

    journal = journal_of(root, WatchedDisk(Vanishing("rename")))
    with pytest.raises(Gone):
        journal.writer.apply([Change(str(path), b"old", b"new")], EDIT)
    assert len(os.listdir(root)) == 2
    told: list[Event] = []
    workspace = Workspace(root, session_dir=root.parent, env=journal.workspace.env, emit=told.append)
    await Journal(workspace).start()
    assert path.read_bytes() == b"old" and os.listdir(root) == ["a"]
    await Journal(workspace).start()
    assert [event.text for event in told if isinstance(event, Notice)] == [
        f"an interrupted change was taken back: {path}"
    ]


def test_a_writer_that_is_still_at_it_is_left_alone(root: Path):
    path = root / "a"
    path.write_bytes(b"old")
    seen: list[tuple[str, ...]] = []

    def look(call: str) -> None:
        if call == "rename":
            seen.append(journal_of(root).start_now())

    journal_of(root, WatchedDisk(look)).writer.apply([Change(str(path), b"old", b"new")], EDIT)
    assert seen == [()] and path.read_bytes() == b"new"


def test_threads_of_one_process_take_turns_on_one_file(root: Path):
    path = root / "n"
    path.write_bytes(b"0")
    journal = journal_of(root)
    moved: list[int] = []

    def count(times: int) -> None:
        for _ in range(times):
            while True:
                before = path.read_bytes()
                try:
                    journal.writer.apply([Change(str(path), before, str(int(before) + 1).encode())], EDIT)
                    break
                except StaleFileError:
                    moved.append(1)

    threads = [threading.Thread(target=count, args=(15,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() == b"45" and len(journal.chronicle().events) == 45


@pytest.mark.asyncio
async def test_a_cancelled_write_is_settled_before_the_caller_goes_on(root: Path):
    path = root / "a"
    path.write_bytes(b"old")
    gate, reached = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def hold(call: str) -> None:
        if call == "rename":
            loop.call_soon_threadsafe(reached.set)
            gate.wait(10)

    journal = journal_of(root, WatchedDisk(hold))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(journal.apply([Change(str(path), b"old", b"new")], call_id="c", tool="Edit"))
        await reached.wait()
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        gate.set()
    assert task.cancelled() and path.read_bytes() == b"new" and len(await journal.history()) == 1


def test_spellings_of_one_name_share_a_lock(tmp_path: Path):
    locks = Locks(tmp_path / "locks")
    with locks.hold(["/p/Café"]) as held, locks.hold(["/P/CAFE\u0301"], wait=False) as second:
        assert held.all and not second.all
    with locks.hold(["/p/café"], wait=False) as again:
        assert again.all


def test_projects_of_the_same_name_have_journals_of_their_own():
    assert project_key("/a/app") != project_key("/b/app")
    assert project_key("/a/my app!").startswith("my-app-") and project_key("/").startswith("root-")


def test_a_file_that_is_a_mount_point_is_written_in_place(root: Path):
    path, other = root / "mounted", root / "other"
    path.write_bytes(b"old")
    other.write_bytes(b"old")
    inode = path.stat().st_ino

    class Mounted(Disk):
        def rename(self, name: str, new: str, *, dir_fd: int) -> None:
            if new == "mounted":
                raise OSError(errno.EBUSY, "busy")
            super().rename(name, new, dir_fd=dir_fd)

    changes = [Change(str(other), b"old", b"new"), Change(str(path), b"old", b"newer")]
    receipt = journal_of(root, Mounted()).writer.apply(changes, EDIT)
    assert path.read_bytes() == b"newer" and other.read_bytes() == b"new" and path.stat().st_ino == inode
    assert "mount" in receipt.written[1].notes[0] and receipt.written[0].notes == ()
    assert sorted(os.listdir(root)) == ["mounted", "other"]
    assert [event.entry.id for event in journal_of(root).chronicle().events] == [receipt.entry]
