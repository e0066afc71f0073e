"""Ignore files that lead elsewhere: nothing hangs, nothing takes all memory, nothing of the target is shown."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import psutil
import pytest

from wieldy import Toolbox
from wieldy.faces.terminal.input import FileIndex
from wieldy.files.search.ripgrep import find_ripgrep

SECRET = "[broken-secret-token\n{also\n"
KINDS = (".ignore", ".gitignore", ".rgignore")
CALLS = {
    "Grep": {"pattern": "needle", "output_mode": "files_with_matches"},
    "Glob": {"pattern": "**/*.txt"},
    "LS": {"path": "."},
    "FileSearch": {"pattern": "needle"},
}


def plant(place: Path, target: str, outside: Path) -> None:
    match target:
        case "secret":
            (outside / "secret").write_text(SECRET)
            place.symlink_to(outside / "secret")
        case "device":
            place.symlink_to("/dev/zero")
        case "pipe":
            os.mkfifo(place)
        case "linked pipe":
            os.mkfifo(outside / "pipe")
            place.symlink_to(outside / "pipe")
        case "flood":
            with place.open("wb") as file:
                file.truncate(1 << 30)


@pytest.mark.asyncio
@pytest.mark.timeout(60)
@pytest.mark.parametrize("target", ["secret", "device", "pipe", "linked pipe", "flood"])
@pytest.mark.parametrize("depth", ["", "sub"])
@pytest.mark.parametrize("tool", sorted(CALLS))
async def test_every_tool_that_lists_or_searches_ends_and_shows_nothing_of_the_target(
    tmp_path, monkeypatch, target, depth, tool
):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    project, outside = tmp_path / "project", tmp_path / "outside"
    (project / "sub").mkdir(parents=True)
    outside.mkdir()
    (project / "a.txt").write_text("needle")
    plant(project / depth / KINDS[len(target) % 3], target, outside)
    settings = {"tools": {tool: {"timeout": 4}}}
    async with Toolbox(project, settings=settings, mode="bypassPermissions") as box:
        result = await box.call(tool, **CALLS[tool])
    assert "secret-token" not in result.text
    if target == "secret" or tool == "LS":
        assert "a.txt" in result.text
    left = [process for process in psutil.process_iter(["cwd"]) if (process.info["cwd"] or "").startswith(str(project))]
    assert psutil.wait_procs(left, timeout=10)[1] == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize("target", ["secret", "device", "pipe", "linked pipe", "flood"])
def test_completion_of_file_names_ends(tmp_path, target):
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "a.txt").touch()
    plant(tmp_path / "project" / ".ignore", target, tmp_path)
    assert "secret-token" not in str(FileIndex(str(tmp_path / "project")).search("a"))


@pytest.mark.asyncio
@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", [*KINDS, ".git/info/exclude", "sub/.ignore"])
async def test_rg_in_a_command_shows_nothing_of_the_target(tmp_path, monkeypatch, kind):
    config = tmp_path / "ripgreprc"
    config.write_text("--debug\n")
    (tmp_path / "bin").mkdir()
    shutil.copy(os.path.realpath(find_ripgrep().path), tmp_path / "bin" / "rg")
    monkeypatch.setenv("WIELDY_HOME", f"{tmp_path}/home")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(config))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    project, outside = tmp_path / "project", tmp_path / "outside"
    (project / "sub").mkdir(parents=True)
    (project / ".git" / "info").mkdir(parents=True)
    (project / ".git" / "HEAD").touch()
    outside.mkdir()
    (project / "sub" / "a.txt").write_text("needle")
    plant(project / kind, "secret", outside)
    is_below = kind.startswith("sub/")
    commands = (
        "rg needle",
        "rg needle .",
        "rg --files",
        "rg needle sub",
        "cd sub && rg needle",
    )
    async with Toolbox(project, settings={}) as box:
        for command in commands:
            result = await box.call("Bash", command=command)
            is_judged = not is_below or "sub" in command
            assert ("is outside the allowed folders, and rg" in result.text) == is_judged, (command, result.text)
            assert is_judged or "needle" in result.text or "a.txt" in result.text, (command, result.text)
            assert "token" not in result.text and "also" not in result.text, (command, result.text)
        for command in ("rg --debug needle", "rg --no-config needle", "RIPGREP_CONFIG_PATH= rg needle"):
            assert "Permission denied" in (await box.call("Bash", command=command)).text, command
    deny = {"permissions": {"deny": [f"Read(/{outside}/**)"]}}
    async with Toolbox(project, settings=deny, mode="bypassPermissions") as box:
        for command in ("rg needle sub", "cd sub && rg needle"):
            assert (await box.call("Bash", command=command)).is_error
