"""Bash as a model calls it."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Sequence
from contextlib import asynccontextmanager

import pytest

from wieldy import Toolbox
from wieldy.core.call import PlannedCall
from wieldy.core.decision import Decision, Opinion, Reason
from wieldy.core.events import ToolProgress
from wieldy.shell.running.reaper import ProcessTree, members
from wieldy.shell.sandbox.sandbox import choose_wrapper
from wieldy.tools.bash import bash


class Allowing:
    """These tests are about running; who may run what is tested elsewhere."""

    def decide(self, plan: PlannedCall, opinions: Sequence[Opinion]) -> Decision:
        return Decision("allow", (Reason("default", "allow", "a test"),))


@pytest.fixture
def open_box(tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    (tmp_path / "project").mkdir()

    @asynccontextmanager
    async def make(**settings):
        async with Toolbox(tmp_path / "project", judge=Allowing(), settings=settings) as box:
            yield box
        assert alive(box) == []

    return make


def alive(box: Toolbox) -> list[str]:
    return [process.name for process in members(ProcessTree(box.workspace.services.shells.token))]


@pytest.mark.asyncio
async def test_both_streams_come_back_in_order_with_data_for_the_caller(open_box):
    async with open_box() as box:
        result = await box.call("Bash", command="echo out; echo err >&2; echo more")
        assert (result.text, result.is_error) == ("out\nerr\nmore", False)
        assert result.data["output"] == result.data["stdout"] == "out\nerr\nmore\n"
        assert (result.data["stderr"], result.data["notices"]) == (None, [])
        assert (result.data["exitCode"], result.data["interrupted"], result.data["backgroundTaskId"]) == (
            0,
            False,
            None,
        )


@pytest.mark.asyncio
async def test_no_output_is_said(open_box):
    async with open_box() as box:
        assert (await box.call("Bash", command="true")).text == "(no output)"


@pytest.mark.asyncio
async def test_a_failure_is_an_error_with_code_and_output(open_box):
    async with open_box() as box:
        result = await box.call("Bash", command="echo before; ls /nonexistent; exit 3")
        assert result.is_error
        assert result.text.startswith("before\nls: cannot access")
        assert result.text.endswith("[exit code 3]")
        assert result.data["exitCode"] == 3


@pytest.mark.asyncio
async def test_an_answer_by_exit_code_is_no_error_but_is_said(open_box):
    async with open_box() as box:
        result = await box.call("Bash", command="echo a | grep b")
        assert not result.is_error
        assert result.text == "[exit code 1: no lines matched]"


@pytest.mark.asyncio
async def test_the_working_directory_persists_and_the_environment_does_not(open_box):
    async with open_box() as box:
        await box.call("Bash", command="mkdir -p a/b && cd a/b && export X=1")
        result = await box.call("Bash", command="pwd; echo [$X]")
        assert result.text == f"{box.workspace.root}/a/b\n[]"


@pytest.mark.asyncio
async def test_a_directory_outside_is_left_again_with_a_notice(open_box):
    async with open_box() as box:
        result = await box.call("Bash", command="cd / && pwd")
        assert result.text.startswith("/\n[")
        assert "outside the allowed folders" in result.text
        assert (await box.call("Bash", command="pwd")).text == box.workspace.root


@pytest.mark.asyncio
async def test_a_vanished_directory_falls_back_to_the_root_with_a_notice(open_box):
    async with open_box() as box:
        await box.call("Bash", command="mkdir gone && cd gone")
        await box.call("Bash", command="rmdir ../gone")
        result = await box.call("Bash", command="pwd")
        assert result.text.startswith(box.workspace.root + "\n(")
        assert "no longer exists" in result.text


@pytest.mark.asyncio
async def test_a_project_folder_that_is_gone_is_named(open_box, tmp_path):
    async with open_box() as box:
        (tmp_path / "project").rmdir()
        result = await box.call("Bash", command="ls")
    assert result.is_error
    assert f"the folder {tmp_path / 'project'} is gone. Nothing was run." in result.text


@pytest.mark.asyncio
async def test_time_that_runs_out_ends_the_tree_and_returns_what_was_printed(open_box):
    async with open_box() as box:
        start = time.monotonic()
        result = await box.call(
            "Bash", command="echo partial; setsid sleep 300 & (trap '' TERM; sleep 300)", timeout=500
        )
        assert time.monotonic() - start < 4
        assert result.is_error
        assert result.text.startswith("partial\n[timed out after 0.5 s")
        assert result.data["timedOut"]
        assert alive(box) == []


@pytest.mark.asyncio
async def test_a_long_silence_before_the_time_out_is_pointed_out(open_box):
    async with open_box() as box:
        result = await box.call("Bash", command="mkfifo f; cat f", timeout=300)
        assert "waiting for input" in result.text


@pytest.mark.asyncio
async def test_time_that_runs_out_may_leave_the_command_in_the_background(open_box):
    async with open_box(bash={"backgroundOnTimeout": True}) as box:
        result = await box.call("Bash", command="echo early; sleep 1; echo late", timeout=300)
        assert not result.is_error
        task = result.data["backgroundTaskId"]
        assert result.text.startswith("early\n[still running") and task in result.text
        later = await box.call("BashOutput", shell_id=task, wait=20)
        assert later.text.startswith("late")


@pytest.mark.asyncio
async def test_time_that_runs_out_ends_a_command_for_which_the_background_has_no_room(open_box):
    async with open_box(bash={"backgroundOnTimeout": True, "maxBackground": 1}) as box:
        first = await box.call("Bash", command="sleep 300", timeout=300)
        second = await box.call("Bash", command="sleep 300", timeout=300)
        assert first.data["backgroundTaskId"] and second.data["backgroundTaskId"] is None
        assert second.is_error and "timed out" in second.text and "as many" in second.text


@pytest.mark.asyncio
@pytest.mark.parametrize("variable", ["WIELDY_BASH_TIMEOUT_MS", "CLAUDE_BASH_TIMEOUT_MS"])
async def test_the_users_own_limit_is_the_default(open_box, monkeypatch, variable):
    monkeypatch.setenv(variable, "300")
    async with open_box() as box:
        assert "timed out after 0.3 s" in (await box.call("Bash", command="sleep 300")).text


@pytest.mark.asyncio
async def test_an_abort_ends_the_tree_at_once_and_keeps_what_was_printed(open_box):
    async with open_box() as box:
        running = asyncio.ensure_future(
            box.call("Bash", command="echo partial; setsid sleep 300 & trap '' TERM; sleep 300")
        )
        await asyncio.sleep(0.6)
        start = time.monotonic()
        box.abort()
        result = await running
        assert time.monotonic() - start < 1.5
        assert result.is_error
        assert "interrupted" in result.text and "partial" in result.text
        await asyncio.sleep(0.3)
        assert alive(box) == []


@pytest.mark.asyncio
async def test_a_cancelled_caller_leaves_no_process(open_box):
    async with open_box() as box:
        running = asyncio.ensure_future(box.call("Bash", command="sleep 300 & sleep 300"))
        await asyncio.sleep(0.4)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.sleep(0.3)
        assert alive(box) == []


@pytest.mark.asyncio
async def test_a_child_left_running_is_named_and_can_be_ended(open_box):
    async with open_box() as box:
        result = await box.call("Bash", command="sleep 300 & echo hi")
        assert not result.is_error
        assert result.text.startswith("hi\n[still running: ")
        task = result.data["backgroundTaskId"]
        assert task in result.text
        assert not (await box.call("KillShell", shell_id=task)).is_error
        assert alive(box) == []


@pytest.mark.asyncio
async def test_a_child_whose_output_goes_elsewhere_is_named_too(open_box):
    async with open_box() as box:
        result = await box.call("Bash", command="nohup sleep 300 >/dev/null 2>&1 & echo hi")
        assert "still running: " in result.text


@pytest.mark.asyncio
async def test_long_output_is_cut_and_the_whole_is_on_disk(open_box):
    async with open_box() as box:
        result = await box.call("Bash", command="seq 100000")
        assert len(result.text) < 31_000
        assert result.text.startswith("1\n2\n") and result.text.endswith("99999\n100000")
        kept = result.data["persistedOutputPath"]
        assert kept in result.text
        with open(kept) as file:
            assert file.read() == "".join(f"{n}\n" for n in range(1, 100001))
        assert not kept.startswith(box.workspace.root)


@pytest.mark.asyncio
async def test_colours_and_progress_bars_are_read_as_a_person_saw_them(open_box):
    async with open_box() as box:
        result = await box.call("Bash", command=r"printf '\e[31mred\e[0m\n10%%\r50%%\r100%%\n\0nul \xff\n'")
        assert result.text == "red\n100%\nnul �"


@pytest.mark.asyncio
async def test_signs_of_life_reach_whoever_watches(open_box):
    async with open_box() as box:
        seen: list[ToolProgress] = []
        box.subscribe(lambda event: seen.append(event) if isinstance(event, ToolProgress) else None)
        await box.call("Bash", command="for i in 1 2 3 4; do echo step $i; sleep 0.2; done")
        await asyncio.sleep(0.05)
        assert seen
        assert re.search(r"step \d", seen[0].text)
        assert seen[0].data["bytes"] > 0


@pytest.mark.asyncio
async def test_a_leading_cd_to_where_we_are_is_dropped(open_box):
    async with open_box() as box:
        root = box.workspace.root
        for spelled in (f"cd {root} && ls", f'cd "{root}" && ls'):
            assert bash.normalize({"command": spelled}, box.workspace) == {"command": "ls"}
        for kept in (f"cd {root}/sub && ls", f"cd {root}; ls", "cd sub && ls", f"cd {root} && ", f"cd {root}"):
            assert bash.normalize({"command": kept}, box.workspace)["command"] == kept


@pytest.mark.asyncio
@pytest.mark.parametrize("command", ["", "   ", "echo \0"])
async def test_a_command_that_is_none_is_refused_with_advice(open_box, command):
    async with open_box() as box:
        result = await box.call("Bash", command=command)
        assert result.is_error
        assert "command" in result.text


@pytest.mark.asyncio
async def test_a_sandbox_that_cannot_be_had_is_said_or_refused(open_box, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "without bubblewrap"))
    wanted = {"enabled": True, "mechanism": "bubblewrap"}
    async with open_box(sandbox=wanted) as box:
        result = await box.call("Bash", command="echo > made-here; echo ran")
        assert result.text == "ran\n[no sandbox works on this system: the command ran unconfined]"
    async with open_box(sandbox={**wanted, "failIfUnavailable": True}) as box:
        result = await box.call("Bash", command="echo ran > made")
        assert result.is_error and "nothing was run" in result.text
        assert not os.path.exists(os.path.join(box.workspace.root, "made"))


@pytest.mark.asyncio
async def test_many_commands_of_one_turn_leave_nothing_behind(open_box):
    async with open_box() as box:
        results = await box.call_many([("Bash", {"command": f"sleep 300 & echo {n}"}) for n in range(15)])
        assert [result.text.split("\n")[0] for result in results] == [str(n) for n in range(15)]
        assert len(alive(box)) == 15


@pytest.mark.asyncio
@pytest.mark.skipif(
    choose_wrapper(None).mechanism == "none", reason="NOT TESTED: sandboxed Bash calls: no sandbox works here"
)
async def test_a_sandboxed_command_keeps_its_directory_and_its_refusals_are_labelled(open_box, tmp_path):
    async with open_box(sandbox={"enabled": True}) as box:
        first = await box.call("Bash", command="mkdir sub && cd sub && pwd")
        assert first.text == f"{box.workspace.root}/sub"
        assert (await box.call("Bash", command="pwd")).text == f"{box.workspace.root}/sub"
        refused = await box.call("Bash", command="touch /usr/wieldy-was-here")
        assert refused.is_error
        assert "[sandbox: the command could write only in the project" in refused.text
        assert not os.path.exists("/usr/wieldy-was-here")


@pytest.mark.asyncio
@pytest.mark.skipif(
    choose_wrapper(None).mechanism != "bubblewrap", reason="NOT TESTED: sandboxed Bash calls: bubblewrap does not work"
)
@pytest.mark.parametrize(
    ("command", "confined"),
    [("env", False), ("env; env", False), ("env && true", True), ("env $(true)", True), ("sh -c env", True)],
)
async def test_only_what_is_all_of_excluded_programs_runs_outside_the_sandbox(open_box, monkeypatch, command, confined):
    monkeypatch.setenv("HTTPS_PROXY", "the user's")
    sandbox = {"enabled": True, "excludedCommands": ["env"], "allowedDomains": ["example.invalid"]}
    async with open_box(sandbox=sandbox) as box:
        result = await box.call("Bash", command=command)
        assert ("HTTPS_PROXY=the user's" not in result.text) is confined


@pytest.mark.asyncio
async def test_the_streams_are_apart_where_the_settings_ask_for_it(open_box):
    async with open_box(bash={"separateStderr": True}) as box:
        result = await box.call("Bash", command="echo out; sleep 0.3; echo err >&2; sleep 0.3; echo more; exit 3")
        assert (result.data["stdout"], result.data["stderr"]) == ("out\nmore\n", "err\n")
        assert result.data["output"] == "out\nerr\nmore\n"
        assert result.text.startswith("out\nerr\nmore\n[exit code 3")
        assert result.data["notices"] == ["exit code 3"]
        flood = await box.call("Bash", command="seq 40000; seq 40000 >&2")
        assert flood.data["bytes"] == 2 * len("".join(f"{i}\n" for i in range(1, 40_001)))
        assert flood.data["stderr"].startswith("1\n2\n") and flood.data["stderr"].endswith("\n40000\n")


@pytest.mark.asyncio
async def test_a_background_shell_has_a_pid(open_box):
    async with open_box() as box:
        started = await box.call("Bash", command="echo $$; sleep 300", run_in_background=True)
        pid = started.data["pid"]
        assert f"(pid {pid})" in started.text
        output = await box.call("BashOutput", shell_id="bash_1", wait=10)
        assert (output.data["stdout"], output.data["pid"]) == (f"{pid}\n", pid)
        assert (await box.call("KillShell", shell_id="bash_1")).data["pid"] == pid


@pytest.mark.asyncio
async def test_no_secret_is_in_the_environment_of_a_command_unless_the_settings_name_it(open_box, monkeypatch):
    for name in ("ANTHROPIC_API_KEY", "SMTP_PASS", "MYSQL_PWD", "GH_TOKEN"):
        monkeypatch.setenv(name, "hunter2")
    async with open_box() as box:
        assert "hunter2" not in (await box.call("Bash", command="env")).text
        result = await box.call("Bash", command="echo $GH_TOKEN.")
        assert result.text.startswith(".\n[GH_TOKEN looks like a secret")
        assert "`bash.keepEnv`" in result.text
        await box.call("Bash", command="env > seen", run_in_background=True)
        shell = await box.call("BashOutput", shell_id="bash_1", wait=10)
        assert shell.data["status"] == "exited"
        assert "hunter2" not in (await box.call("Bash", command="cat seen")).text
    async with open_box(bash={"keepEnv": ["GH_TOKEN"]}, env={"SMTP_PASS": "set by the settings"}) as box:
        result = await box.call("Bash", command="echo $GH_TOKEN $SMTP_PASS $MYSQL_PWD")
        assert result.text.startswith("hunter2 set by the settings\n")


@pytest.mark.asyncio
async def test_a_command_that_only_reads_looks_for_no_other_version_of_a_program(open_box, monkeypatch):
    for name in ("PIP_DISABLE_PIP_VERSION_CHECK", "GOTOOLCHAIN"):
        monkeypatch.delenv(name, raising=False)
    async with open_box() as box:
        result = await box.call("Bash", command="printenv PIP_DISABLE_PIP_VERSION_CHECK GOTOOLCHAIN")
    assert "1\nlocal" in result.text
