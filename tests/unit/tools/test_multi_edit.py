from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from wieldy import Toolbox
from wieldy.core.outcome import ToolResult

pytestmark = pytest.mark.asyncio
BASE = b"one\r\ntwo\nthree\n\xff\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    folder = tmp_path / "root"
    folder.mkdir()
    (folder / "a").write_bytes(BASE)
    return folder


@pytest_asyncio.fixture
async def box(root: Path) -> AsyncIterator[Toolbox]:
    async with Toolbox(root, settings={}, mode="bypassPermissions") as toolbox:
        await toolbox.call("Read", {"file_path": "a"})
        yield toolbox


async def multi_edit(box: Toolbox, *pairs: tuple[str, str]) -> ToolResult:
    edits = [{"old_string": old, "new_string": new} for old, new in pairs]
    return await box.call("MultiEdit", {"file_path": "a", "edits": edits})


async def test_all_edits_are_one_change_with_one_diff(root: Path, box: Toolbox) -> None:
    result = await multi_edit(box, ("three", "3"), ("one", "1\nand"))
    assert not result.is_error and "2 replacements, +3 -2 lines" in result.text
    assert (root / "a").read_bytes() == b"1\r\nand\r\ntwo\n3\n\xff\n"
    await box.undo()
    assert (root / "a").read_bytes() == BASE


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([("one", "1"), ("zebra", "x")], "Edit 2 of 2: old_string was not found"),
        ([("one", "1"), ("", "x")], "Edit 2 of 2: old_string is empty"),
        ([("one", "1"), ("two", "two")], "Edit 2 of 2: old_string and new_string are the same"),
        ([("one", "1"), ("one", "2")], "Edits 1 and 2 contradict"),
        ([("one", "1 two"), ("two", "x")], "Edit 2 of 2: old_string occurs 2 times"),
        ([("one\ntwo", "1\n2"), ("two\nthree", "x")], "Edit 2 contradicts edit 1"),
        ([("two", "t"), ("three", "...rest of file...")], "Edit 2 of 2: Line 1 of new_string is a placeholder"),
        ([], "at least one"),
    ],
)
async def test_a_batch_with_one_bad_edit_changes_nothing(
    root: Path, box: Toolbox, pairs: list[tuple[str, str]], words: str
) -> None:
    result = await multi_edit(box, *pairs)
    assert result.is_error and words in result.text
    assert (root / "a").read_bytes() == BASE
    if pairs:
        assert "othing was changed" in result.text
        assert "othing was changed" in result.person_text


async def test_each_edit_may_say_how_often(root: Path, box: Toolbox) -> None:
    edits = [
        {"old_string": "o", "new_string": "0", "replace_all": True},
        {"old_string": "e\n", "new_string": "E\n", "expected_replacements": 2},
    ]
    result = await box.call("MultiEdit", {"file_path": "a", "edits": edits})
    assert not result.is_error, result.text
    assert (root / "a").read_bytes() == b"0nE\r\ntw0\nthreE\n\xff\n"


async def test_a_foreign_change_is_merged_with_the_whole_batch(root: Path, box: Toolbox) -> None:
    (root / "a").write_bytes(BASE + b"four\n")
    result = await multi_edit(box, ("one", "1"))
    assert not result.is_error and result.data["merged"]
    assert (root / "a").read_bytes() == b"1\r\ntwo\nthree\n\xff\nfour\n"
