from __future__ import annotations

import os
from pathlib import Path

import pytest

from wieldy.core.errors import Refusal, ToolFailure
from wieldy.core.workspace import Workspace
from wieldy.tools.memory.folder import MemoryFile, memory_files, memory_folder, memory_path, require_confined


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
