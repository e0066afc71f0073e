"""The workspace backend for pydantic-ai, held to pydantic-ai's own conformance suite; and what a toolbox adds to it."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.needs import import_or_skip, skip_untested

from wieldy import OverlayBackend, Toolbox
from wieldy.shell.backends.overlay import overlay_problem

import_or_skip("pydantic_ai.workspaces.conformance")
from pydantic_ai.workspaces import Workspace, WorkspaceTimeoutError
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

from wieldy.faces.adapters.pydantic_ai_workspace import WorkspacePermissionError

pytestmark = pytest.mark.peer


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class TestConformance(WorkspaceBackendSuite):
    """All rules of pydantic-ai for a backend, in a toolbox that asks nobody and permits all."""

    @pytest.fixture
    async def boxes(self) -> AsyncIterator[dict[str, Toolbox]]:
        boxes: dict[str, Toolbox] = {}
        yield boxes
        for box in boxes.values():
            await box.aclose()

    @pytest.fixture
    def backend(self, boxes: dict[str, Toolbox], project: Path) -> Any:
        boxes[str(project)] = Toolbox(project, settings={}, mode="bypassPermissions")
        return boxes[str(project)].as_pydantic_ai_workspace()

    @pytest.fixture
    def attach_backend(self, boxes: dict[str, Toolbox]) -> Any:
        return lambda ref: boxes[ref.id].as_pydantic_ai_workspace()

    @pytest.fixture
    def destructive_backend(self, boxes: dict[str, Toolbox], tmp_path: Path) -> Any:
        def make() -> Any:
            folder = tmp_path / f"doomed{len(boxes)}"
            folder.mkdir()
            boxes[str(folder)] = Toolbox(folder, settings={}, mode="bypassPermissions")
            return boxes[str(folder)].as_pydantic_ai_workspace()

        return make

    @pytest.fixture
    def destroy_environment(self) -> Any:
        async def destroy(backend: Any) -> None:
            shutil.rmtree(backend.ref.id)

        return destroy


@pytest.mark.asyncio
async def test_rules_hold_for_reads_writes_and_commands(project):
    settings = {"permissions": {"allow": ["Edit(/ok.txt)"], "deny": ["Read(secret.txt)"]}}
    async with Toolbox(project, settings=settings) as box:
        workspace = Workspace(box.as_pydantic_ai_workspace())
        assert await workspace.read_bytes("a.txt") == b"alpha\n"
        await workspace.write_bytes("ok.txt", b"fine")
        for forbidden in (
            workspace.read_bytes("secret.txt"),
            workspace.write_bytes("other.txt", b"x"),
            workspace.run(["cat", "secret.txt"]),
            workspace.run("rm -rf ~", shell=True),
            workspace.remove("a.txt"),
        ):
            with pytest.raises(WorkspacePermissionError):
                await forbidden
        assert (await workspace.run(["cat", "a.txt"])).stdout == "alpha\n"
    assert sorted(path.name for path in project.iterdir()) == ["a.txt", "ok.txt", "secret.txt"]


@pytest.mark.asyncio
async def test_whoever_answers_the_toolbox_is_asked(project):
    asked: list[str] = []

    def ask(question: Any) -> bool:
        asked.append(question.plan.tool.name)
        return bool(question.plan.tool.name == "Write")

    async with Toolbox(project, settings={}, ask=ask) as box:
        workspace = Workspace(box.as_pydantic_ai_workspace())
        await workspace.write_bytes("new.txt", b"new")
        with pytest.raises(PermissionError):
            await workspace.run(["touch", "more.txt"])
    assert asked == ["Write", "Bash"]


@pytest.mark.asyncio
async def test_writes_removals_and_commands_can_be_undone(project):
    async with Toolbox(project, settings={}, mode="bypassPermissions") as box:
        workspace = Workspace(box.as_pydantic_ai_workspace())
        await workspace.write_bytes("a.txt", b"\xff\x00 changed")
        await workspace.remove("secret.txt")
        await workspace.run("echo more > made.txt", shell=True)
        assert sorted(os.listdir(project)) == ["a.txt", "made.txt"]
        for _ in range(3):
            await box.undo()
    assert (project / "a.txt").read_text() == "alpha\n"
    assert sorted(os.listdir(project)) == ["a.txt", "secret.txt"]


@pytest.mark.asyncio
async def test_a_write_replaces_the_file_and_never_shows_half_of_it(project):
    (project / "a.txt").chmod(0o640)
    async with Toolbox(project, settings={}, mode="bypassPermissions") as box:
        workspace = Workspace(box.as_pydantic_ai_workspace())
        with open(project / "a.txt", "rb") as old:
            await workspace.write_bytes("a.txt", b"new content\n")
            assert old.read() == b"alpha\n"  # whoever has it open still sees the old one, whole
    assert (project / "a.txt").read_bytes() == b"new content\n"
    assert (project / "a.txt").stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(project)) == ["a.txt", "secret.txt"]


@pytest.mark.asyncio
async def test_a_toolbox_on_a_backend_is_a_workspace_there(project):
    if (problem := overlay_problem()) is not None:
        skip_untested(f"the overlay backend: {problem}")
    with OverlayBackend(project) as overlay:
        async with Toolbox(project, settings={}, mode="bypassPermissions", backend=overlay) as box:
            workspace = Workspace(box.as_pydantic_ai_workspace())
            await workspace.write_bytes("new/b.txt", b"beta")
            await workspace.make_dir("folder")
            await workspace.remove("secret.txt")
            result = await workspace.run("cat new/b.txt; ls; exit 3", shell=True)
            assert (result.exit_code, result.stdout) == (3, "betaa.txt\nfolder\nnew\n")
            assert (await workspace.run(["no-such-program"])).exit_code == 127
            with pytest.raises(WorkspaceTimeoutError):
                await workspace.run("sleep 600", shell=True, timeout=0.2)
            assert [entry.name for entry in await workspace.list_dir(".")] == ["a.txt", "folder", "new"]
            assert not await workspace.exists("secret.txt")
            await box.undo()
            assert not await workspace.exists("new")
    assert sorted(os.listdir(project)) == ["a.txt", "secret.txt"]


@pytest.mark.asyncio
async def test_a_link_that_is_swapped_after_the_check_leads_no_operation_elsewhere(project, tmp_path):
    inside, outside, door = project / "inside", tmp_path / "outside", project / "door"
    for folder in (inside, outside):
        (folder / "old").mkdir(parents=True)
        (folder / "old/f.txt").write_text(folder.name)
        (folder / f"{folder.name}.txt").write_text("")

    def swap_the_door(question: Any) -> bool:
        door.unlink()
        door.symlink_to(outside)
        return True

    settings = {"permissions": {"ask": ["Read", "LS", "Bash"]}}
    async with Toolbox(project, settings=settings, ask=swap_the_door) as box:
        workspace = Workspace(box.as_pydantic_ai_workspace())

        async def with_swap(operation: Any, path: str) -> Any:
            door.unlink(missing_ok=True)
            door.symlink_to(inside)
            return await operation(path)

        assert (await with_swap(workspace.stat, "door/old/f.txt")).size == len("inside")
        assert not await with_swap(workspace.exists, "door/outside.txt")
        assert await with_swap(workspace.exists, "door/inside.txt")
        assert await with_swap(workspace.realpath, "door/old") == str(inside / "old")
        entries = await with_swap(workspace.list_dir, "door")
        assert [entry.path for entry in entries] == [str(door / "inside.txt"), str(door / "old")]
        await with_swap(workspace.make_dir, "door/new")
        assert (inside / "new").is_dir()
        await with_swap(workspace.remove, "door/old")
        await with_swap(workspace.remove, "door")
    assert sorted(os.listdir(inside)) == ["inside.txt", "new"]
    assert sorted(os.listdir(outside)) == ["old", "outside.txt"]
    assert (outside / "old/f.txt").read_text() == "outside"
    assert not os.path.lexists(door)


@pytest.mark.asyncio
async def test_a_removal_that_is_cancelled_comes_to_its_end_before_it_is_recorded(project):
    big = project / "big"
    big.mkdir()
    for number in range(2000):
        (big / str(number)).write_text(str(number))
    options = {"bash": {"snapshotSeconds": 60.0}}  # a busy machine needs longer for a look at 2 000 files
    async with Toolbox(project, settings=options, mode="bypassPermissions") as box:
        workspace = Workspace(box.as_pydantic_ai_workspace())
        removal = asyncio.create_task(workspace.remove("big"))
        while big.exists() and len(os.listdir(big)) == 2000:
            await asyncio.sleep(0)
        removal.cancel()
        with pytest.raises(asyncio.CancelledError):
            await removal
        assert not big.exists()
        await box.undo()
        assert len(os.listdir(big)) == 2000
