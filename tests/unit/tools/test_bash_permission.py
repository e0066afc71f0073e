"""Bash under the real policy: what only reads runs unasked and side by side, the rest is asked about."""

from __future__ import annotations

import asyncio
import os
import subprocess

import pytest

from wieldy import Toolbox
from wieldy.core.effects import Reads, Runs
from wieldy.tools.bash import bash


@pytest.fixture
def box(tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "file").write_text("content\n")
    return Toolbox(tmp_path / "project", settings={})


@pytest.mark.asyncio
async def test_a_command_that_only_reads_runs_without_a_question(box):
    async with box:
        result = await box.call("Bash", command="cat file | head -1 && ls")
        assert (result.text, result.is_error) == ("content\nfile", False)


@pytest.mark.asyncio
async def test_a_command_that_writes_does_not_run_where_nobody_answers(box, tmp_path):
    async with box:
        result = await box.call("Bash", command="rm file")
        assert result.is_error
        assert (tmp_path / "project" / "file").exists()


def test_reading_declares_what_it_reads_and_anything_else_is_opaque(box):
    root = box.workspace.root
    reading = bash.effects({"command": "cat file"}, box.workspace)
    assert Reads(f"{root}/file") in reading
    assert Runs("cat file", contained=True) in reading
    assert not bash.needs_permission({"command": "cat file"}, reading)
    both = bash.effects({"command": "cat file; cat file | head"}, box.workspace)
    assert both == (Runs("cat file; cat file | head", contained=True), Reads(f"{root}/file"))
    writing = bash.effects({"command": "make"}, box.workspace)
    assert writing == (Runs("make"),)
    assert bash.needs_permission({"command": "make"}, writing)


@pytest.mark.asyncio
async def test_commands_that_only_read_run_side_by_side(box):
    async with box:
        steps: list[str] = []
        box.subscribe(lambda event: steps.append(event.kind))
        await box.call_many([("Bash", {"command": f"sleep 0.4; head -{n} file"}) for n in (1, 2)])
        await asyncio.sleep(0.05)
    # Had the second waited for the first, its start would have come after the first one's end.
    assert [step for step in steps if step in ("tool.started", "tool.succeeded")][:2] == ["tool.started"] * 2


@pytest.mark.asyncio
async def test_reading_a_repository_runs_no_program_it_names(box, tmp_path):
    root = tmp_path / "project"
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\necho sprung > {tmp_path}/sprung\n")
    trap.chmod(0o755)
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "post-index-change").write_text(trap.read_text())
    (tmp_path / "hooks" / "post-index-change").chmod(0o755)
    git = f"git -C {root} -c user.name=a -c user.email=a@b"
    setting = f"git -C {root} config core.fsmonitor {trap}; git -C {root} config core.hooksPath {tmp_path}/hooks"
    commands = (
        f"git init -q {root}; {git} add file; {git} commit -qm one; {setting}; git -C {root} config core.pager {trap}"
    )
    subprocess.run(commands, shell=True, check=True)
    (tmp_path / "sprung").unlink(missing_ok=True)
    (root / "file").write_text("changed\n")
    async with box:
        for command in ("git status --short", "git diff", "git log --oneline"):
            result = await box.call("Bash", command=command)
            assert not result.is_error, result.text
        assert not (tmp_path / "sprung").exists()


@pytest.mark.asyncio
async def test_no_file_of_the_project_takes_the_place_of_a_program_that_only_reads(tmp_path, monkeypatch):
    root = tmp_path / "project"
    for folder in ("bin", "sub"):
        (root / folder).mkdir(parents=True)
    (root / "sub" / "cat").write_text("#!/bin/sh\necho from the project\n")
    (root / "sub" / "cat").chmod(0o755)
    (root / "sub" / "file").write_text("content\n")
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f".:{root}/bin:{os.environ['PATH']}")
    async with Toolbox(root, settings={}, mode="acceptEdits") as box:
        assert (await box.call("Bash", command="cd sub && cat file")).text == "content"
        written = await box.call("Write", file_path=str(root / "bin" / "cat"), content="#!/bin/sh\n")
        assert written.is_error
        assert "PATH" in written.text
        copied = await box.call("Bash", command=f"cp {root}/sub/cat {root}/bin/cat")
        assert copied.is_error
        assert not (root / "bin" / "cat").exists()
        assert not (await box.call("Write", file_path=str(root / "other" / "cat"), content="#!/bin/sh\n")).is_error
