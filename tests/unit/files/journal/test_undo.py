"""Undo, redo and history: what they touch, what they refuse, and what they say."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from wieldy.core.errors import StaleFileError
from wieldy.core.workspace import Workspace
from wieldy.files.apply_edit import write_changes
from wieldy.files.journal.entries import ChangeOrigin, FileChange, Uncovered
from wieldy.files.journal.journal import Journal
from wieldy.files.journal.tree_manifest import path_state
from wieldy.files.journal.undo import (
    SHOWN_FILES,
    CannotUndo,
    UndoSelector,
    carry_out,
    history,
    history_lines,
    plan_lines,
    plan_undo,
    redo,
    undo,
)


class Project:
    """A folder and its journal."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        self.journal = self.reopened()

    def reopened(self, session: str = "s1") -> Journal:
        env = {"WIELDY_HOME": str(self.root.parent / "home")}
        return Journal(Workspace(self.root, session_dir=self.root.parent / session, env=env))

    def edit(self, call: str, *, turn: str | None = None, session: str = "s1", **wanted: bytes | None) -> None:
        self.change(call, wanted, turn, session)

    def change(
        self, call: str, wanted: Mapping[str, bytes | None], turn: str | None = None, session: str = "s1"
    ) -> None:
        changes = [FileChange(str(self.root / name), self.read(name), after) for name, after in wanted.items()]
        write_changes(self.journal, changes, ChangeOrigin(session, call, "Edit", turn))

    def read(self, name: str) -> bytes | None:
        path = self.root / name
        return path.read_bytes() if path.exists() else None

    def write(self, name: str, content: bytes) -> None:
        (self.root / name).write_bytes(content)

    @property
    def names(self) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*"))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def test_the_last_change_is_taken_back_then_the_one_before(project: Project):
    project.edit("1", a=b"one")
    project.edit("2", a=b"two")
    undo(project.journal)
    assert project.read("a") == b"one"
    undo(project.reopened())
    assert project.read("a") is None and project.names == []
    with pytest.raises(CannotUndo, match="nothing to undo"):
        undo(project.journal)


def test_redo_brings_back_in_reverse_order(project: Project):
    project.edit("1", a=b"one")
    project.edit("2", a=b"two", b=b"two")
    undo(project.journal)
    undo(project.journal)
    redo(project.journal)
    assert project.read("a") == b"one" and project.read("b") is None
    redo(project.reopened())
    assert project.read("a") == project.read("b") == b"two"
    with pytest.raises(CannotUndo, match="nothing to redo"):
        redo(project.journal)
    undo(project.journal)
    assert project.read("a") == b"one" and project.read("b") is None


def test_redo_of_one_session_leaves_the_undo_of_another(project: Project):
    project.edit("1", a=b"1", session="s1")
    project.edit("2", b=b"2", session="s2")
    undo(project.reopened("s1"), UndoSelector(session="s1"))
    undo(project.reopened("s2"), UndoSelector(session="s2"))
    redo(project.reopened("s1"), session="s1")
    assert project.names == ["a"]


def test_a_call_is_taken_back_by_its_id(project: Project):
    project.edit("first", a=b"a")
    project.edit("second", b=b"b")
    undo(project.journal, UndoSelector("first"))
    assert project.names == ["b"]
    with pytest.raises(CannotUndo, match="unknown or undone already"):
        undo(project.journal, UndoSelector("first"))


def test_a_turn_is_taken_back_as_one(project: Project):
    project.edit("1", turn="t1", a=b"1")
    project.edit("2", turn="t2", a=b"2")
    project.edit("3", turn="t2", a=b"3", b=b"3")
    plan = undo(project.journal, UndoSelector(whole_turn=True))
    assert len(plan.changes) == 2 and project.read("a") == b"1" and project.names == ["a"]
    redo(project.journal)
    assert project.read("a") == project.read("b") == b"3"
    with pytest.raises(CannotUndo, match="changed later by Edit"):
        undo(project.journal, UndoSelector(whole_turn=True, turn="t1"))


def test_all_of_a_session_is_taken_back_and_nothing_of_another(project: Project):
    project.edit("1", session="s0", a=b"1")
    project.edit("2", session="s1", a=b"2", b=b"2")
    project.edit("3", session="s1", b=b"3")
    undo(project.journal, UndoSelector(everything=True))
    assert project.read("a") == b"1" and project.read("b") is None
    with pytest.raises(CannotUndo):
        undo(project.journal, UndoSelector(everything=True, session="s1"))
    undo(project.journal, UndoSelector(session="s0"))
    assert project.names == []


