"""A change carried out while others write to the same file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from wieldy.core.errors import ToolFailure
from wieldy.files.apply_edit import Write, change_file, settle
from wieldy.files.editing.matching import Replacement
from wieldy.files.editing.read_state import ReadState
from wieldy.files.editing.replacements import plan_replacement
from wieldy.files.editing.revision import EditSettings, PrepareEdit, Revision, prepare_edit
from wieldy.files.writing.commit import WrittenFile, write_atomically
from wieldy.files.writing.errors import StaleFileError, WriteError

pytestmark = pytest.mark.asyncio
BASE = b"one\ntwo\nthree\nfour\nfive\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a"
    path.write_bytes(BASE)
    return path


@pytest.fixture
def state(file: Path) -> ReadState:
    known = ReadState()
    known.record_read(str(file), data=BASE, stat=file.stat(), first=1, last=5, complete=True)
    return known


@pytest.fixture
def prepare(file: Path, state: ReadState) -> PrepareEdit:
    edit = Replacement("one", "ONE")
    return lambda at_once: prepare_edit(
        str(file), partial(plan_replacement, edit), state, EditSettings(), at_once=at_once
    )


def after(interference: Callable[[], object], times: int = 1) -> Write:
    """A writer that finds the file moved, so many times, because of what happens just before."""
    left = [times]

    async def write(revision: Revision) -> WrittenFile:
        if left[0]:
            left[0] -= 1
            interference()
            raise StaleFileError(revision.path, "was changed by someone else meanwhile")
        return write_atomically(revision.path, revision.after)

    return write


async def test_a_change_between_preparing_and_writing_is_merged(
    file: Path, state: ReadState, prepare: PrepareEdit
) -> None:
    result = await change_file(prepare, after(lambda: file.write_bytes(BASE + b"six\n")), state)
    assert file.read_bytes() == b"ONE\ntwo\nthree\nfour\nfive\nsix\n"
    assert isinstance(result.content, str) and "merged" in result.content


async def test_a_file_that_never_rests_is_given_up(file: Path, state: ReadState, prepare: PrepareEdit) -> None:
    with pytest.raises(ToolFailure, match="changed by someone else meanwhile"):
        await change_file(prepare, after(lambda: None, times=99), state)
    assert file.read_bytes() == BASE


async def test_a_refused_write_is_told_in_its_own_words(state: ReadState, prepare: PrepareEdit) -> None:
    async def refuse(revision: Revision) -> WrittenFile:
        raise WriteError(revision.path, "the disk is full")

    with pytest.raises(ToolFailure, match="the disk is full"):
        await change_file(prepare, refuse, state)


async def test_a_change_right_after_ours_is_noticed(file: Path, state: ReadState, prepare: PrepareEdit) -> None:
    async def write_and_format(revision: Revision) -> WrittenFile:
        written = write_atomically(revision.path, revision.after)
        file.write_bytes(revision.after.upper())
        return written

    result = await change_file(prepare, write_and_format, state)
    assert isinstance(result.content, str) and "changed again right after it was written" in result.content
    assert state.reading(str(file)) is None


LONG = bytes(range(256)) * 10_000  # more than is looked at in one go


@pytest.mark.parametrize("content", [b"", b"x", LONG, LONG[: 1 << 20], LONG[: (1 << 20) - 1]])
@pytest.mark.parametrize("changed", [None, bytes.swapcase, lambda data: data + b"y", lambda data: data[:-1]])
async def test_any_change_right_after_ours_is_noticed(
    file: Path, content: bytes, changed: Callable[[bytes], bytes] | None
) -> None:
    written, known = write_atomically(str(file), content), ReadState()
    found = content if changed is None else changed(content)
    file.write_bytes(found)
    notes = settle(str(file), content, written, known, True)
    assert bool(notes) == (found != content) == (known.reading(str(file)) is None)


async def test_what_was_written_is_known(file: Path, state: ReadState, prepare: PrepareEdit) -> None:
    await change_file(prepare, after(lambda: None, times=0), state)
    assert state.is_current(str(file), BASE.replace(b"one", b"ONE"), file.stat())
