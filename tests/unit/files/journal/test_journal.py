"""Changes through the journal: verified, recorded before they happen, written all or none."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path

import pytest
from tests.fault_disks import DieAt, FailAt, SimulatedDeath, WatchedDisk
from tests.unit.files.at_once import start_now, write_atomically

from wieldy.core.errors import StaleFileError, WieldyError
from wieldy.core.events import Event, Notice
from wieldy.core.workspace import Workspace
from wieldy.files.apply_edit import write_changes
from wieldy.files.journal.entries import ChangeOrigin, FileChange
from wieldy.files.journal.journal import HeldLocks, Journal, project_key
from wieldy.files.writing.disk import LOCAL_DISK, Disk, WriteError

EDIT = ChangeOrigin("s", "call", "Edit")


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
async def test_a_result_says_what_was_written(root: Path):
    journal = journal_of(root)
    path = root / "x" / "a"
    result = await journal.run(
        write_changes, journal, [FileChange(str(path), None, b"new")], ChangeOrigin("session-1", "c1", "Write", "t1")
    )
    [written] = result.written
    assert path.read_bytes() == b"new" and written.real_path == str(path)
    assert written.stat is not None and written.stat.st_mtime_ns == path.stat().st_mtime_ns
    [entry] = await journal.history()
    assert entry.id == result.entry_id and entry.active
    assert (entry.session, entry.call_id, entry.tool, entry.turn) == (
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
    changes = [FileChange(str(other), None, b"other"), FileChange(str(path), before, b"new")]
    with pytest.raises(StaleFileError, match=word) as caught:
        write_changes(journal_of(root), changes, EDIT)
    assert caught.value.path == str(path)
    assert not other.exists() and (path.read_bytes() if path.exists() else None) == on_disk
    assert journal_of(root).store.find(active_only=False) == []


def test_a_path_that_leads_elsewhere_than_judged_is_not_written(root: Path, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.write_bytes(b"")
    (root / "a").symlink_to(outside)
    with pytest.raises(StaleFileError, match="leads to"):
        write_changes(journal_of(root), [FileChange(str(root / "a"), b"", b"new", real_path=str(root / "a"))], EDIT)
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
        write_changes(journal_of(root), [FileChange(path, content, b"new", real_path=path)], EDIT)
    assert [file.read_bytes() for file in outside.iterdir()] == ([] if content is None else [content])


def test_content_that_is_there_already_is_not_written_again(root: Path):
    path = root / "a"
    path.write_bytes(b"same")
    stat = path.stat()
    result = write_changes(journal_of(root), [FileChange(str(path), b"same", b"same")], EDIT)
    assert result.entry_id is None and "already" in result.written[0].notes[0]
    assert path.stat().st_mtime_ns == stat.st_mtime_ns and path.stat().st_ino == stat.st_ino


def test_one_file_named_twice_is_refused(root: Path):
    (root / "link").symlink_to("a")
    with pytest.raises(WieldyError, match="twice"):
        write_changes(
            journal_of(root),
            [FileChange(str(root / "a"), None, b"1"), FileChange(str(root / "link"), None, b"2")],
            EDIT,
        )
    assert not (root / "a").exists()


def test_the_undo_copy_is_recorded_before_anything_is_put_beside_the_file(root: Path):
    path = root / "a"
    path.write_bytes(b"old")
    seen: list[tuple[str, bytes, bytes]] = []

    def look(call: str) -> None:
        if not seen:
            store = journal_of(root).store
            [entry] = store.pending()
            [file] = entry.files
            assert file.before_hash and file.after_hash and os.listdir(root) == ["a"]
            seen.append((file.real_path, store.content(file.before_hash), store.content(file.after_hash)))

    write_changes(journal_of(root, WatchedDisk(look)), [FileChange(str(path), b"old", b"new")], EDIT)
    assert seen == [(str(path), b"old", b"new")] and path.read_bytes() == b"new"


def test_the_journal_adds_no_call_to_those_of_a_bare_write(root: Path):
    path = root / "a"
    path.write_bytes(b"old")
    bare: list[str] = []
    write_atomically(str(path), b"new", disk=WatchedDisk(bare.append))
    journaled: list[str] = []
    write_changes(journal_of(root, WatchedDisk(journaled.append)), [FileChange(str(path), b"new", b"newer")], EDIT)
    assert journaled == bare


def test_a_journal_that_has_become_something_else_stops_the_write(root: Path):
    path, journal = root / "a", journal_of(root)
    path.write_bytes(b"old")
    write_changes(journal, [FileChange(str(path), b"old", b"new")], EDIT)
    folder = Path(journal.store.database.path).parent
    folder.rename(root.parent / "elsewhere")
    folder.write_bytes(b"a file is in the way")
    with pytest.raises(WriteError, match="undo copy"):
        write_changes(journal, [FileChange(str(path), b"new", b"newer")], EDIT)
    assert path.read_bytes() == b"new" and os.listdir(root) == ["a"]


def test_a_state_folder_that_cannot_be_made_is_named_and_can_be_done_without(root: Path):
    (root.parent / "home").write_bytes(b"a file is in the way")
    change = FileChange(str(root / "a"), None, b"new")
    with pytest.raises(WriteError, match=r"undo copy .*WIELDY_HOME"):
        write_changes(journal_of(root), [change], EDIT)
    assert os.listdir(root) == [] and start_now(journal_of(root)) == ()
    write_changes(journal_of(root, enabled=False), [change], EDIT)
    assert (root / "a").read_bytes() == b"new"


def test_without_a_journal_files_are_written_all_the_same(root: Path):
    journal = journal_of(root, enabled=False)
    result = write_changes(journal, [FileChange(str(root / "a"), None, b"new")], EDIT)
    assert result.entry_id is None and (root / "a").read_bytes() == b"new"
    assert not (root.parent / "home" / "journal").exists()


def test_a_failed_write_is_no_part_of_history(root: Path):
    path = root / "a"
    path.write_bytes(b"old")
    journal = journal_of(root, WatchedDisk(FailAt(1, errno.EIO, calls=frozenset({"rename"}))))
    with pytest.raises(WriteError):
        write_changes(journal, [FileChange(str(path), b"old", b"new")], EDIT)
    assert path.read_bytes() == b"old"
    assert journal.store.find(active_only=False) == [] and journal.store.pending() == []


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
        changes = [FileChange(str(path), b"old", b"new"), FileChange(str(other), b"old", b"new")]
        write_changes(journal_of(root, WatchedDisk(watch)), changes, EDIT)
    assert path.read_bytes() == b"new"
    assert start_now(journal_of(root)) == (f"an interrupted edit was rolled back: {path}, {other}",)
    assert path.read_bytes() == other.read_bytes() == b"old" and sorted(os.listdir(root)) == ["a", "b"]


@pytest.mark.asyncio
async def test_a_start_tells_what_it_put_right(root: Path):
    path = root / "a"
    path.write_bytes(b"old")

    journal = journal_of(root, WatchedDisk(DieAt("rename")))
    with pytest.raises(SimulatedDeath):
        write_changes(journal, [FileChange(str(path), b"old", b"new")], EDIT)
    assert len(os.listdir(root)) == 2
    told: list[Event] = []
    workspace = Workspace(root, session_dir=root.parent, env=journal.workspace.env, emit=told.append)
    await Journal(workspace).start()
    assert path.read_bytes() == b"old" and os.listdir(root) == ["a"]
    await Journal(workspace).start()
    assert [event.text for event in told if isinstance(event, Notice)] == [
        f"an interrupted edit was rolled back: {path}"
    ]


def test_a_writer_that_is_still_at_it_is_left_alone(root: Path):
    path = root / "a"
    path.write_bytes(b"old")
    seen: list[tuple[str, ...]] = []

    def look(call: str) -> None:
        if call == "rename":
            seen.append(start_now(journal_of(root)))

    write_changes(journal_of(root, WatchedDisk(look)), [FileChange(str(path), b"old", b"new")], EDIT)
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
                    write_changes(journal, [FileChange(str(path), before, str(int(before) + 1).encode())], EDIT)
                    break
                except StaleFileError:
                    moved.append(1)

    threads = [threading.Thread(target=count, args=(15,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() == b"45" and len(journal.store.find(active_only=False)) == 45


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
        task = group.create_task(journal.run(write_changes, journal, [FileChange(str(path), b"old", b"new")], EDIT))
        await reached.wait()
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        gate.set()
    assert task.cancelled() and path.read_bytes() == b"new" and len(await journal.history()) == 1


def test_spellings_of_one_name_share_a_lock(tmp_path: Path):
    locks = tmp_path / "locks"
    with HeldLocks(locks, ["/p/Café"]) as held, HeldLocks(locks, ["/P/CAFE\u0301"], wait=False) as second:
        assert held.acquired and not second.acquired
    with HeldLocks(locks, ["/p/café"], wait=False) as again:
        assert again.acquired


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

    changes = [FileChange(str(other), b"old", b"new"), FileChange(str(path), b"old", b"newer")]
    result = write_changes(journal_of(root, Mounted()), changes, EDIT)
    assert path.read_bytes() == b"newer" and other.read_bytes() == b"new" and path.stat().st_ino == inode
    assert "mount" in result.written[1].notes[0] and result.written[0].notes == ()
    assert sorted(os.listdir(root)) == ["mounted", "other"]
    assert [entry.id for entry in journal_of(root).store.find(active_only=False)] == [result.entry_id]
