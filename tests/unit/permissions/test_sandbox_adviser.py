"""What a sandbox contains may run unasked, where the settings say so; nothing else becomes easier."""

from __future__ import annotations

import pytest

from wieldy import Toolbox
from wieldy.shell.sandbox.sandbox import Sandbox

pytestmark = pytest.mark.asyncio


async def mechanism(box: Toolbox) -> str:
    return (await box.workspace.service(Sandbox).wrapper()).mechanism


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))


async def test_a_contained_command_runs_without_a_question(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    settings = {"sandbox": {"enabled": True, "autoAllow": True}}
    async with Toolbox(root, settings=settings) as box:
        if await mechanism(box) != "bubblewrap":
            pytest.skip("NOT TESTED: sandboxed permissions: bubblewrap does not work here")
        result = await box.call("Bash", command='python3 -c \'open("made", "w")\'')
        assert (root / "made").exists(), result.text


async def test_landlock_alone_allows_nothing_because_it_does_not_hold_completely(tmp_path):
    settings = {"sandbox": {"enabled": True, "autoAllow": True, "mechanism": "landlock"}}
    async with Toolbox(tmp_path, settings=settings) as box:
        assert (await box.call("Bash", command="touch made")).is_error
    assert not (tmp_path / "made").exists()


async def test_it_asks_where_the_setting_is_off_or_a_rule_or_guard_speaks(tmp_path):
    async with Toolbox(tmp_path, settings={"sandbox": {"enabled": True}}) as box:
        assert (await box.call("Bash", command="touch made")).is_error
    guarded = {"sandbox": {"enabled": True, "autoAllow": True}, "permissions": {"deny": ["Bash(touch:*)"]}}
    async with Toolbox(tmp_path, settings=guarded) as box:
        assert (await box.call("Bash", command="touch made")).is_error
        assert (await box.call("Bash", command="rm -rf ~")).is_error
        assert (await box.call("Bash", command="rm -rf /")).is_error
    excluded = {"sandbox": {"enabled": True, "autoAllow": True, "excludedCommands": ["touch"]}}
    async with Toolbox(tmp_path, settings=excluded) as box:
        assert (await box.call("Bash", command="touch made")).is_error
    assert not (tmp_path / "made").exists()
