"""BashOutput and KillShell as a model calls them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from wieldy import Toolbox
from wieldy.core.call import PlannedCall
from wieldy.core.decision import Decision, Opinion, Reason


class Allowing:
    """These tests are about running; who may run what is tested elsewhere."""

    def decide(self, plan: PlannedCall, opinions: Sequence[Opinion]) -> Decision:
        return Decision("allow", (Reason("default", "allow", "a test"),))


@pytest.fixture
def box(tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    (tmp_path / "project").mkdir()
    return Toolbox(tmp_path / "project", judge=Allowing(), settings={})


@pytest.mark.asyncio
async def test_a_background_command_returns_at_once_with_an_id(box):
    async with box:
        started = await box.call("Bash", command="echo one; sleep 300", run_in_background=True)
        assert not started.is_error
        id = started.data["backgroundTaskId"]
        assert id in started.text
        look = await box.call("BashOutput", shell_id=id, wait=10)
        assert look.text.startswith("one\n[running for")
        assert look.data["status"] == "running"
        again = await box.call("BashOutput", bash_id=id)
        assert again.text.startswith("(no new output)\n[running")


@pytest.mark.asyncio
async def test_the_end_is_told_with_its_code(box):
    async with box:
        id = (await box.call("Bash", command="exit 7", run_in_background=True)).data["backgroundTaskId"]
        look = await box.call("BashOutput", shell_id=id, wait=10)
        assert look.text == "(no new output)\n[exited, exit code 7]"
        assert (look.data["status"], look.data["exitCode"]) == ("exited", 7)


@pytest.mark.asyncio
async def test_a_filter_keeps_matching_lines(box):
    async with box:
        id = (await box.call("Bash", command="seq 30; exit 0", run_in_background=True)).data["backgroundTaskId"]
        look = await box.call("BashOutput", shell_id=id, filter="^2.$", wait=10)
        assert look.text.split("\n[")[0] == "\n".join(map(str, range(20, 30)))


@pytest.mark.asyncio
async def test_an_unknown_shell_and_a_bad_filter_are_explained(box):
    async with box:
        missing = await box.call("BashOutput", shell_id="bash_9")
        assert missing.is_error and "no background shell" in missing.text
        id = (await box.call("Bash", command="sleep 300", run_in_background=True)).data["backgroundTaskId"]
        bad = await box.call("BashOutput", shell_id=id, filter="(")
        assert bad.is_error and "regular expression" in bad.text


@pytest.mark.asyncio
async def test_output_that_was_passed_over_is_counted(box):
    async with box:
        command = "head -c 2000000 /dev/zero | tr '\\0' z; echo; echo end"
        id = (await box.call("Bash", command=command, run_in_background=True)).data["backgroundTaskId"]
        looks = [await box.call("BashOutput", shell_id=id, wait=5)]
        while looks[-1].data["status"] == "running":
            looks.append(await box.call("BashOutput", shell_id=id, wait=5))
        assert "earlier bytes not shown; output is kept in" in "".join(look.text for look in looks)


@pytest.mark.asyncio
async def test_killing_twice_is_no_error_and_unknown_ids_are(box):
    async with box:
        id = (await box.call("Bash", command="sleep 300", run_in_background=True)).data["backgroundTaskId"]
        first = await box.call("KillShell", shell_id=id)
        assert first.text == f"{id} and everything it had started were ended."
        second = await box.call("KillShell", bash_id=id)
        assert not second.is_error and "already ended" in second.text
        assert (await box.call("KillShell", shell_id="bash_77")).is_error
