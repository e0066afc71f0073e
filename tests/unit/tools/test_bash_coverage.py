"""What undo does not cover of a command is said: in the result, to the person, in the history and by undo."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager

import pytest
from tests.unit.tools.test_bash_undo import Allowing

from wieldy import Toolbox
from wieldy.core.events import Notice
from wieldy.files.journal.command_snapshots import CommandSnapshot
from wieldy.files.journal.snapshot_contents import SnapshotLimits
from wieldy.files.journal.undo import history_lines

BIG = SnapshotLimits().file_bytes + 1


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "small").write_text("small\n")
    with open(folder / "big", "wb") as file:
        os.truncate(file.fileno(), BIG)
    return folder


@pytest.fixture
def open_box(project, tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))

    @asynccontextmanager
    async def make(**bash):
        settings = {"bash": {"snapshotSeconds": 60, **bash}}
        async with Toolbox(project, judge=Allowing(), settings=settings) as box:
            yield box

    return make


def script(code: str) -> str:
    return f'python3 -c "{code}"'


@pytest.mark.asyncio
async def test_a_changed_file_without_a_copy_is_named_everywhere(open_box, project):
    notices = []
    async with open_box() as box:
        box.subscribe(lambda event: notices.append(event.text) if isinstance(event, Notice) else None)
        result = await box.call("Bash", command=script("open('big','a').write('x'); open('small','w')"))
        assert result.text == "[undo does not cover: big (larger than 5 MB)]"
        assert result.data["uncovered"] == [
            {"path": f"{project}/big", "reason": "larger than 5 MB", "changed": True},
        ]
        [entry] = await box.workspace.services.journal.history()
        assert "not covered" in history_lines([entry])[1] and "big" in history_lines([entry])[1]
        plan = await box.undo()
        assert [each.path for each in plan.uncovered] == [f"{project}/big"]
    assert (project / "small").read_text() == "small\n"
    assert notices == ["undo does not cover everything: big (larger than 5 MB)"]


@pytest.mark.asyncio
async def test_nothing_is_said_where_everything_is_covered(open_box):
    async with open_box() as box:
        result = await box.call("Bash", command=script("open('small','w')"))
        assert "undo" not in result.text and result.data["uncovered"] == []


@pytest.mark.asyncio
async def test_no_time_at_all_is_said_each_time(open_box, project):
    async with open_box(snapshotSeconds=1e-9) as box:
        for _ in range(2):
            result = await box.call("Bash", command=script("open('small','a').write('x')"))
            assert "undo does not cover" in result.text and "bash.snapshotSeconds" in result.text
        assert len(await box.workspace.services.journal.history()) == 2


@pytest.mark.asyncio
async def test_what_goes_on_in_the_background_is_not_covered(open_box, project):
    async with open_box() as box:
        result = await box.call("Bash", command=script("import time; time.sleep(60)"), run_in_background=True)
        assert "undo does not cover what it changes" in result.text
        left = await box.call("Bash", command=f"{script('import time; time.sleep(60)')} & {script('open(1)')}; true")
        assert "background" in str(left.data["uncovered"])
        entries = await box.workspace.services.journal.history()
        assert [entry.uncovered[0].changed for entry in entries] == [False, False]


@pytest.mark.asyncio
async def test_a_command_whose_writes_are_known_is_covered_whatever_the_size_and_place(open_box, project, tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("mine\n")
    async with open_box(snapshotSeconds=1e-9) as box:
        result = await box.call("Bash", command=f"echo theirs > {outside}; rm big")
        assert result.data["uncovered"] == [] and len(result.data["changedFiles"]) == 2
        await box.undo()
    assert outside.read_text() == "mine\n" and (project / "big").stat().st_size == BIG


@pytest.mark.asyncio
async def test_our_own_state_inside_the_project_is_not_taken_for_a_change(project, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(project / "state"))
    async with Toolbox(project, judge=Allowing(), settings={"bash": {"snapshotSeconds": 60}}) as box:
        for _ in range(2):
            result = await box.call("Bash", command=script("open('small','a').write('x')"))
            assert result.data["changedFiles"] == [f"{project}/small"] and result.data["uncovered"] == []


@pytest.mark.asyncio
async def test_commands_at_the_same_time_are_both_recorded(open_box, project):
    async with open_box() as box:
        commands = [script(f"import time; time.sleep(0.2); open('made{n}','w').write('x')") for n in range(3)]
        await asyncio.gather(*(box.call("Bash", command=command) for command in commands))
        await box.undo(everything=True)
    assert sorted(path.name for path in project.iterdir()) == ["big", "small"]


@pytest.mark.asyncio
async def test_a_command_that_is_cancelled_before_it_runs_leaves_no_record(open_box, project, tmp_path):
    for number in range(300):
        (project / f"file{number}").write_text("x" * 1000)
    async with open_box() as box:
        snapshots = box.workspace.services.command_snapshots
        for delay in (0, 0.001, 0.005, 0.02):
            task = asyncio.ensure_future(CommandSnapshot.take(box.workspace, None, call_id="c", tool="Bash"))
            await asyncio.sleep(delay)
            task.cancel()
            done = await asyncio.gather(task, return_exceptions=True)
            if isinstance(done[0], CommandSnapshot):
                await done[0].record_changes()
        assert snapshots.trees._in_use == 0
        assert not list((tmp_path / "home").glob("journal/*/snapshots/*/running-*"))
        assert await box.workspace.services.journal.history() == ()


@pytest.mark.asyncio
async def test_a_command_that_cannot_be_started_leaves_no_record(open_box, project, tmp_path, monkeypatch):
    async with open_box() as box:
        monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
        result = await box.call("Bash", command=script("pass"))
        assert result.is_error or result.data["exitCode"]
        assert not list((tmp_path / "home").glob("journal/*/snapshots/*/running-*"))
