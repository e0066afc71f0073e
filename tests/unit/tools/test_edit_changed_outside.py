"""Edits of files that others changed since they were read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from wieldy import Toolbox
from wieldy.core.outcome import ToolResult

pytestmark = pytest.mark.asyncio
BASE = "one\ntwo\nthree\nfour\nfive\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    folder = tmp_path / "root"
    folder.mkdir()
    (folder / "a").write_text(BASE)
    return folder


@pytest_asyncio.fixture
async def box(root: Path) -> AsyncIterator[Toolbox]:
    async with Toolbox(root, settings={}, mode="bypassPermissions") as toolbox:
        await toolbox.call("Read", {"file_path": "a"})
        yield toolbox


async def edit(box: Toolbox, old: str, new: str) -> ToolResult:
    return await box.call("Edit", {"file_path": "a", "old_string": old, "new_string": new})


async def test_a_change_elsewhere_is_merged_and_shown(root: Path, box: Toolbox) -> None:
    (root / "a").write_text(BASE + "six\n")
    result = await edit(box, "one", "ONE")
    assert not result.is_error and result.data["merged"]
    assert (root / "a").read_text() == "ONE\ntwo\nthree\nfour\nfive\nsix\n"
    assert "was changed on disk since you read it; this edit was merged" in result.text and "+six" in result.text


async def test_after_a_merge_the_next_edit_is_plain(root: Path, box: Toolbox) -> None:
    (root / "a").write_text(BASE + "six\n")
    await edit(box, "one", "ONE")
    result = await edit(box, "six", "SIX")
    assert not result.is_error and not result.data["merged"]


async def test_a_conflict_writes_nothing_and_names_three_ways_on(root: Path, box: Toolbox) -> None:
    (root / "a").write_text(BASE.replace("two", "deux"))
    result = await edit(box, "two", "zwei")
    assert result.is_error
    assert "<<<<<<< your edit\nzwei\n=======\ndeux\n>>>>>>> on disk" in result.text
    for way in ("overwrite:", "keep:", "re-read:"):
        assert way in result.text
    assert (root / "a").read_text() == BASE.replace("two", "deux")


async def test_a_formatter_after_our_own_edit_is_named_as_such(root: Path, box: Toolbox) -> None:
    await edit(box, "two", "2")
    (root / "a").write_text((root / "a").read_text().replace("2", "2 "))
    result = await edit(box, "2", "zwei")
    assert result.is_error and "after your last change, perhaps by a formatter" in result.text


async def boxed(root: Path, on_change: str, theirs: str, **fields: Any) -> ToolResult:
    settings = {"edit": {"onExternalChange": on_change}}
    async with Toolbox(root, settings=settings, mode="bypassPermissions") as box:
        await box.call("Read", {"file_path": "a"})
        (root / "a").write_text(theirs)
        return await box.call("Edit", {"file_path": "a", **fields})


async def test_the_setting_error_refuses_any_change(root: Path) -> None:
    result = await boxed(root, "error", BASE + "six\n", old_string="one", new_string="ONE")
    assert result.is_error and "Read it again" in result.text
    assert (root / "a").read_text() == BASE + "six\n"


async def test_the_setting_markers_writes_conflicts_into_the_file(root: Path) -> None:
    result = await boxed(root, "markers", BASE.replace("two", "deux"), old_string="two", new_string="zwei")
    assert not result.is_error and "conflict markers were written" in result.text
    assert "<<<<<<< your edit\nzwei\n=======\ndeux\n>>>>>>> on disk" in (root / "a").read_text()


async def test_a_file_that_vanished_is_missing(root: Path, box: Toolbox) -> None:
    (root / "a").unlink()
    result = await edit(box, "two", "2")
    assert result.is_error and "does not exist" in result.text


async def test_a_miss_in_a_changed_file_says_that_it_changed(root: Path, box: Toolbox) -> None:
    (root / "a").write_text(BASE.replace("two", "brand new"))
    result = await edit(box, "brand new", "x")
    assert result.is_error and "also changed on disk" in result.text
