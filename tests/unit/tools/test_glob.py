from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from wieldy import Toolbox
from wieldy.core.effects import Reads
from wieldy.core.outcome import ToolResult
from wieldy.engine.workspace_services import open_workspace
from wieldy.tools.glob import glob


def put(root: Path, *names: str) -> None:
    for when, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
        os.utime(root / name, (when, when))


async def call(root: Path, settings: dict[str, Any] | None = None, /, **args: Any) -> ToolResult:
    async with Toolbox(root=root, settings=settings or {}) as box:
        return await box.call("Glob", args)


@pytest.mark.asyncio
async def test_files_come_newest_first_with_their_data(tmp_path):
    put(tmp_path, "a.py", "src/b.py", "c.txt")
    result = await call(tmp_path, pattern="**/*.py")
    assert result.text == "src/b.py\na.py"
    assert result.data["filenames"] == [str(tmp_path / "src/b.py"), str(tmp_path / "a.py")]
    assert (result.data["numFiles"], result.data["truncated"]) == (2, False)
    assert isinstance(result.data["durationMs"], int)


@pytest.mark.asyncio
async def test_beyond_a_hundred_the_total_is_said(tmp_path):
    put(tmp_path, *(f"{n:03}.py" for n in range(130)))
    result = await call(tmp_path, pattern="*.py")
    assert len(result.data["filenames"]) == 100 and result.data["truncated"]
    assert "[100 newest of 130 files." in result.text
    assert len((await call(tmp_path, pattern="*.py", limit=0)).data["filenames"]) == 130


@pytest.mark.asyncio
async def test_nothing_found_is_no_error(tmp_path):
    result = await call(tmp_path, pattern="*.nope")
    assert (result.text, result.is_error) == ("No files found", False)


@pytest.mark.asyncio
async def test_a_missing_folder_is_an_error_that_helps(tmp_path):
    put(tmp_path, "source/a.py")
    result = await call(tmp_path, pattern="*.py", path="sorce")
    assert result.is_error and "Did you mean source?" in result.text
    result = await call(tmp_path, pattern="*.py", path="source/a.py")
    assert result.is_error and "Use Read" in result.text


@pytest.mark.asyncio
async def test_a_bad_pattern_says_why(tmp_path):
    result = await call(tmp_path, pattern="*.{py")
    assert result.is_error and "without its" in result.text


@pytest.mark.asyncio
async def test_denied_files_are_not_listed(tmp_path):
    put(tmp_path, ".env", "a.py", "secrets/key")
    settings = {"permissions": {"deny": ["Read(.env)", "Read(secrets/**)"]}}
    result = await call(tmp_path, settings, pattern="**/*")
    assert result.text == "a.py" and result.data["numFiles"] == 1


def test_a_pattern_that_leads_elsewhere_reads_there(tmp_path):
    workspace = open_workspace(tmp_path, session_dir=tmp_path)
    root = workspace.root
    assert glob.effects({"pattern": "*.py"}, workspace) == (Reads(root),)
    assert glob.effects({"pattern": "src/*.py"}, workspace) == (Reads(f"{root}/src"),)
    assert glob.effects({"pattern": "/etc/**/*.conf"}, workspace) == (Reads("/etc"),)
    assert glob.effects({"pattern": "../*.py", "path": f"{root}/x"}, workspace) == (Reads(root),)


@pytest.mark.asyncio
async def test_a_pattern_outside_the_project_needs_permission(tmp_path):
    (tmp_path / "in").mkdir()
    put(tmp_path, "out/secret.txt")
    result = await call(tmp_path / "in", pattern=f"{tmp_path}/out/*.txt")
    assert result.is_error and "secret" not in result.text


@pytest.mark.asyncio
async def test_the_setting_brings_ignored_files_back(tmp_path):
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "a.log").write_text("x")
    result = await call(tmp_path, {"respectGitignore": False}, pattern="*.log")
    assert result.data["numFiles"] == 1
