"""What a sandbox lets through is decided by the user, never by files a command could have written."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from wieldy.core.programs import own_python
from wieldy.core.workspace import Workspace
from wieldy.shell.sandbox.policy import SandboxPolicy, git_paths, policy_for


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    (tmp_path / "victim").mkdir()
    return tmp_path / "project"


def writable(project: Path, **sandbox) -> set[str]:
    env = {"HOME": str(project.parent / "victim"), "TMPDIR": str(project)}
    workspace = Workspace(project, session_dir=project.parent / "s", settings={"sandbox": sandbox}, env=env)
    return set(policy_for(workspace).writable)


def test_the_project_temp_and_what_the_settings_grant_are_writable(project):
    (project.parent / "granted").mkdir()
    assert writable(project) == {str(project)}
    assert writable(project, allowWrite=["../granted", "~", "missing"]) == {
        str(project),
        str(project.parent / "granted"),
        str(project.parent / "victim"),
    }


def test_a_git_file_that_names_a_strangers_folder_grants_nothing(project):
    (project / ".git").write_text(f"gitdir: {project.parent}/victim\n")
    assert writable(project) == {str(project)}
    (project.parent / "victim" / "worktrees" / "x").mkdir(parents=True)
    (project / ".git").write_text(f"gitdir: {project.parent}/victim/worktrees/x\n")
    assert writable(project) == {str(project)}


def test_a_git_link_grants_nothing(project):
    (project / ".git").symlink_to(project.parent / "victim")
    assert writable(project) == {str(project)}


@pytest.mark.parametrize("name", ["worktrees", "worktrees/inner"])
def test_a_project_that_is_called_like_a_part_of_git_grants_nothing_above_it(tmp_path, name):
    project = tmp_path / name
    project.mkdir(parents=True)
    (project / ".git").mkdir()
    assert writable(project) == {str(project), str(project / ".git")}
    shutil.rmtree(project / ".git")
    (project / ".git").write_text("gitdir: .\n")
    assert writable(project) == {str(project)}


def test_a_rewritten_commondir_grants_nothing(project):
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    (project / ".git" / "commondir").write_text(f"{project.parent}/victim")
    assert writable(project) == {str(project), str(project / ".git")}


@pytest.mark.parametrize(
    "content", ["", "nonsense", "gitdir:", "gitdir: /nonexistent", "gitdir: \0", "gitdir: " + "x" * 5000]
)
def test_a_broken_git_file_is_passed_over(project, content):
    (project / ".git").write_text(content)
    assert git_paths(str(project)).writable in ((), (str(project),))


def test_a_linked_work_tree_is_granted_its_own_repository(project):
    main = project.parent / "main"
    commands = (
        f"git init -q {main} && git -C {main} -c user.name=a -c user.email=a@b commit -q --allow-empty -m zero "
        f"&& rmdir {project} && git -C {main} worktree add -q {project}"
    )
    subprocess.run(commands, shell=True, check=True)
    places = git_paths(str(project))
    assert set(places.writable) == {f"{main}/.git", f"{main}/.git/worktrees/project"}
    assert f"{main}/.git/hooks" in places.protected
    assert f"{main}/.git/config" in places.protected


def test_settings_of_agents_inside_the_project_are_protected(project):
    (project / ".wieldy").mkdir()
    (project / ".mcp.json").write_text("{}")
    workspace = Workspace(project, session_dir=project.parent / "s", env=dict(os.environ))
    assert {str(project / ".wieldy"), str(project / ".mcp.json")} <= set(policy_for(workspace).protected)


def test_bounds_survive_the_way_to_another_process():
    policy = SandboxPolicy(("/a", "/b c"), ("/a/x",), ("/é",), network=True, proxy_port=81)
    assert SandboxPolicy.from_json(policy.as_json()) == policy


@pytest.mark.parametrize("module", ["sandbox.landlock", "sandbox.bridge", "running.guardian_process", "running.reaper"])
def test_child_processes_need_only_the_standard_library(module):
    # They run with `-S`, without site-packages: see `own_python`.
    command = own_python("__import__(sys.argv[1])", f"wieldy.shell.{module}", installed=False)
    assert command is not None
    subprocess.run(command, check=True, capture_output=True)
