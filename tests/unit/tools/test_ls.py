from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wieldy import Toolbox
from wieldy.core.outcome import ToolResult

pytestmark = pytest.mark.asyncio


def put(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


async def call(root: Path, settings: dict[str, Any] | None = None, /, **args: Any) -> ToolResult:
    async with Toolbox(root=root, settings=settings or {}) as box:
        return await box.call("LS", args)


async def test_a_folder_is_a_tree_with_what_was_left_out_counted(tmp_path):
    put(tmp_path, "src/a.py", "README.md", ".env", "x.log")
    (tmp_path / ".gitignore").write_text("*.log\n")
    result = await call(tmp_path)
    assert result.text.splitlines() == [
        f"{tmp_path}/",
        "  README.md",
        "  src/",
        "    a.py",
        "[2 hidden entries not shown]",
        "[1 entry left out by ignore files]",
    ]
    assert result.data == {
        "path": str(tmp_path),
        "entries": ["README.md", "src/", "src/a.py"],
        "numEntries": 3,
        "truncated": False,
        "hidden": 2,
        "ignored": 1,
    }


async def test_a_thousand_entries_are_the_most(tmp_path):
    put(tmp_path, *(f"many/{n:04}" for n in range(1200)), "last/one")
    result = await call(tmp_path)
    assert result.data["numEntries"] == 1000 and result.data["truncated"]
    assert "last/one" in result.data["entries"]
    assert "… 203 more" in result.text
    assert "[Only 1000 entries are shown." in result.text


async def test_globs_leave_out(tmp_path):
    put(tmp_path, "a.py", "a.pyc", "cache/x")
    result = await call(tmp_path, ignore=["*.pyc", "cache"])
    assert result.data["entries"] == ["a.py"]
    assert (await call(tmp_path, ignore=["[x"])).is_error


async def test_an_empty_folder_says_so(tmp_path):
    assert (await call(tmp_path)).text == f"{tmp_path}/\n[The folder is empty]"
    put(tmp_path, ".env")
    assert (await call(tmp_path)).text == f"{tmp_path}/\n[Nothing to show]\n[1 hidden entry not shown]"


async def test_what_is_no_folder_is_an_error_that_helps(tmp_path):
    put(tmp_path, "source/a.py")
    missing = await call(tmp_path, path="sorce")
    assert missing.is_error and "Did you mean source?" in missing.text
    file = await call(tmp_path, path="source/a.py")
    assert file.is_error and "Use Read" in file.text
    below_a_file = await call(tmp_path, path="source/a.py/b")
    assert below_a_file.is_error and "cannot exist" in below_a_file.text


async def test_a_folder_named_like_home_can_be_told_from_it(tmp_path):
    put(tmp_path, "~/x")
    assert "  ./~/" in (await call(tmp_path)).text.splitlines()
    assert (await call(tmp_path, path="./~")).data["entries"] == ["x"]


async def test_denied_files_are_not_listed(tmp_path):
    put(tmp_path, "secrets.txt", "a.py")
    result = await call(tmp_path, {"permissions": {"deny": ["Read(secrets.txt)"]}})
    assert result.data["entries"] == ["a.py"] and "secret" not in result.text


async def test_the_setting_brings_ignored_files_back(tmp_path):
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "a.log").write_text("x")
    result = await call(tmp_path, {"respectGitignore": False})
    assert result.data["entries"] == ["a.log"]
