"""Folders for our own files are private, and one that somebody else prepared is refused."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from wieldy import Toolbox
from wieldy.core.state_dirs import make_private_folder


@pytest.fixture(autouse=True)
def open_umask() -> object:
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_new_folder_is_private_also_those_above_it_at_any_umask(tmp_path):
    make_private_folder(tmp_path / "a" / "b" / "c")
    for name in ("a", "a/b", "a/b/c"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o703])
def test_a_folder_that_others_can_write_to_is_refused(tmp_path, mode):
    (tmp_path / "made").mkdir()
    (tmp_path / "made").chmod(mode)
    with pytest.raises(PermissionError, match="others can write to the folder"):
        make_private_folder(tmp_path / "made")


def test_a_folder_of_another_user_is_refused(tmp_path):
    (tmp_path / "made").mkdir(mode=0o700)
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(tmp_path / "made", 4242, 4242)
    with pytest.raises(PermissionError, match="belongs to another user"):
        make_private_folder(tmp_path / "made")


@pytest.mark.asyncio
async def test_what_a_session_writes_of_its_own_is_private_at_umask_0(tmp_path, monkeypatch):
    home = tmp_path / "home"
    monkeypatch.setenv("WIELDY_HOME", str(home))
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("one\n")
    async with Toolbox(project, settings={}, mode="bypassPermissions") as box:
        await box.call("Read", file_path="a.txt")
        await box.call("Edit", file_path="a.txt", old_string="one", new_string="two")
        await box.call("Bash", command="seq 200000; echo x > b.txt")
        await box.call("Bash", command="sleep 0.1; echo done", run_in_background=True)
        await box.undo()
    walked = [Path(folder, name) for folder, names, files in os.walk(home) for name in (*names, *files)]
    assert len(walked) > 5
    reachable = [
        path
        for path in walked
        if not path.is_symlink()
        and path.stat().st_mode & 0o077
        and not any(above.stat().st_mode & 0o077 == 0 for above in path.parents if above.is_relative_to(home))
    ]
    assert not reachable
