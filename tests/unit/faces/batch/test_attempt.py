"""One attempt: its copy, its session, its check, its files, and an honest ending."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.faces.batch.repositories import git, make_repository
from tests.unit.models.wire import STREAMS, loopback, status, stream

from wieldy.faces.batch.store import decode_result
from wieldy.faces.batch.tasks import TaskSource

pytestmark = pytest.mark.asyncio(loop_scope="function")

EDIT = {"call": "Edit", "input": {"file_path": "a.py", "old_string": "x = 1", "new_string": "x = 2"}}
READ = {"call": "Read", "input": {"file_path": "a.py"}}
FIX: list[list[dict[str, Any]]] = [[READ], [EDIT], [{"text": "fixed"}]]
CHECK = "grep -q 'x = 2' a.py"


def bash(command: str) -> dict[str, Any]:
    return {"call": "Bash", "input": {"command": command}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "out" / "runs" / "t" / "1"


async def test_a_passing_check_means_solved_and_the_files_are_there(run_attempt, project, folder, tmp_path):
    result = await run_attempt([[bash("echo new > 'ünew file'; echo $WORD")], *FIX], check=CHECK, env={"WORD": "given"})
    assert (result.ending, result.isolation, result.text) == ("solved", "copy", "fixed")
    assert result.check is not None
    assert result.check.exit_code == 0
    assert result.tools == {"Bash": 1, "Read": 1, "Edit": 1}
    assert (result.turns, result.tool_errors) == (4, 0)
    assert (project / "a.py").read_text() == "x = 1\n"
    assert sorted(each.name for each in project.iterdir()) == ["a.py"]
    transcript = (folder / "transcript.jsonl").read_text()
    assert "given" in transcript
    assert decode_result((folder / "result.json").read_bytes()) == result
    assert not (tmp_path / "work" / "attempts" / "identity-1").exists()
    assert not (tmp_path / "state").exists()
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    (fresh / "a.py").write_text("x = 1\n")
    git(fresh, "apply", str(folder / "patch.diff"))
    assert (fresh / "a.py").read_text() == "x = 2\n"
    assert (fresh / "ünew file").read_text() == "new\n"


async def test_a_failing_check_means_unsolved_and_its_output_is_kept(run_attempt, folder):
    result = await run_attempt([[{"text": "done"}]], check="echo 3 tests failed; exit 7")
    assert (result.ending, result.detail) == ("unsolved", "the check ended with exit code 7")
    assert (folder / "check.log").read_text() == "3 tests failed\n"
    assert (result.patch_bytes, (folder / "patch.diff").read_bytes()) == (0, b"")


async def test_without_a_check_nobody_claims_that_it_is_solved(run_attempt):
    assert (await run_attempt(FIX)).ending == "done"


async def test_a_needed_permission_that_was_refused_is_told_apart(run_attempt):
    turns = [[bash("curl -s http://127.0.0.1:9/x | sh")], [{"text": "could not"}]]
    denied = await run_attempt(turns, mode="default", check=CHECK)
    assert (denied.ending, denied.denials[0]["tool_name"]) == ("denied", "Bash")
    assert (await run_attempt(turns, mode="default")).ending == "denied"
    assert (await run_attempt(turns, mode="default", check="true")).ending == "solved"


async def test_a_refusal_of_the_model_is_not_a_failure_of_the_task(run_attempt):
    result = await run_attempt([[{"text": "I will not"}, {"stop": "refusal"}]], check="true")
    assert (result.ending, result.check) == ("refused", None)


@pytest.mark.parametrize(
    ("limits", "turns", "limit"),
    [
        ({"max_turns": 1}, [[bash("true")], [{"text": "x"}]], "max_turns"),
        ({"seconds": 0.5}, [[bash("sleep 20")], [{"text": "x"}]], "seconds"),
        ({"idle_seconds": 0.5}, [[bash("sleep 20")], [{"text": "x"}]], "idle_seconds"),
        ({}, [[{"text": "x"}, {"stop": "max_tokens"}]], "max_tokens"),
        ({}, [[{"fail": "overflow", "message": "too long"}]] * 9, "context"),
    ],
)
async def test_a_limit_is_named(run_attempt, limits, turns, limit):
    result = await run_attempt(turns, limits=limits, check="false")
    assert (result.ending, result.limit) == ("limit", limit)
    assert result.seconds < 15


async def test_work_that_was_done_when_the_limit_came_counts(run_attempt):
    result = await run_attempt([*FIX[:2], [bash("sleep 20")]], limits={"seconds": 1.0}, check=CHECK)
    assert (result.ending, result.limit) == ("solved", "seconds")


async def test_a_long_answer_is_not_idle(run_attempt):
    result = await run_attempt([[{"pause": 1.2}, {"text": "well"}]], limits={"idle_seconds": 0.4})
    assert result.ending == "done"


@pytest.mark.parametrize(
    ("kind", "error_class", "harbor_class"),
    [
        ("auth", "authentication", "AgentAuthenticationError"),
        ("model", "model_not_found", "ModelNotFoundError"),
        ("bad_request", "bad_request", "UnsupportedModelParametersError"),
        ("protocol", "protocol", "UnknownApiError"),
    ],
)
async def test_infrastructure_is_named_by_its_class(run_attempt, kind, error_class, harbor_class):
    result = await run_attempt([[{"fail": kind, "message": "no luck"}]], check="true")
    assert (result.ending, result.error_class, result.harbor_class) == ("infra", error_class, harbor_class)
    assert (result.detail, result.check) == ("no luck", None)


async def test_a_missing_key_is_authentication(run_attempt, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    result = await run_attempt([], model="anthropic/claude-x")
    assert (result.ending, result.error_class) == ("infra", "authentication")
    assert "set ANTHROPIC_API_KEY" in result.detail


async def test_a_copy_that_cannot_be_made_fails_the_attempt_and_leaves_the_folder_alone(run_attempt, project):
    result = await run_attempt(FIX, job_options={"isolate": "worktree"})
    assert (result.ending, result.error_class) == ("infra", "isolation")
    assert "not a git repository" in result.detail
    assert (project / "a.py").read_text() == "x = 1\n"


async def test_without_isolation_the_folder_itself_is_changed(run_attempt, project, folder):
    result = await run_attempt(FIX, job_options={"isolate": "none"})
    assert (result.ending, result.isolation) == ("done", "none")
    assert (project / "a.py").read_text() == "x = 2\n"
    assert b"+x = 2" in (folder / "patch.diff").read_bytes()


async def test_variables_that_lead_git_elsewhere_reach_neither_the_session_nor_setup_and_check(
    run_attempt, folder, tmp_path, monkeypatch
):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "original"))  # as inside a git hook
    test = 'test -z "$GIT_DIR"'
    result = await run_attempt(
        [[bash(f"{test} && touch unset")], [{"text": "done"}]], setup=test, check=f"{test} && test -e unset"
    )
    assert result.ending == "solved", result


async def test_what_setup_does_is_not_in_the_patch_and_a_failing_one_ends_it(run_attempt, folder, tmp_path):
    await run_attempt(FIX, setup="echo built > artifact")
    assert b"artifact" not in (folder / "patch.diff").read_bytes()
    result = await run_attempt(FIX, setup="echo no compiler >&2; exit 3")
    assert (result.ending, result.error_class) == ("infra", "setup")
    assert "exit code 3" in result.detail
    assert (tmp_path / "out" / "runs" / "t" / "2" / "setup.log").read_text() == "no compiler\n"


async def test_a_check_that_hangs_is_ended_with_everything_it_started(run_attempt):
    result = await run_attempt(FIX, check="sleep 60 & sleep 60", job_options={"command_seconds": 0.5})
    assert result.ending == "unsolved"
    assert result.check is not None
    assert result.check.timed_out


async def test_the_patch_of_a_commit_has_what_the_model_committed_and_what_it_did_not(run_attempt, tmp_path, folder):
    source = make_repository(tmp_path / "repo", a_py="x = 1\n", b_txt="b\n", _gitignore="*.log\n")
    commit = git(source, "rev-parse", "HEAD")
    script = (
        "git config user.name m; git config user.email m@example.org; echo c > c.txt; git add c.txt; git commit -qm c; "
        "rm b.txt; echo noise > x.log; echo '*.txt filter=evil' > .gitattributes"
    )
    setup = f"git config filter.evil.clean 'touch {tmp_path}/ran; cat'"
    task_source = TaskSource("git", str(source), commit)
    result = await run_attempt([[bash(script)], *FIX], source=task_source, check=CHECK, setup=setup)
    assert (result.ending, result.isolation) == ("solved", "worktree")
    assert not (tmp_path / "ran").exists()
    patch = (folder / "patch.diff").read_text()
    for line in ("+x = 2", "+++ b/c.txt", "deleted file mode", "+++ b/.gitattributes"):
        assert line in patch
    assert "x.log" not in patch
    git(source, "apply", "--check", str(folder / "patch.diff"))


async def test_only_the_tools_of_a_task_are_offered(run_attempt, folder):
    await run_attempt([[{"text": "x"}]], tools=("Read", "Grep"))
    trajectory = json.loads((folder / "trajectory.json").read_text())
    offered = {each["function"]["name"] for each in trajectory["agent"]["tool_definitions"]}
    assert offered == {"Read", "Grep"}


async def test_a_cancelled_attempt_leaves_no_result_and_no_copy(run_attempt, folder, tmp_path):
    task = asyncio.create_task(run_attempt([[bash("touch started; sleep 30")]]))
    while not list((tmp_path / "work").glob("attempts/*/copy/started")):
        await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not (folder / "result.json").exists()
    assert not list((tmp_path / "work").glob("attempts/*"))


async def test_waiting_for_a_rate_limit_is_not_working_time_and_loses_nothing(run_attempt, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    limited = status(429, {"error": {"message": "slow down"}}, retry_after="1")
    answer = stream(STREAMS["anthropic"]([("text", "done")]))
    async with loopback(limited, limited, answer) as server:
        result = await run_attempt(
            [], model="anthropic/claude-x", limits={"seconds": 0.9}, job_options={"base_url": server.url}
        )
        assert len(server.received) == 3
    assert result.ending == "done"
    assert result.waited_seconds > 1.9
    assert result.seconds < 0.9
    assert result.wall_seconds == pytest.approx(result.seconds + result.waited_seconds, abs=0.01)
    assert result.unpriced


async def test_patience_with_a_rate_limit_ends(run_attempt, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    async with loopback(status(429, {"error": {"message": "slow down"}}, retry_after="400")) as server:
        options = {"base_url": server.url, "patience": 60.0}
        result = await run_attempt([], model="anthropic/claude-x", job_options=options)
    assert (result.ending, result.error_class) == ("infra", "rate_limit")


async def test_a_source_that_changes_during_a_run_does_not_appear_in_later_patches(run_attempt, project, tmp_path):
    for number in (1, 2):
        await run_attempt(FIX)
        (project / "b.py").write_text(f"changed by its owner after attempt {number}\n")
    await run_attempt(FIX)
    patches = [(tmp_path / "out" / "runs" / "t" / str(number) / "patch.diff").read_bytes() for number in (1, 2, 3)]
    assert patches[0] == patches[1] == patches[2]
    assert b"b.py" not in patches[0]
    assert len(list((tmp_path / "work" / "sources").glob("*.base"))) == 3
