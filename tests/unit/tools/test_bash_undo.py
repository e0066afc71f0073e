"""What a command did to the project can be taken back."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from contextlib import asynccontextmanager

import pytest

from wieldy import Toolbox
from wieldy.core.call import PlannedCall
from wieldy.core.decision import Decision, Opinion, Reason


class Allowing:
    """These tests are about undo; who may run what is tested elsewhere."""

    def decide(self, plan: PlannedCall, opinions: Sequence[Opinion]) -> Decision:
        return Decision("allow", (Reason("default", "allow", "a test"),))


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "kept").write_text("kept\n")
    (folder / "edited").write_text("before\n")
    (folder / "sub").mkdir()
    (folder / "sub" / "removed").write_text("precious\n")
    return folder


@pytest.fixture
def open_box(project, tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))

    @asynccontextmanager
    async def make(**settings):
        async with Toolbox(project, judge=Allowing(), settings=settings) as box:
            yield box

    return make


def contents(folder) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }


UNKNOWN = "python3 - <<'E'\nopen('edited','w').write('after\\n'); open('made','w').write('new\\n')\nE\nrm -r sub"
KNOWN = "echo after > edited; echo new > made; rm sub/removed"


@pytest.mark.asyncio
@pytest.mark.parametrize("command", [UNKNOWN, KNOWN])
async def test_changes_of_a_command_are_undone_and_redone(open_box, project, command):
    before = contents(project)
    async with open_box() as box:
        result = await box.call("Bash", command=command)
        assert not result.is_error, result.text
        assert sorted(result.data["changedFiles"]) == [
            f"{project}/{name}" for name in ("edited", "made", "sub/removed")
        ]
        after = contents(project)
        assert after == {"kept": "kept\n", "edited": "after\n", "made": "new\n"}
        await box.undo()
        assert contents(project) == before
        await box.redo()
        assert contents(project) == after


@pytest.mark.asyncio
async def test_what_a_command_did_before_it_was_ended_is_undone_too(open_box, project):
    before = contents(project)
    async with open_box() as box:
        result = await box.call("Bash", command="python3 -c \"open('edited','w').write('x')\"; sleep 300", timeout=700)
        assert result.is_error and (project / "edited").read_text() == "x"
        await box.undo()
        assert contents(project) == before


@pytest.mark.asyncio
async def test_edits_of_other_hands_are_not_taken_for_the_commands(open_box, project):
    async with open_box() as box:
        await box.call("Bash", command="python3 -c \"open('made','w').write('1')\"")
        (project / "kept").write_text("by hand\n")
        second = await box.call("Bash", command="python3 -c \"open('made','w').write('2')\"")
        assert second.data["changedFiles"] == [f"{project}/made"]
        await box.undo()
        assert ((project / "kept").read_text(), (project / "made").read_text()) == ("by hand\n", "1")


@pytest.mark.asyncio
async def test_reading_takes_no_snapshot(open_box):
    async with open_box() as box:
        assert "changedFiles" not in (await box.call("Bash", command="cat kept")).data


@pytest.mark.asyncio
async def test_ignored_files_and_git_itself_are_left_alone(open_box, project):
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    (project / ".gitignore").write_text("build\n")
    async with open_box() as box:
        command = "python3 -c \"import os; os.mkdir('build'); open('build/out','w').write('x')\"; git add -A; true"
        assert (await box.call("Bash", command=command)).data["changedFiles"] == []


@pytest.mark.asyncio
async def test_undo_can_be_switched_off(open_box):
    async with open_box(journal={"enabled": False}) as box:
        assert "changedFiles" not in (await box.call("Bash", command="echo x > made")).data
