"""Programs that we run ourselves come from outside all projects."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from wieldy import Toolbox
from wieldy.core.programs import add_roots, find_program, own_program


def plant(folder: Path, name: str, text: str = "exit 0") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return program


def test_a_project_and_relative_and_empty_folders_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    plant(project / "bin", "tool")
    wanted = plant(outside, "tool")
    monkeypatch.chdir(project)
    path = f"bin::{project}/bin:{outside}"
    assert find_program("tool", {"PATH": path}, [str(project)]) == str(wanted)
    (outside / "linked").symlink_to(project / "bin" / "tool")
    assert find_program("linked", {"PATH": path}, [str(project)]) is None


def test_one_that_was_found_stays_until_its_folder_becomes_a_project(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    wanted = plant(second, "tool-of-two")
    env = {"PATH": f"{first}:{second}"}
    assert own_program("tool-of-two", env) == str(wanted)
    planted = plant(first, "tool-of-two")
    assert own_program("tool-of-two", env) == str(wanted)
    add_roots(str(second))
    assert own_program("tool-of-two", env) == str(planted)
    add_roots(str(first))
    with pytest.raises(FileNotFoundError):
        own_program("tool-of-two", env)


@pytest.mark.asyncio
@pytest.mark.parametrize("entry", ["node_modules/.bin", "", ".", "{root}/node_modules/.bin"])
async def test_a_git_planted_in_the_project_does_not_run_for_a_git_that_is_judged_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    git = shutil.which("git")
    for folder in (tmp_path / "node_modules/.bin", tmp_path):
        plant(folder, "git", f'echo ran >> "{tmp_path}/pwned"; exec {git} "$@"')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{entry.format(root=tmp_path)}:/usr/bin:/bin")
    async with Toolbox(tmp_path, settings={}, mode="bypassPermissions") as box:
        for command in ("git status --short", "git add . && git log --oneline", "mkdir made"):
            await box.call("Bash", command=command)
    assert not (tmp_path / "pwned").exists()
