"""The folders of memory and the tools that read and write them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy import Toolbox
from wieldy.core.decision import Question
from wieldy.core.errors import Refusal, ToolFailure
from wieldy.core.outcome import Refused
from wieldy.core.workspace import Workspace
from wieldy.tools.memory_read import (
    SCOPES,
    MemoryFile,
    Scope,
    memory_files,
    memory_folder,
    memory_path,
    require_confined,
)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "root").mkdir()
    env = {"WIELDY_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    return Workspace(tmp_path / "root", session_dir=tmp_path / "session", env=env)


def test_paths_are_placed_in_the_folder_of_their_scope(workspace: Workspace, tmp_path: Path) -> None:
    assert memory_path("api/errors.md", "project", workspace) == f"{workspace.root}/.wieldy/memory/api/errors.md"
    assert memory_path("me.md", "user", workspace) == f"{tmp_path}/home/memory/me.md"


@pytest.mark.parametrize(
    "path",
    ["..", "../x", "a/../../x", "/etc/passwd", "a//b", "", ".hidden", "a/.git/x", "a/", "..\\x", "a\nb", "a\0b", " "],
)
def test_a_path_that_would_leave_the_folder_is_refused(workspace: Workspace, path: str) -> None:
    with pytest.raises(Refusal, match="no path in the memory folder"):
        memory_path(path, "project", workspace)


@pytest.mark.parametrize("link", [".wieldy", ".wieldy/memory", ".wieldy/memory/sub"])
def test_a_link_anywhere_on_the_way_leads_nowhere(workspace: Workspace, tmp_path: Path, link: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "memory" / "sub").mkdir(parents=True)
    (elsewhere / "memory" / "sub" / "x.md").write_text("secret")
    at = Path(workspace.root, link)
    at.parent.mkdir(parents=True, exist_ok=True)
    at.symlink_to(elsewhere / Path(link).relative_to(".wieldy"))
    real = os.path.realpath(memory_path("sub/x.md", "project", workspace))
    with pytest.raises(ToolFailure, match="A link leads out"):
        require_confined(real, "project", workspace)
    assert list(memory_files(workspace)) == []


def test_a_folder_of_a_longer_name_is_another_folder(workspace: Workspace) -> None:
    with pytest.raises(ToolFailure):
        require_confined(memory_folder("project", workspace) + "-other/x", "project", workspace)


def test_the_users_own_folder_may_be_a_link_of_the_users(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "memory").symlink_to(tmp_path / "dotfiles")
    (tmp_path / "dotfiles" / "me.md").write_text("likes tabs")
    require_confined(os.path.realpath(memory_path("me.md", "user", workspace)), "user", workspace)
    assert list(memory_files(workspace)) == [MemoryFile("user", "me.md", 10)]


def test_the_list_is_the_projects_then_the_users_without_hidden_files_and_links(workspace: Workspace) -> None:
    for scope, path in (("user", "b.md"), ("project", "z/y.md"), ("project", "a.md"), ("project", ".hidden")):
        file = Path(memory_folder(scope, workspace), path)  # type: ignore[arg-type]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("12345")
    Path(memory_folder("project", workspace), "link.md").symlink_to("/etc/passwd")
    assert [(file.scope, file.path) for file in memory_files(workspace)] == [
        ("project", "a.md"),
        ("project", "z/y.md"),
        ("user", "b.md"),
    ]


PARTS = st.sampled_from(["..", ".", "a", "", "~", "/", "\\", "..\\", "\0", " ", "a.md", "…", "\u202e", "C:", "\ud800"])
PATHS = st.builds(str.join, st.sampled_from(["/", ""]), st.lists(PARTS, max_size=6))
ROOT = os.path.join(tempfile.gettempdir(), "no-such-project")  # nothing of a real folder counts as a project hereafter


@given(PATHS | st.text(), st.sampled_from(SCOPES))
@settings(max_examples=400, deadline=None)
def test_no_path_leads_out(path: str, scope: Scope) -> None:
    workspace = Workspace(ROOT, session_dir=ROOT, env={"WIELDY_HOME": ROOT})
    try:
        found = memory_path(path, scope, workspace)
    except Refusal:
        return
    assert found == os.path.normpath(found)
    assert found.startswith(memory_folder(scope, workspace) + os.sep)


ON = {"features": {"memory": True}}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest_asyncio.fixture
async def box(root: Path) -> AsyncIterator[Toolbox]:
    async with Toolbox(root, settings=ON, ask=lambda question: True) as toolbox:
        yield toolbox


@pytest.mark.asyncio
async def test_off_unless_the_feature_is_on(root: Path) -> None:
    async with Toolbox(root, settings={}) as box:
        rows = {row.tool.name: row for row in await box.offer()}
        assert (
            "`MemoryRead` is not available: its feature is off; switch it on with `features.memory`"
            in (await box.call("MemoryRead")).text
        )
        assert "`MemoryWrite` is not available" in (await box.call("MemoryWrite", path="a", content="b")).text
    for name in ("MemoryRead", "MemoryWrite"):
        assert not rows[name].offered
        assert "features.memory" in rows[name].reason
    async with Toolbox(root, settings=ON) as box:
        assert {row.tool.name for row in await box.offer() if row.offered} >= {"MemoryRead", "MemoryWrite"}


@pytest.mark.parametrize("scope", ["project", "user"])
@pytest.mark.asyncio
async def test_what_is_written_is_listed_and_read_in_another_session(root: Path, box: Toolbox, scope: str) -> None:
    written = await box.call("MemoryWrite", path="a/b.md", content="use tabs\n", scope=scope)
    assert not written.is_error, written.text
    async with Toolbox(root, settings=ON) as later:
        assert (await later.call("MemoryRead")).text == f"{scope}: a/b.md (9 bytes)"
        assert (await later.call("MemoryRead", path="a/b.md", scope=scope)).text == "use tabs\n"
        other = "user" if scope == "project" else "project"
        assert "there is no such file" in (await later.call("MemoryRead", path="a/b.md", scope=other)).text


@pytest.mark.asyncio
async def test_a_note_that_was_not_read_is_not_overwritten_and_can_be_undone(root: Path, box: Toolbox) -> None:
    await box.call("MemoryWrite", path="a.md", content="one\n")
    async with Toolbox(root, settings=ON, ask=lambda question: True) as later:
        assert "must be read first" in (await later.call("MemoryWrite", path="a.md", content="two\n")).text
        assert "must be read first" in (await later.call("MemoryWrite", path="a.md", content="")).text
        await later.call("MemoryRead", path="a.md")
        assert not (await later.call("MemoryWrite", path="a.md", content="two\n")).is_error
        file = root / ".wieldy/memory/a.md"
        assert file.read_text() == "two\n"
        assert (await later.call("MemoryWrite", path="a.md", content="")).text == "Removed `a.md`."
        assert not file.exists()
        assert "There is no memory `a.md`" in (await later.call("MemoryWrite", path="a.md", content="")).text
        await later.undo()
        assert file.read_text() == "two\n"
        await later.undo()
        assert file.read_text() == "one\n"


@pytest.mark.asyncio
async def test_nothing_outside_is_read_or_written(root: Path, box: Toolbox) -> None:
    (root / "secret").write_text("x")
    (root / ".wieldy/memory").mkdir(parents=True)
    (root / ".wieldy/memory/link").symlink_to(root / "secret")
    (root / ".wieldy/memory/up").symlink_to(root)
    for path in ("../../secret", "/etc/passwd", "link", "up/secret"):
        for call in (box.call("MemoryRead", path=path), box.call("MemoryWrite", path=path, content="y")):
            assert (await call).is_error
    assert (root / "secret").read_text() == "x"


@pytest.mark.asyncio
async def test_writing_asks_until_a_rule_allows_the_folder(root: Path) -> None:
    asked: list[str] = []

    def note(question: Question) -> bool:
        asked.append(question.decision.why)
        return False

    async with Toolbox(root, settings=ON, mode="bypassPermissions", ask=note) as box:
        assert isinstance((await box.call("MemoryWrite", path="a.md", content="x")).outcome, Refused)
    assert "what the agent remembers" in asked[0]
    allowed = {**ON, "permissions": {"allow": ["Edit(.wieldy/memory/**)"]}}
    async with Toolbox(root, settings=allowed) as box:
        assert not (await box.call("MemoryWrite", path="a.md", content="x")).is_error
        assert (await box.call("Write", file_path=".wieldy/settings.json", content="{}")).is_error
        (root / ".wieldy/memory/evil.md").symlink_to(root / ".wieldy/settings.json")
        assert (await box.call("MemoryWrite", path="evil.md", content="{}")).is_error
    assert not (root / ".wieldy/settings.json").exists()


@pytest.mark.asyncio
async def test_plan_mode_reads_and_does_not_write(root: Path) -> None:
    async with Toolbox(root, settings=ON, mode="plan", ask=lambda question: True) as box:
        assert (await box.call("MemoryRead")).text == "Nothing has been noted yet."
        assert (await box.call("MemoryWrite", path="a.md", content="x")).is_error


@pytest.mark.asyncio
async def test_a_note_that_is_no_text_or_too_large_is_said_to_be_so(root: Path, box: Toolbox) -> None:
    (root / ".wieldy/memory").mkdir(parents=True)
    (root / ".wieldy/memory/blob").write_bytes(b"\0" * 100)
    (root / ".wieldy/memory/big").write_bytes(b"x" * 200_001)
    assert "not text" in (await box.call("MemoryRead", path="blob")).text
    assert "Read it in pages" in (await box.call("MemoryRead", path="big")).text
