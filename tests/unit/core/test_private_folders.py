"""Folders for our own files are private, and one that somebody else prepared is refused."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from wieldy import Toolbox
from wieldy.core.state_dirs import make_folders, make_private_folder
from wieldy.policy.settings.sources import SettingsLocation, load_source
from wieldy.policy.settings.store import add_rules, set_value, user_file


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


@pytest.mark.parametrize(("mode", "is_fit"), [(0o777, False), (0o703, False), (0o1777, True), (0o775, True)])
def test_a_folder_above_that_others_can_write_to_is_refused_unless_it_is_sticky(tmp_path, mode, is_fit):
    (tmp_path / "above").mkdir()
    (tmp_path / "above").chmod(mode)
    make_folders(tmp_path / "above" / "linked", 0o700)
    (tmp_path / "link").symlink_to(tmp_path / "above" / "linked")
    for folder in (tmp_path / "above" / "made", tmp_path / "above" / "x" / "y", tmp_path / "link" / "z"):
        if is_fit:
            make_private_folder(folder)
        else:
            with pytest.raises(PermissionError, match=r"others can write to .*above"):
                make_private_folder(folder)


def test_a_folder_below_that_of_another_user_is_refused_but_not_in_the_home_folder(tmp_path, monkeypatch):
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    (tmp_path / "theirs").mkdir(mode=0o755)
    os.chown(tmp_path / "theirs", 4242, 4242)
    with pytest.raises(PermissionError, match="theirs belongs to another user"):
        make_private_folder(tmp_path / "theirs" / "made")
    monkeypatch.setenv("HOME", str(tmp_path / "theirs"))
    make_private_folder(tmp_path / "theirs" / "made")


@pytest.mark.parametrize("target", ["own", "own/deeper", "missing", "linked"])
def test_a_symlink_of_another_user_is_refused_also_one_to_a_folder_of_ours(tmp_path, target):
    if os.geteuid() != 0:
        pytest.skip("only root can give a symlink away")
    (tmp_path / "above").mkdir()
    (tmp_path / "above").chmod(0o1777)
    (tmp_path / "own" / "deeper").mkdir(parents=True, mode=0o700)
    (tmp_path / "own").chmod(0o700)
    (tmp_path / "linked").symlink_to(tmp_path / "own")
    (tmp_path / "above" / "made").symlink_to(tmp_path / target)
    os.chown(tmp_path / "above" / "made", 65534, 65534, follow_symlinks=False)
    (tmp_path / "link").symlink_to("above/made")
    for folder in (tmp_path / "above" / "made", tmp_path / "above" / "made" / "x", tmp_path / "link" / "x"):
        with pytest.raises(PermissionError, match=r"above/made is a symlink of another user"):
            make_private_folder(folder)
    assert not (tmp_path / "missing").exists()
    assert not list((tmp_path / "own").glob("**/x"))
    make_private_folder(tmp_path / "linked" / "x")


def test_a_symlink_that_leads_to_itself_is_refused(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(PermissionError, match="too many symlinks"):
        make_private_folder(tmp_path / "loop" / "x")


def test_settings_of_the_person_that_others_could_write_are_refused(tmp_path):
    make_folders(tmp_path / "home" / ".config" / "wieldy")
    location = SettingsLocation("user", tmp_path / "home" / ".config" / "wieldy" / "settings.json", str(tmp_path))
    set_value(location.file, "model", "script")
    assert (source := load_source(location)) is not None and source.error is None
    for folder in (tmp_path / "home" / ".config" / "wieldy", tmp_path / "home" / ".config"):
        before = stat.S_IMODE(folder.stat().st_mode)
        folder.chmod(0o777)
        assert (source := load_source(location)) is not None and source.error is not None
        assert "others can write to" in source.error.text
        folder.chmod(before)


@pytest.mark.asyncio
async def test_what_a_session_writes_of_its_own_is_private_at_umask_0(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    monkeypatch.delenv("WIELDY_HOME", raising=False)
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("one\n")
    async with Toolbox(project, settings={}, mode="bypassPermissions") as box:
        await box.call("Read", file_path="a.txt")
        await box.call("Edit", file_path="a.txt", old_string="one", new_string="two")
        await box.call("Bash", command="seq 200000; echo x > b.txt")
        await box.call("Bash", command="sleep 0.1; echo done", run_in_background=True)
        await box.undo()
    add_rules(user_file({"HOME": str(home)}), "allow", ["Bash(ls)"])
    walked = [Path(folder, name) for folder, names, files in os.walk(home) for name in (*names, *files)]
    assert len(walked) > 5
    reachable = [
        path
        for path in walked
        if not path.is_symlink()
        and not any(above.stat().st_mode & 0o077 == 0 for above in path.parents if above.is_relative_to(home))
    ]
    assert not [path for path in reachable if path.is_file() and path.stat().st_mode & 0o077]
    assert not [path for path in reachable if path.stat().st_mode & 0o022]
