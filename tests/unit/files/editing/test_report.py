"""What is said of a change: the same whether it was begun before the write or made after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from wieldy.files.editing.report import QUICKLY_COMPARED, Draft, is_quick, make_report
from wieldy.files.editing.revision import SMALL_FILE, Revision
from wieldy.files.editing.splicing import Splice, apply_splices
from wieldy.files.writing.target import read_target

BASE = b"one\ntwo\nthree\n"


def revision_of(path: Path, *splices: Splice) -> Revision:
    target = read_target(str(path))
    return Revision(
        target, apply_splices(target.content or b"", splices), splices, len(splices), ("a note of the edit",)
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a"
    path.write_bytes(BASE)
    return path


def test_what_came_up_while_writing_stands_between_the_headline_and_the_diff(file: Path):
    output = make_report(revision_of(file, Splice(0, 3, b"ONE"))).with_notes(("written in place",))
    lines = str(output.content).split("\n")
    assert lines[0] == f"Changed {file}: 1 replacement, +1 -1 lines."
    assert lines[1:3] == ["a note of the edit", "written in place"]
    assert lines[3] == f"--- {file}" and "+ONE" in lines


def test_a_report_that_was_begun_is_the_one_that_is_given(file: Path):
    revision = revision_of(file, Splice(0, 3, b"ONE"))
    draft = Draft()
    draft.about(revision)
    draft.begin()
    begun = draft.finished(revision)
    assert begun is draft.finished(revision) and begun == make_report(revision)


def test_a_report_begun_of_another_revision_is_not_used(file: Path):
    draft = Draft()
    draft.about(revision_of(file, Splice(0, 3, b"ONE")))
    draft.begin()
    other = revision_of(file, Splice(4, 7, b"TWO"))
    assert draft.finished(other) == make_report(other)


def test_what_takes_long_is_not_begun(file: Path):
    draft = Draft()
    revision = revision_of(file, Splice(0, 3, b"x" * QUICKLY_COMPARED))
    draft.about(revision)
    draft.begin()
    assert not is_quick(revision) and draft.finished(revision) is not draft.finished(revision)
    assert not is_quick(revision_of(file, Splice(0, 0, b"x" * SMALL_FILE)))
