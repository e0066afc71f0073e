"""One file read, edited and written under its lock: whoever else writes it comes before or after."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.fault_disks import DieAt, SimulatedDeath, WatchedDisk
from tests.unit.files.at_once import start_now

from wieldy.core.errors import Refusal, StaleFileError, ToolFailure
from wieldy.core.supervise import Abort
from wieldy.core.tool import ToolContext
from wieldy.core.workspace import Workspace
from wieldy.engine.workspace_services import open_workspace
from wieldy.files.apply_edit import FileEdit, WriteResult, apply_edit, check_edit, write_changes, write_files
from wieldy.files.editing.matching import Replacement
from wieldy.files.editing.read_state import ReadState
from wieldy.files.editing.revision import (
    Edit,
    EditSettings,
    ReplaceTexts,
    Revision,
    RewriteText,
)
from wieldy.files.journal.entries import ChangeOrigin, FileChange
from wieldy.files.journal.journal import HeldLocks, Journal
from wieldy.files.writing.disk import Target, WriteError

TIMES = 60
EDIT = ChangeOrigin("s", "c", "Edit")
BASE = b"one\ntwo\nthree\nfour\nfive\n"


def workspace_of(root: Path, **settings: object) -> Workspace:
    env = {"WIELDY_HOME": str(root.parent / "home")}
    return open_workspace(root, session_dir=root.parent / "session", env=env, settings={"journal": settings})


def journal_of(root: Path, watch: Callable[[str], None] = lambda call: None) -> Journal:
    return Journal(workspace_of(root), disk=WatchedDisk(watch))


def edit_file(journal: Journal, path: Path, make: Callable[[bytes], bytes | None]) -> WriteResult:
    class Computed(FileEdit):
        def compute(self, target: Target) -> bytes | None:
            return make(target.content or b"")

    return write_files(journal, [Computed(str(path), str(path))], EDIT)


def one_more(before: bytes) -> bytes:
    return str(int(before) + 1).encode()


def counting(root: Path, name: str) -> int:
    journal = journal_of(root)
    for _ in range(TIMES):
        edit_file(journal, root / name, one_more)
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
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    children = [
        subprocess.Popen(
            [sys.executable, __file__, str(root), name], stdout=subprocess.PIPE, text=True, env=environment
        )
        for name in names
    ]
    assert [json.loads(child.communicate(timeout=60)[0]) for child in children] == [TIMES, TIMES]
    assert int((root / "n").read_bytes()) == 1000 + 2 * TIMES
    assert len(journal_of(root).store.find(active_only=False)) == 2 * TIMES
    assert not [name for name in os.listdir(root) if name.startswith(".wieldy")]


@pytest.mark.asyncio
async def test_calls_of_one_process_take_turns(root: Path):
    path = root / "n"
    path.write_bytes(b"0")
    journal = journal_of(root)
    await asyncio.gather(*(journal.run(edit_file, journal, path, one_more) for _ in range(20)))
    assert path.read_bytes() == b"20" and len(await journal.history()) == 20


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_that_came_to_lie_on_the_way_is_not_followed(root: Path, exists: bool):
    folder, elsewhere = root / "folder", root.parent / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    path = folder / "a"
    if exists:
        path.write_bytes(b"mine")
        (elsewhere / "a").write_bytes(b"mine")

    def swap(before: bytes) -> bytes:
        folder.rename(root / "away")
        folder.symlink_to(elsewhere)
        return b"new"

    with pytest.raises(StaleFileError):
        edit_file(journal_of(root), path, swap)
    assert sorted(elsewhere.iterdir()) == ([elsewhere / "a"] if exists else [])
    assert not exists or (elsewhere / "a").read_bytes() == b"mine"


def test_a_file_that_is_changed_after_it_was_read_is_not_written(root: Path):
    path = root / "a"
    path.write_bytes(b"old")

    def interfere(call: str) -> None:
        if call == "write":
            path.write_bytes(b"theirs")

    with pytest.raises(StaleFileError, match="changed by someone else"):
        edit_file(journal_of(root, interfere), path, bytes.upper)
    assert path.read_bytes() == b"theirs" and os.listdir(root) == ["a"]
    assert journal_of(root).store.find(active_only=False) == []


def test_what_cannot_be_computed_is_not_recorded_and_holds_no_lock(root: Path):
    path = root / "a"
    path.write_bytes(b"old")
    journal = journal_of(root)

    def refuse(before: bytes) -> bytes:
        raise LookupError("not in there")

    with pytest.raises(LookupError, match="not in there"):
        edit_file(journal, path, refuse)
    assert not journal.store.database.exists and path.read_bytes() == b"old"
    edit_file(journal, path, bytes.upper)
    assert path.read_bytes() == b"OLD"


def test_what_changes_nothing_is_not_recorded(root: Path):
    path = root / "a"
    path.write_bytes(b"old")
    journal = journal_of(root)
    result = edit_file(journal, path, bytes.lower)
    assert result.entry_id is None and result.written[0].real_path == str(path)
    assert journal.store.find(active_only=False) == []


def known(content: bytes) -> Callable[[bytes], bytes]:
    """Changes a content that was read before, and no other."""

    def make(before: bytes) -> bytes:
        if before != content:
            raise LookupError("changed since it was read")
        return before.upper()

    return make


def test_what_a_dead_writer_left_of_the_same_file_is_rolled_back_first(root: Path):
    path, old = root / "a", b"old content\n" * 10
    path.write_bytes(old)
    os.link(path, root / "twin")
    with pytest.raises(SimulatedDeath):
        write_changes(journal_of(root, DieAt("truncate")), [FileChange(str(path), old, b"new")], EDIT)
    assert path.read_bytes() not in (old, b"new")
    journal = journal_of(root)
    edit_file(journal, path, known(old))
    assert path.read_bytes() == old.upper() == (root / "twin").read_bytes()
    assert list(journal.notices) == [f"an interrupted edit was rolled back: {path}"]


def test_a_writer_that_dies_while_we_wait_for_its_lock_is_rolled_back_first(root: Path):
    path, old = root / "a", b"old content\n" * 10
    path.write_bytes(old)
    os.link(path, root / "twin")
    journal = journal_of(root)
    hold_locks = journal.hold_locks
    deaths: list[int] = []

    def hold_locks_after_a_death(names: Iterable[str], path: str) -> HeldLocks:
        if not deaths:
            deaths.append(1)
            with pytest.raises(SimulatedDeath):
                write_changes(journal_of(root, DieAt("truncate")), [FileChange(path, old, b"new")], EDIT)
        return hold_locks(names, path)

    journal.hold_locks = hold_locks_after_a_death  # type: ignore[method-assign]
    edit_file(journal, path, known(old))
    assert path.read_bytes() == old.upper() == (root / "twin").read_bytes()


def test_what_a_dead_writer_left_of_another_file_is_rolled_back_too(root: Path):
    path, other = root / "a", root / "b"
    path.write_bytes(b"old")
    other.write_bytes(b"theirs")
    with pytest.raises(SimulatedDeath):
        write_changes(journal_of(root, DieAt("rename")), [FileChange(str(other), b"theirs", b"new")], EDIT)
    assert len(os.listdir(root)) == 3
    journal = journal_of(root)
    edit_file(journal, path, known(b"old"))
    assert (path.read_bytes(), other.read_bytes(), sorted(os.listdir(root))) == (b"OLD", b"theirs", ["a", "b"])
    assert len(journal.store.find(active_only=False)) == 1 and journal.store.pending() == []


def test_a_file_name_in_a_notice_does_not_control_the_terminal(root: Path):
    path = root / "a\x1b[31m\nb"
    path.write_bytes(b"old")
    with pytest.raises(SimulatedDeath):
        write_changes(journal_of(root, DieAt("rename")), [FileChange(str(path), b"old", b"new")], EDIT)
    assert start_now(journal_of(root)) == (f"an interrupted edit was rolled back: {root}/a\\x1b[31m\\nb",)


def test_a_writer_that_is_still_at_it_is_left_alone_and_holds_up_nobody(root: Path):
    path, other = root / "a", root / "b"
    path.write_bytes(b"old")
    other.write_bytes(b"theirs")
    late = journal_of(root)

    def meanwhile(call: str) -> None:
        if call == "rename":
            edit_file(late, path, known(b"old"))

    write_changes(journal_of(root, meanwhile), [FileChange(str(other), b"theirs", b"new")], EDIT)
    assert (path.read_bytes(), other.read_bytes(), tuple(late.notices)) == (b"OLD", b"new", ())
    assert len(late.store.find(active_only=False)) == 2 and late.store.pending() == []


def test_what_cannot_be_written_is_not_tried_for_ever(root: Path):
    path = root / "a"
    path.write_bytes(b"old")
    tries: list[str] = []

    def broken(call: str) -> None:
        tries.append(call)
        if call in ("rename", "unlink"):
            raise OSError(errno.EIO, "broken")

    with pytest.raises(WriteError):
        edit_file(journal_of(root, broken), path, known(b"old"))
    assert tries.count("rename") == 1 and path.read_bytes() == b"old"


@pytest.fixture
def file(root: Path) -> Path:
    path = root / "a"
    path.write_bytes(BASE)
    return path


@pytest.fixture
def ctx(root: Path, file: Path) -> ToolContext:
    """The context of a call whose model has read the file."""
    workspace = workspace_of(root)
    workspace.services.read_state.record_read(str(file), data=BASE, stat=file.stat(), first=1, last=5, complete=True)
    judge: Any = None
    return ToolContext("call", workspace, Abort(), lambda event: None, judge, message_id="turn")


def replacing(old: str, new: str) -> Edit:
    return ReplaceTexts((Replacement(old, new),))


class Interfering:
    """An edit after which, so many times, something else happens to the file."""

    def __init__(self, edit: Edit, interfere: Callable[[], object], times: int = 1) -> None:
        self.edit, self.interfere, self.left = edit, interfere, times

    def revise(self, target: Target, state: ReadState, settings: EditSettings) -> Revision:
        revision = self.edit.revise(target, state, settings)
        if self.left:
            self.left -= 1
            self.interfere()
        return revision


@pytest.mark.asyncio
async def test_an_edit_is_written_recorded_known_and_reported(ctx: ToolContext, file: Path):
    result = await apply_edit(ctx, str(file), replacing("one", "ONE"), tool="Edit")
    after = BASE.replace(b"one", b"ONE")
    assert file.read_bytes() == after
    assert str(result.content).startswith(f"Changed {file}: 1 replacement")
    assert ctx.workspace.services.read_state.is_current(str(file), after, file.stat())
    journal = ctx.workspace.services.journal
    [entry] = await journal.history()
    assert (entry.session, entry.call_id, entry.tool, entry.turn) == ("session", "call", "Edit", "turn")
    await journal.undo()
    assert file.read_bytes() == BASE


@pytest.mark.asyncio
async def test_a_new_file_is_made_with_its_folders(ctx: ToolContext, root: Path, file: Path):
    path = root / "x" / "y" / "b"
    await apply_edit(ctx, str(path), RewriteText("new"), tool="Write")
    assert path.read_bytes() == b"new"
    await ctx.workspace.services.journal.undo()
    assert os.listdir(root) == ["a"]


@pytest.mark.asyncio
async def test_a_change_between_computing_and_writing_is_merged(ctx: ToolContext, file: Path):
    edit = Interfering(replacing("one", "ONE"), lambda: file.write_bytes(BASE + b"six\n"))
    result = await apply_edit(ctx, str(file), edit, tool="Edit")
    assert file.read_bytes() == b"ONE\ntwo\nthree\nfour\nfive\nsix\n"
    assert "merged" in str(result.content)


@pytest.mark.asyncio
async def test_a_file_that_never_rests_is_given_up(ctx: ToolContext, file: Path):
    edit = Interfering(replacing("one", "ONE"), lambda: file.write_bytes(BASE), times=99)
    with pytest.raises(ToolFailure, match="changed by someone else meanwhile"):
        await apply_edit(ctx, str(file), edit, tool="Edit")
    assert file.read_bytes() == BASE


@pytest.mark.asyncio
async def test_a_change_right_after_ours_is_noticed(ctx: ToolContext, file: Path):
    class Formatting(WatchedDisk):
        def rename(self, name: str, new: str, *, dir_fd: int) -> None:
            super().rename(name, new, dir_fd=dir_fd)
            file.write_bytes(file.read_bytes().upper())

    ctx.workspace.services.journal.writer.disk = Formatting(lambda call: None)
    result = await apply_edit(ctx, str(file), replacing("one", "1"), tool="Edit")
    assert "changed again right after it was written" in str(result.content)
    assert ctx.workspace.services.read_state.reading(str(file)) is None


@pytest.mark.asyncio
async def test_a_check_refuses_what_the_edit_would_refuse_and_writes_nothing(ctx: ToolContext, file: Path):
    await check_edit(ctx, str(file), replacing("one", "ONE"))
    refusals = []
    for attempt in (
        check_edit(ctx, str(file), replacing("none", "x")),
        apply_edit(ctx, str(file), replacing("none", "x"), tool="Edit"),
    ):
        with pytest.raises(Refusal) as caught:
            await attempt
        refusals.append(caught.value.advice)
    assert refusals[0] == refusals[1] and file.read_bytes() == BASE
    assert await ctx.workspace.services.journal.history() == ()


@pytest.mark.asyncio
async def test_a_check_does_not_look_at_unread_files_outside_the_workspace(ctx: ToolContext, tmp_path: Path):
    await check_edit(ctx, str(tmp_path / "missing"), replacing("a", "b"))
    with pytest.raises(Refusal, match="does not exist"):
        await check_edit(ctx, str(tmp_path / "project" / "missing"), replacing("a", "b"))


if __name__ == "__main__":
    print(json.dumps(counting(Path(sys.argv[1]), sys.argv[2])))
