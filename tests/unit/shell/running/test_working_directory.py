"""The working directory goes from call to call, within the allowed folders."""

from __future__ import annotations

import pytest

from wieldy.core.workspace import Workspace
from wieldy.shell.running.session import update_working_directory


@pytest.fixture
def workspace(tmp_path):
    for name in ("project/sub", "project-other", "extra"):
        (tmp_path / name).mkdir(parents=True)
    return Workspace(tmp_path / "project", session_dir=tmp_path / "session", extra_roots=(str(tmp_path / "extra"),))


def test_a_folder_inside_the_project_is_entered(workspace, tmp_path):
    assert update_working_directory(workspace, workspace.cwd, str(tmp_path / "project" / "sub")) is None
    assert workspace.cwd == str(tmp_path / "project" / "sub")


def test_an_additional_folder_is_entered(workspace, tmp_path):
    assert update_working_directory(workspace, workspace.cwd, str(tmp_path / "extra")) is None
    assert workspace.cwd == str(tmp_path / "extra")


def test_a_folder_whose_name_only_begins_like_the_project_is_outside(workspace, tmp_path):
    notice = update_working_directory(workspace, workspace.cwd, str(tmp_path / "project-other"))
    assert notice and "outside" in notice
    assert workspace.cwd == workspace.root


def test_a_symlink_out_of_the_project_is_outside(workspace, tmp_path):
    (tmp_path / "project" / "link").symlink_to(tmp_path / "project-other")
    assert update_working_directory(workspace, workspace.cwd, str(tmp_path / "project" / "link"))
    assert workspace.cwd == workspace.root


def test_an_end_that_is_not_known_changes_nothing(workspace):
    assert update_working_directory(workspace, workspace.cwd, None) is None
    assert workspace.cwd == workspace.root