def test_all_since_a_point_in_time(project: Project):
    project.edit("1", a=b"1")
    project.edit("2", a=b"2")
    project.edit("3", a=b"3")
    point = next(entry.time for entry in history(project.journal) if entry.call_id == "2")
    undo(project.journal, UndoSelector(everything=True, since=point))
    assert project.read("a") == b"1"


def test_a_file_that_moved_on_is_refused_and_nothing_is_touched(project: Project):
    project.edit("1", a=b"1", b=b"1")
    project.write("a", b"by hand")
    with pytest.raises(CannotUndo, match="a was changed since, by something other than wieldy"):
        undo(project.journal)
    assert project.read("a") == b"by hand" and project.read("b") == b"1"


def test_a_file_that_was_restored_by_hand_stands_in_nobodys_way(project: Project):
    project.edit("1", a=b"1")
    project.edit("2", a=b"2", b=b"2")
    project.write("a", b"1")
    undo(project.journal)
    assert project.read("a") == b"1" and project.read("b") is None
    undo(project.journal)
    assert project.names == []


def test_an_undo_with_nothing_left_to_write_is_still_an_undo(project: Project):
    project.edit("1", a=b"1")
    project.edit("2", a=b"2")
    project.write("a", b"1")
    undo(project.journal)
    undo(project.journal)
    assert project.names == []


def test_changes_elsewhere_in_the_file_are_merged_on_request(project: Project):
    lines = [f"line {number}\n".encode() for number in range(30)]
    project.write("a", b"".join(lines))
    lines[2] = b"edited\n"
    project.edit("1", a=b"".join(lines))
    lines[25] = b"by hand\n"
    project.write("a", b"".join(lines))
    with pytest.raises(CannotUndo):
        undo(project.journal)
    plan = undo(project.journal, merge=True)
    lines[2] = b"line 2\n"
    assert project.read("a") == b"".join(lines) and plan.files[0].merged
    undo_of_merge = redo(project.journal)
    lines[2] = b"edited\n"
    assert project.read("a") == b"".join(lines) and undo_of_merge.changes[0].call_id == "1"


def test_a_merge_that_conflicts_is_refused(project: Project):
    project.write("a", b"one\n")
    project.edit("1", a=b"two\n")
    project.write("a", b"three\n")
    with pytest.raises(CannotUndo, match="same lines"):
        undo(project.journal, merge=True)
    assert project.read("a") == b"three\n"


def test_what_merging_cannot_bring_together_is_said(project: Project):
    project.edit("made", a=b"a")
    project.edit("removed", a=None)
    project.edit("kept", b=b"b")
    project.edit("edited", b=b"bb")
    project.write("a", b"anew")
    (project.root / "b").unlink()
    for call, words in [("made", "would be deleted"), ("removed", "made anew"), ("edited", "deleted since")]:
        [problem] = plan_undo(project.journal, UndoSelector(call), merge=True).problems
        assert words in problem


def test_a_preview_touches_nothing_and_a_change_after_it_is_noticed(project: Project):
    project.edit("1", a=b"1")
    plan = plan_undo(project.journal)
    assert project.read("a") == b"1" and plan.entry is None
    project.write("a", b"since the preview")
    with pytest.raises(StaleFileError):
        carry_out(project.journal, plan)
    assert project.read("a") == b"since the preview"


def test_a_deleted_file_comes_back_with_its_mode(project: Project):
    project.write("run.sh", b"#!/bin/sh\n")
    os.chmod(project.root / "run.sh", 0o750)
    project.change("1", {"run.sh": None})
    assert project.names == []
    undo(project.journal)
    assert project.read("run.sh") == b"#!/bin/sh\n" and (project.root / "run.sh").stat().st_mode & 0o777 == 0o750


def test_folders_made_for_a_file_go_with_it_unless_something_else_is_in_them(project: Project):
    project.change("1", {"x/y/a": b"a", "x/z/b": b"b"})
    project.write("x/z/other", b"mine")
    undo(project.journal)
    assert project.names == ["x", "x/z", "x/z/other"]
    redo(project.journal)
    assert project.read("x/y/a") == b"a" and project.read("x/z/b") == b"b"


