"""Undo of a command gives nobody else's special bits to a file that is now yours."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from wieldy import Toolbox

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("owner", ["me", "another"])
@pytest.mark.parametrize("mode", [0o6755, 0o4711, 0o2755])
async def test_a_removed_file_comes_back_with_its_special_bits_only_if_it_was_yours(tmp_path, monkeypatch, owner, mode):
    if owner == "another" and os.geteuid() != 0:
        pytest.skip("only root can make a file of another user")
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    project = tmp_path / "project"
    project.mkdir()
    file = Path(project, "program")
    file.write_text("their content")
    if owner == "another":
        os.chown(file, 4242, 4242)
    file.chmod(mode)
    async with Toolbox(project, settings={}, mode="bypassPermissions") as box:
        await box.call("Bash", command="rm -f program")
        assert not file.exists()
        await box.undo()
    assert file.read_text() == "their content"
    status = file.stat()
    assert status.st_uid == os.geteuid()
    assert stat.S_IMODE(status.st_mode) == (mode if owner == "me" else mode & 0o777)
