"""`wieldy batch` as people use it: runs, resuming, choosing, limits, shards, interrupts."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.needs import skip_untested
from tests.process.batch_runs import BatchRun, LimitingServer, wait_until
from tests.unit.faces.batch.small_disk import small_disk

from wieldy.shell.backends.overlay import overlay_problem


@pytest.fixture
def batch(tmp_path: Path) -> BatchRun:
    return BatchRun(tmp_path)


def test_a_run_writes_results_and_a_second_one_has_nothing_to_do(batch):
    batch.write_tasks(6, model=batch.noting_script(), check="test -f a.txt")
    code, out, err = batch.run("--workers", "3")
    assert (code, out) == (0, f"{batch.out}\n")
    assert "6 of 6 attempts to run" in err
    assert "6/6 done · 0 running · 0 left · 6 solved (100%)" in err
    assert set(batch.endings().values()) == {"solved"}
    run = json.loads((batch.out / "run.json").read_text())
    assert (run["v"], run["engine"], run["options"]["workers"]) == (1, "local", 3)
    assert len((batch.out / "preds.jsonl").read_text().splitlines()) == 6
    assert not (batch.out / "logs").exists()
    assert not list((batch.folder / "person" / ".cache" / "wieldy" / "batch").glob("*")), (
        "nothing is left of the copies"
    )
    before = (batch.out / "results.jsonl").read_bytes(), batch.notes()
    code, _, err = batch.run()
    assert code == 0
    assert "0 of 6 attempts to run, 6 finished before" in err
    assert ((batch.out / "results.jsonl").read_bytes(), batch.notes()) == before
    assert batch.processes() == []


def test_a_bad_line_is_told_before_anything_starts(batch):
    batch.write_tasks(2, model=batch.noting_script(), roots="typo")
    with batch.tasks.open("a") as file:
        file.write('{"id": "x"}\n')
    code, out, err = batch.run()
    assert (code, out) == (2, "")
    assert f"wieldy: {batch.tasks}:3: `prompt` is missing" in err
    assert not batch.out.exists()


@pytest.mark.parametrize(
    ("model", "words"),
    [("nosuch/model", "`nosuch/model` names no provider"), ("anthropic/claude-sonnet-5-5", "ANTHROPIC_API_KEY")],
)
def test_a_model_that_cannot_be_had_is_told_before_anything_starts(batch, model, words):
    batch.write_tasks(3, model=model)
    code, _, err = batch.run()
    assert (code, len(err.splitlines())) == (2, 1)
    assert words in err
    assert batch.results() == []


def test_the_last_words_say_what_went_wrong(batch):
    batch.write_tasks(1, model=batch.script("p", [{"fail": "bad_request", "message": "no such parameter"}]))
    code, _, err = batch.run()
    assert code == 1
    assert "bad_request (1×), the last one: no such parameter" in err


def test_a_changed_task_runs_anew_and_the_old_result_is_kept(batch):
    batch.write_tasks(2, model=batch.noting_script())
    batch.run()
    batch.write_tasks(2, model=batch.noting_script(), check="true")
    _, _, err = batch.run()
    assert "2 of 2 attempts to run" in err
    assert "2 results of other tasks, or of another configuration, stay there" in err
    assert len(batch.results()) == 4


def test_going_on_is_the_default_and_can_be_refused(batch):
    batch.write_tasks(2, model=batch.noting_script())
    assert batch.run("--no-resume")[0] == 0
    code, _, err = batch.run("--no-resume")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "holds results of a run; give --out another place" in err
    assert "0 of 2 attempts to run, 2 finished before" in batch.run("--resume")[2]


def test_only_runs_what_is_chosen(batch):
    rows = [
        {"id": "good", "prompt": "x", "root": "project", "model": batch.noting_script(), "check": "true"},
        {"id": "bad", "prompt": "x", "root": "project", "model": batch.noting_script(), "check": "false"},
        {
            "id": "down",
            "prompt": "x",
            "root": "project",
            "model": batch.script("d", [{"fail": "auth"}]),
            "check": "true",
        },
    ]
    batch.tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, _, err = batch.run()
    assert code == 1
    assert "1 attempt has no result yet" in err
    assert batch.endings() == {"good": "solved", "bad": "unsolved", "down": "infra"}

    def run_ids(*options: str) -> list[str]:
        before = len(batch.results())
        batch.run(*options)
        return sorted(result.id for result in batch.results()[before:])

    assert run_ids() == ["down"]
    assert run_ids("--only", "infra") == ["down"]
    assert run_ids("--only", "failed") == ["bad"]
    assert "1 of 3 attempts to run, 1 finished before" in batch.run("--only", "failed", "--dry-run")[2].replace(
        "would", "to"
    )
    assert run_ids("--only", "good", "--only", "bad") == ["bad", "good"]
    code, _, err = batch.run("--only", "nothing")
    assert (code, "there is no task nothing" in err) == (2, True)


def test_shards_share_a_folder_and_do_everything_once(batch):
    batch.write_tasks(7, model=batch.noting_script(1))
    shards = [batch.start("--shard", f"{index}/3") for index in (1, 2, 3)]
    assert [shard.communicate(timeout=60)[1] and shard.returncode for shard in shards] == [0, 0, 0]
    assert sorted(batch.endings()) == [f"t{n}" for n in range(7)]
    assert len(batch.notes()) == 7
    code, _, err = batch.run()
    assert (code, "0 of 7 attempts to run" in err) == (0, True)


def test_a_shard_leaves_to_the_others_what_is_theirs_without_a_word(batch):
    batch.write_tasks(4, model=batch.noting_script(1))
    assert batch.run("--shard", "1/2")[0] == 0
    code, _, err = batch.run("--shard", "2/2", "--only", "t0")
    assert (code, err.splitlines()[0]) == (0, "wieldy: 0 of 0 attempts to run")
    code, _, err = batch.run("--shard", "2/2")
    assert (code, "another configuration" in err) == (0, False)
    assert len(batch.notes()) == 4


def test_attempts_are_independent_samples(batch):
    batch.write_tasks(2, model=batch.noting_script(1))
    batch.run("--attempts", "3")
    assert sorted((result.id, result.sample) for result in batch.results()) == [
        (name, sample) for name in ("t0", "t1") for sample in (1, 2, 3)
    ]
    assert len(batch.notes()) == 6


def test_what_the_next_task_would_meet_too_ends_the_run(batch):
    batch.write_tasks(40, model=batch.script("auth", [{"fail": "auth", "message": "the key is wrong"}]))
    code, _, err = batch.run("--workers", "2")
    assert code == 1
    assert "stopped: 3 attempts in a row ended with authentication: the key is wrong" in err
    assert sum(result.ending == "skipped" for result in batch.results()) >= 35


def test_transient_failures_are_tried_again_and_each_try_has_its_line(batch):
    batch.write_tasks(1, model=batch.script("p", [{"fail": "protocol", "message": "nonsense"}]))
    batch.run("--retries", "1")
    assert [(result.attempt, result.error_class) for result in batch.results()] == [(1, "protocol"), (2, "protocol")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_ends_everything_and_the_same_command_goes_on(batch, number):
    batch.write_tasks(4, model=batch.noting_script(2, pause=0.2))
    slow = batch.script("slow", [{"call": "Bash", "input": {"command": "echo begun >> $LEDGER; sleep 60"}}])
    rows = batch.tasks.read_text() + json.dumps({"id": "slow", "prompt": "x", "root": "project", "model": slow}) + "\n"
    batch.tasks.write_text(rows)
    process = batch.start()
    wait_until(lambda: "begun" in batch.notes())
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert "the same command continues where it stopped" in err
    wait_until(lambda: not batch.processes(), what="processes are left")
    assert "slow" not in batch.endings()


def test_a_second_driver_of_the_same_folder_is_refused(batch):
    batch.write_tasks(
        1, model=batch.script("s", [{"call": "Bash", "input": {"command": "echo x >> $LEDGER; sleep 30"}}])
    )
    first = batch.start()
    wait_until(batch.notes)
    code, _, err = batch.run()
    assert (code, "another `wieldy batch` writes to" in err) == (1, True)
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=30)


def test_an_overlay_holds_the_whole_session(batch):
    if (problem := overlay_problem()) is not None:
        skip_untested(f"overlay: {problem}")
    model = batch.script(
        "o",
        [{"call": "Write", "input": {"file_path": "new.txt", "content": "by Write\n"}}],
        [
            {
                "call": "Bash",
                "input": {"command": "cat new.txt a.txt; echo two >> a.txt; rm new.txt; echo x > other.txt"},
            }
        ],
        [{"call": "Read", "input": {"file_path": "a.txt"}}],
        [{"text": "done"}],
    )
    batch.write_tasks(3, model=model, check="grep -q two a.txt && test ! -e new.txt")
    code, _, err = batch.run("--isolate", "overlay")
    assert code == 0, err
    for result in batch.results():
        assert (result.ending, result.isolation, result.tool_errors) == ("solved", "overlay", 0)
        patch = (batch.out / result.folder / "patch.diff").read_text()
        assert "+two" in patch
        assert "b/other.txt" in patch
    assert (batch.project / "a.txt").read_text() == "one\n"
    assert os.listdir(batch.project) == ["a.txt"]
    assert batch.processes() == []


def test_a_dry_run_starts_nothing(batch):
    batch.write_tasks(3, model=batch.noting_script())
    code, out, err = batch.run("--dry-run")
    assert (code, out) == (0, "")
    assert "3 of 3 attempts would run" in err
    assert not batch.out.exists()


def test_a_run_can_be_watched_from_elsewhere(batch, wieldy):
    batch.write_tasks(2, model=batch.noting_script())
    batch.run()
    done = wieldy("batch", "watch", str(batch.out))
    assert done.returncode == 0
    assert "2/2 done" in done.stderr
    assert wieldy("batch", "watch", str(batch.folder)).returncode == 1
    state = json.loads((batch.out / "progress.json").read_text())
    (batch.out / "progress.json").write_text(json.dumps({**state, "done": 1, "at": state["at"] - 100}))
    stopped = wieldy("batch", "watch", str(batch.out))
    assert stopped.returncode == 1
    assert "no process works on this run any more" in stopped.stderr


def test_whoever_watches_a_run_that_was_interrupted_is_told_at_once(batch, wieldy):
    batch.write_tasks(
        3, model=batch.script("slow", [{"call": "Bash", "input": {"command": "echo begun >> $LEDGER; sleep 60"}}])
    )
    process = batch.start()
    wait_until(batch.notes)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 128 + signal.SIGTERM
    process.communicate()
    watched = wieldy("batch", "watch", str(batch.out))
    assert watched.returncode == 1
    assert watched.stderr.splitlines() == [
        "0/3 done · 0 running · 3 left · $0.00",
        "wieldy: no process works on this run any more; `wieldy batch` with the same words continues it",
    ]


def test_a_provider_that_limits_every_request_for_a_while_loses_no_task(batch):
    """The while is a few seconds here: the server says how long, so a minute differs by its number only."""
    with LimitingServer(seconds=4.0) as server:
        batch.write_tasks(12, model="anthropic/claude-sonnet-5-5", check="test -f a.txt", limits={"seconds": 3})
        batch.env["ANTHROPIC_API_KEY"] = "k"
        code, _, err = batch.run("--base-url", server.url, "--workers", "12")
    assert code == 0, err
    results = batch.results()
    assert sorted(result.id for result in results) == sorted(f"t{n}" for n in range(12))
    assert {result.ending for result in results} == {"solved"}
    assert max(result.waited_seconds for result in results) > 3
    assert max(result.seconds for result in results) < 3
    assert server.limited >= 1
    # All sessions share what was learned: without that, each would be refused every second.
    assert server.limited <= 12 + 8


def test_nothing_new_starts_when_the_budget_is_spent_and_a_larger_one_goes_on(batch):
    with LimitingServer() as server:
        batch.write_tasks(10, model="anthropic/claude-sonnet-5-5")
        batch.env["ANTHROPIC_API_KEY"] = "k"
        code, _, err = batch.run("--base-url", server.url, "--workers", "1", "--max-cost", "0.0015")
        assert code == 1
        assert "stopped: the budget of $0.0015 is spent" in err
        ran = [result for result in batch.results() if result.ending == "done"]
        assert [result.ending for result in batch.results()].count("skipped") == 10 - len(ran)
        assert sum(result.cost for result in ran[:-1]) < 0.0015 <= sum(result.cost for result in ran)
        code, _, err = batch.run("--base-url", server.url, "--max-cost", "1")
    assert code == 0, err
    assert sorted(result.id for result in batch.results() if result.ending == "done") == sorted(
        f"t{n}" for n in range(10)
    )


def test_a_full_disk_stops_the_run_with_one_clear_error_and_the_run_goes_on_later(batch):
    batch.write_tasks(30, model=batch.script("s", [{"text": "x" * 20_000}]))
    command = [sys.executable, "-m", "wieldy", "batch", str(batch.tasks), "--out", "out", "--processes", "1"]
    script = f"""
        {shlex.join(command)}; echo "code $?" >&2
        ls out/results.jsonl >/dev/null && mount -o remount,size=64m tmpfs . && {shlex.join(command)}; echo "code $?" >&2
        cat out/results.jsonl
    """
    done = subprocess.run(
        [*small_disk("400k"), "sh", "-c", script], cwd=tmp_folder(batch), env=batch.env, capture_output=True, text=True
    )
    first, _, second = done.stderr.partition("code 1\n")
    assert "No space left on device" in first
    assert "Traceback" not in first
    assert second.endswith("code 0\n"), second
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    finished = [json.loads(line)["id"] for line in lines if json.loads(line)["ending"] == "done"]
    assert sorted(finished) == sorted(f"t{n}" for n in range(30))


def tmp_folder(batch: BatchRun) -> Path:
    folder = batch.folder / "disk"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("in_git", [False, True])
def test_results_and_tasks_inside_the_project_are_neither_copied_nor_part_of_it(batch, in_git):
    """As in `cd project; wieldy batch tasks.jsonl --root . --out runs/first`."""
    if in_git:
        for words in (
            ["init", "-q"],
            ["add", "a.txt"],
            ["-c", "user.name=t", "-c", "user.email=t@e.org", "commit", "-qm", "x"],
        ):
            subprocess.run(["git", *words], cwd=batch.project, check=True)
    batch.out = batch.project / "runs" / "first"
    batch.tasks = batch.project / "tasks.jsonl"
    check = "test ! -e runs/first && test ! -e tasks.jsonl && test -e a.txt"
    batch.write_tasks(3, model=batch.noting_script(1), check=check, root=".")
    code, _, err = batch.run("--workers", "1")
    assert code == 0, err
    assert set(batch.endings().values()) == {"solved"}
    with batch.tasks.open("a") as file:
        row = {"id": "more", "prompt": "x", "root": ".", "model": batch.noting_script(1), "check": check}
        file.write(json.dumps(row) + "\n")
    _, _, err = batch.run()
    assert "1 of 4 attempts to run, 3 finished before" in err


@pytest.mark.parametrize(
    "words",
    [("--out", "s3://"), ("--out", "file://relative"), ("--engine", "dask"), ("--shard", "5/3"), ("--rate", "x")],
)
def test_a_wrong_option_is_one_line_and_nothing_is_made(batch, words):
    batch.write_tasks(1, model=batch.noting_script(1))
    before = sorted(os.listdir(batch.folder))
    code, out, err = batch.run(*words)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert words[1] in err
    assert sorted(os.listdir(batch.folder)) == before


def test_a_folder_may_have_the_name_of_a_kind_of_url(batch):
    batch.write_tasks(1, model=batch.noting_script(1))
    batch.out = Path("local")
    assert batch.run()[:2] == (0, "local\n")
    assert (batch.folder / "local" / "results.jsonl").exists()


def test_more_sessions_than_there_may_be_open_files_are_refused_before_anything_starts(batch):
    batch.write_tasks(3, model=batch.noting_script(1))
    words = [sys.executable, "-m", "wieldy", "batch", str(batch.tasks), "--out", str(batch.out), "--processes", "1"]
    limited = ["bash", "-c", 'ulimit -n 256 && exec "$@"', "bash", *words, "--mode", "bypassPermissions"]
    done = subprocess.run([*limited, "--workers", "100"], env=batch.env, capture_output=True, text=True)
    assert done.returncode == 2
    assert "--workers 100 needs 860 open files in each of 1 process, and the limit is 256" in done.stderr
    done = subprocess.run([*limited, "--workers", "20"], env=batch.env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_two_runs_may_share_a_folder_for_copies(batch):
    """What one finds there of an earlier run, it removes; the copies of the other stay."""
    slow = [{"call": "Bash", "input": {"command": "echo begun >> $LEDGER; sleep 2; cat a.txt"}}]
    batch.write_tasks(1, model=batch.script("slow", slow, [{"text": "done"}]), check="test -f a.txt")
    first = batch.start("--work", "work")
    wait_until(batch.notes)
    batch.write_tasks(1, model=batch.noting_script(1))
    first_out, batch.out = batch.out, batch.folder / "other"
    assert batch.run("--work", "work")[0] == 0
    _, err = first.communicate(timeout=30)
    assert first.returncode == 0, err
    batch.out = first_out
    assert batch.endings() == {"t0": "solved"}


def test_an_out_that_cannot_be_used_is_one_line(batch):
    batch.write_tasks(1, model=batch.noting_script(1))
    batch.out.write_text("a file")
    code, out, err = batch.run()
    assert (code, out) == (1, "")
    assert "cannot be written" in err
    assert "Traceback" not in err


def test_predictions_that_cannot_be_written_are_told_and_written_by_the_same_command_later(batch):
    batch.write_tasks(2, model=batch.noting_script(1))
    (batch.out / "preds.jsonl").mkdir(parents=True)
    (batch.out / "results.jsonl").touch()
    (batch.out / "run.json").write_text("{}")
    code, _, err = batch.run()
    assert (code, "preds.jsonl" in err) == (1, True), err
    assert "Traceback" not in err
    (batch.out / "preds.jsonl").rmdir()
    code, _, err = batch.run()
    assert (code, "0 of 2 attempts to run" in err) == (0, True), err
    assert len((batch.out / "preds.jsonl").read_text().splitlines()) == 2


def test_a_worker_that_cannot_be_started_is_one_line_that_says_what_to_do(batch):
    batch.write_tasks(2, model=batch.noting_script(1))
    batch.run("--only", "t0")
    (batch.out / "logs").touch()
    code, _, err = batch.run()
    assert code == 1
    assert err.splitlines()[-1].startswith("wieldy: no worker can be started: ")
    assert "the same command continues" in err
    assert "Traceback" not in err
    (batch.out / "logs").unlink()
    assert batch.run()[0] == 0
    assert len(batch.notes()) == 2


@pytest.mark.parametrize("isolate", ["copy", "overlay"])
def test_a_worker_imports_nothing_from_the_folder_one_stands_in(batch, isolate):
    if isolate == "overlay" and (problem := overlay_problem()) is not None:
        skip_untested(f"overlay: {problem}")
    mark = batch.folder / "planted ran"
    for name in ("typing", "json", "msgspec", "tarfile", "wieldy", "sitecustomize"):
        (batch.project / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').write(__name__)\n")
    batch.write_tasks(1, model=batch.script("s", [{"text": "done"}]))
    command = [sys.executable, "-I", "-m", "wieldy", "batch", str(batch.tasks), "--out", str(batch.out)]
    done = subprocess.run(
        [*command, "--isolate", isolate], cwd=batch.project, env=batch.env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert batch.endings() == {"t0": "done"}
    assert not mark.exists()


def test_what_a_batch_writes_is_private_at_umask_0_and_copies_of_a_private_project_stay_so(batch):
    batch.project.chmod(0o700)
    batch.write_tasks(
        1, model=batch.script("s", [{"call": "Bash", "input": {"command": "echo x > y"}}], [{"text": "done"}])
    )
    command = [sys.executable, "-I", "-m", "wieldy", "batch", str(batch.tasks), "--out", str(batch.out)]
    options = ("--mode", "bypassPermissions", "--isolate", "copy", "--keep-copies")
    script = f"umask 0; exec {shlex.join([*command, *options])}"
    done = subprocess.run(
        ["sh", "-c", script], cwd=batch.folder, env=batch.env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for top in (batch.out, batch.folder / "person"):
        files = [Path(folder, name) for folder, _, names in os.walk(top) for name in names]
        private = [
            path
            for path in files
            if path.name in ("trajectory.json", "a.txt", "y", "results.jsonl", "transcript.jsonl")
        ]
        assert private or top != batch.out
        for path in private:
            places = [
                path,
                *(above for above in path.parents if above.is_relative_to(batch.folder) and above != batch.folder),
            ]
            assert any(place.stat().st_mode & 0o077 == 0 for place in places), path
        for path in (top, *(Path(folder, name) for folder, names, files in os.walk(top) for name in (*names, *files))):
            above = [each for each in path.parents if each.is_relative_to(batch.folder) and each != batch.folder]
            is_private = any(each.stat().st_mode & 0o077 == 0 for each in above)
            assert is_private or path.is_symlink() or path.stat().st_mode & 0o022 == 0, path