def test_undo_writes_through_no_link_that_took_the_files_place(project: Project, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.write_bytes(b"1")
    project.edit("1", a=b"1")
    (project.root / "a").unlink()
    (project.root / "a").symlink_to(outside)
    with pytest.raises((CannotUndo, StaleFileError)):
        undo(project.journal)
    assert outside.read_bytes() == b"1" and (project.root / "a").is_symlink()


def test_what_a_shell_command_did_can_be_taken_back_once_recorded(project: Project):
    project.write("kept", b"before")
    project.write("gone", b"gone")
    os.chmod(project.root / "gone", 0o755)
    project.write("kept", b"after")
    (project.root / "gone").unlink()
    project.write("new", b"new")
    changes = [
        FileChange(str(project.root / "kept"), b"before", b"after"),
        FileChange(str(project.root / "gone"), b"gone", None, mode=0o755),
        FileChange(str(project.root / "new"), None, b"new"),
    ]
    project.journal.record(changes, ChangeOrigin("s1", "bash", "Bash", kind="command"))
    undo(project.journal)
    assert project.names == ["gone", "kept"] and project.read("kept") == b"before"
    assert (project.root / "gone").stat().st_mode & 0o777 == 0o755
    redo(project.journal)
    assert project.names == ["kept", "new"]


def test_history_is_newest_first_and_says_what_stands(project: Project):
    project.edit("1", a=b"1")
    project.edit("2", a=b"2")
    undo(project.journal)
    events = history(project.journal)
    assert [(entry.kind, entry.active) for entry in events] == [("undo", True), ("edit", False), ("edit", True)]
    lines = history_lines(events)
    assert lines[1].endswith("[taken back]") and "Edit" in lines[2] and str(project.root / "a") in lines[2]
    assert len({line.index(str(project.root)) for line in lines}) == 1  # in columns
    assert len(history(project.journal, limit=1)) == 1


def test_a_plan_reads_well(project: Project):
    project.edit("1", a=b"one\ntwo\n", b=b"b", c=b"\0\1")
    project.edit("2", a=b"one\n2\n3\n", b=None, c=b"\0", d=b"d")
    root = project.root
    assert plan_lines(plan_undo(project.journal)) == [
        "take back Edit (2):",
        f"  ~ {root}/a (+1 −2 lines)",
        f"  + {root}/b (comes back, 1 byte)",
        f"  ~ {root}/c (1 byte → 2 bytes)",
        f"  - {root}/d (goes, 1 byte)",
    ]
    assert plan_lines(undo(project.journal))[0] == "took back Edit (2):"
    project.write("a", b"else")
    assert plan_lines(plan_undo(project.journal))[1].startswith(f"  ! {root}/a was changed since")


def test_a_damaged_copy_is_refused_and_nothing_is_touched(project: Project):
    project.write("a", b"old, and long enough to be found")
    project.edit("1", a=b"new")
    damaged = bytes(20)
    project.journal.store.database.write(lambda db: db.execute("UPDATE contents SET data=?", (damaged,)), durable=True)
    with pytest.raises(CannotUndo, match="damaged"):
        undo(project.reopened())
    assert project.read("a") == b"new"


def record_command(
    project: Project, *changes: FileChange, call: str = "bash", uncovered: tuple[Uncovered, ...] = ()
) -> None:
    project.journal.record(changes, ChangeOrigin("s1", call, "Bash", kind="command", uncovered=uncovered))


def test_what_undo_cannot_restore_is_said_by_history_preview_and_undo(project: Project):
    project.write("a", b"after")
    path = str(project.root / "big")
    record_command(
        project,
        FileChange(str(project.root / "a"), b"before", b"after"),
        uncovered=(Uncovered(path, "larger than 5 MB"),),
    )
    assert history_lines(history(project.journal))[1].strip() == f"not covered: {path} (larger than 5 MB)"
    assert plan_lines(plan_undo(project.journal))[-1] == f"  ! will not be restored: {path} (larger than 5 MB)"
    plan = undo(project.journal)
    assert project.read("a") == b"before"
    assert plan_lines(plan)[-1] == f"  ! not restored: {path} (larger than 5 MB)"


def test_a_command_of_which_nothing_is_covered_is_in_the_history_and_does_not_stop_undo(project: Project):
    project.edit("1", a=b"1")
    record_command(project, uncovered=(Uncovered(str(project.root / "big"), "larger than 5 MB"),))
    assert [entry.call_id for entry in history(project.journal)] == ["bash", "1"]
    assert "nothing that undo covers" in history_lines(history(project.journal))[0]
    assert [each.path for each in undo(project.journal).uncovered] == [str(project.root / "big")]
    undo(project.journal)
    assert project.names == []


def test_a_command_that_nobody_watched_is_not_the_last_change_but_is_named(project: Project):
    project.edit("1", a=b"1")
    record_command(project, uncovered=(Uncovered(str(project.root), "not looked at", False),))
    plan = undo(project.journal)
    assert plan.changes[0].call_id == "1" and [each.reason for each in plan.uncovered] == ["not looked at"]
    with pytest.raises(CannotUndo, match=r"What Bash \(bash\) changed is not known"):
        undo(project.journal)
    redo(project.journal)
    plan = undo(project.journal, UndoSelector(everything=True))
    assert project.names == [] and [each.reason for each in plan.uncovered] == ["not looked at"]


def test_a_file_changed_without_a_copy_is_restored_from_before_an_earlier_edit(project: Project):
    project.write("a", b"0")
    project.edit("1", a=b"1")
    project.write("a", b"changed by a command")
    path = str(project.root / "a")
    record_command(project, uncovered=(Uncovered(path, "there was no time to copy it", True, path_state(path)),))
    plan = undo(project.journal, UndoSelector(everything=True))
    assert project.read("a") == b"0" and plan.uncovered == ()


def test_a_file_changed_without_a_copy_and_then_by_hand_is_refused(project: Project):
    project.write("a", b"0")
    project.edit("1", a=b"1")
    project.write("a", b"changed by a command")
    path = str(project.root / "a")
    record_command(project, uncovered=(Uncovered(path, "there was no time to copy it", True, path_state(path)),))
    project.write("a", b"changed by hand, later")
    with pytest.raises(CannotUndo, match="changed since"):
        undo(project.journal, UndoSelector(everything=True))


def test_a_plan_of_many_files_is_summarized(project: Project):
    for number in range(SHOWN_FILES + 5):
        project.change(str(number), {f"f{number:02}": b"x"})
    lines = plan_lines(undo(project.journal, UndoSelector(everything=True)))
    assert lines[0] == f"took back {SHOWN_FILES + 5} calls:" and len(lines) == SHOWN_FILES + 2
    assert lines[-1] == "  … 5 more files: 5 go"


def test_folders_that_a_command_made_go_with_its_files(project: Project):
    (project.root / "x" / "y").mkdir(parents=True)
    project.write("x/y/made", b"made")
    folders = (str(project.root / "x"), str(project.root / "x" / "y"))
    path = str(project.root / "x/y/made")
    record_command(project, FileChange(path, None, b"made", path, 0o644, folders))
    undo(project.journal)
    assert project.names == []
    redo(project.journal)
    assert project.read("x/y/made") == b"made"


def test_a_hard_link_that_a_command_made_is_removed_and_its_other_name_keeps_its_content(project: Project):
    project.write("kept", b"new")
    os.link(project.root / "kept", project.root / "made")
    os.link(project.root / "kept", project.root / "replaced")
    changes = [
        FileChange(str(project.root / "made"), None, b"new"),
        FileChange(str(project.root / "replaced"), b"old", b"new", in_place=False),
    ]
    project.journal.record(changes, ChangeOrigin("s1", "c1", "Bash", kind="command"))
    undo(project.journal)
    assert (project.read("kept"), project.read("made"), project.read("replaced")) == (b"new", None, b"old")


def test_a_file_with_two_names_that_a_command_wrote_to_stays_one_file(project: Project):
    project.write("one", b"new")
    os.link(project.root / "one", project.root / "two")
    changes = [FileChange(str(project.root / name), b"old", b"new", in_place=True) for name in ("one", "two")]
    project.journal.record(changes, ChangeOrigin("s1", "c1", "Bash", kind="command"))
    undo(project.journal)
    assert project.read("one") == project.read("two") == b"old"
    assert os.path.samefile(project.root / "one", project.root / "two")


def test_a_file_that_a_command_wrote_to_and_linked_over_another_is_restored_with_it(project: Project):
    project.write("one", b"new")
    os.link(project.root / "one", project.root / "two")
    changes = [
        FileChange(str(project.root / "one"), b"first", b"new", in_place=True),
        FileChange(str(project.root / "two"), b"second", b"new", in_place=False),
    ]
    project.journal.record(changes, ChangeOrigin("s1", "c1", "Bash", kind="command"))
    undo(project.journal)
    assert (project.read("one"), project.read("two")) == (b"first", b"second")
