"""The report of a change."""

from __future__ import annotations

from pathlib import Path

import pytest

from wieldy.files.editing.document import Splice, apply_splices
from wieldy.files.editing.revision import Revision, edit_output
from wieldy.files.writing.writers import LocalWriter

BASE = b"one\ntwo\nthree\n"


def revision_of(path: Path, *splices: Splice) -> Revision:
    target = LocalWriter().read_target(str(path))
    return Revision(
        target, apply_splices(target.content or b"", splices), splices, len(splices), ("a note of the edit",)
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a"
    path.write_bytes(BASE)
    return path


def test_what_came_up_while_writing_stands_between_the_headline_and_the_diff(file: Path):
    output = edit_output(revision_of(file, Splice(0, 3, b"ONE")), ("written in place",))
    lines = str(output.content).split("\n")
    assert lines[0] == f"Changed {file}: 1 replacement, +1 -1 lines."
    assert lines[1:3] == ["a note of the edit", "written in place"]
    assert lines[3] == f"--- {file}" and "+ONE" in lines
