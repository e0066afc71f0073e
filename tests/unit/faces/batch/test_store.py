"""The results of a run on disk: durable before they are told, with one writer, and readable after any kill."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.faces.batch.small_disk import small_disk

from wieldy.faces.batch.store import (
    AttemptResult,
    ResultStore,
    RunFolder,
    Shard,
    StoreError,
    folder_name,
    latest_results,
    write_durably,
)

pytestmark = pytest.mark.asyncio(loop_scope="function")


def result(name: str, ending: str = "solved", **more) -> AttemptResult:
    return AttemptResult(id=name, identity=f"h-{name}", ending=ending, **more)  # type: ignore[arg-type]


def opened(path: Path, part: Shard | None = None) -> ResultStore:
    store = ResultStore(path, part or Shard())
    store.open()
    store.write_run({"v": 1})
    return store


async def test_results_come_back_in_order(tmp_path):
    store = opened(tmp_path / "out")
    await asyncio.gather(*(store.append(result(str(n), cost=0.5)) for n in range(50)))
    store.close()
    read = list(RunFolder(tmp_path / "out").results())
    assert [each.id for each in read] == [str(n) for n in range(50)]
    assert read[7].cost == 0.5


async def test_a_result_is_on_disk_when_append_returns(tmp_path):
    code = """
import asyncio, os, signal, sys
from wieldy.faces.batch.store import AttemptResult
from wieldy.faces.batch.store import ResultStore
async def main():
    store = ResultStore(sys.argv[1]); store.open(); store.write_run({})
    for n in range(3):
        await store.append(AttemptResult(id=str(n), identity=str(n), ending="solved"))
    print("told", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "out")], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("told\n", -signal.SIGKILL)
    assert [each.id for each in RunFolder(tmp_path / "out").results()] == ["0", "1", "2"]


async def test_a_torn_last_line_is_skipped_and_swallows_nothing(tmp_path):
    store = opened(tmp_path / "out")
    await store.append(result("a"))
    store.close()
    with (tmp_path / "out" / "results.jsonl").open("ab") as file:
        file.write(b'{"id": "torn", "identity": "h-to')
    store = opened(tmp_path / "out")
    await store.append(result("b"))
    store.close()
    assert [each.id for each in RunFolder(tmp_path / "out").results()] == ["a", "b"]


async def test_one_process_writes_at_a_time_and_the_other_says_who(tmp_path):
    store = opened(tmp_path / "out")
    with pytest.raises(StoreError, match=rf"another `wieldy batch` writes to .* \(pid {os.getpid()} on "):
        ResultStore(tmp_path / "out").open()
    store.close()
    opened(tmp_path / "out").close()


async def test_shards_write_side_by_side_and_are_read_as_one(tmp_path):
    first, second = opened(tmp_path / "out", Shard(1, 2)), opened(tmp_path / "out", Shard(2, 2))
    await first.append(result("a"))
    await second.append(result("b"))
    first.close()
    second.close()
    assert {each.id for each in RunFolder(tmp_path / "out").results()} == {"a", "b"}


async def test_a_folder_of_something_else_is_not_written_to(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(StoreError, match=r"not empty and holds no batch run \(it has thesis\.tex\)"):
        ResultStore(tmp_path).open()
    assert [each.name for each in tmp_path.iterdir()] == ["thesis.tex"]


async def test_a_start_killed_before_run_json_can_be_repeated(tmp_path):
    store = ResultStore(tmp_path / "out")
    store.open()
    store.close()
    assert not (tmp_path / "out" / "run.json").exists()
    opened(tmp_path / "out").close()


async def test_the_last_final_result_counts_and_infrastructure_never_replaces_one():
    results = [result("a", "infra"), result("a", "unsolved"), result("a", "infra"), result("b", "infra")]
    latest = latest_results(results)
    assert {key: each.ending for key, each in latest.items()} == {"h-a": "unsolved", "h-b": "infra"}
    assert latest_results([*results, result("a", "solved")])["h-a"].ending == "solved"


async def test_a_full_disk_is_one_clear_error_and_leaves_no_half_line(tmp_path):
    code = """
import asyncio, sys
from wieldy.faces.batch.store import AttemptResult
from wieldy.faces.batch.store import ResultStore
async def main():
    store = ResultStore("out"); store.open(); store.write_run({})
    for n in range(1000):
        await store.append(AttemptResult(id=str(n), identity=str(n), ending="solved", text="x" * 1000))
try:
    asyncio.run(main())
except Exception as error:
    print(f"{type(error).__name__}: {error}", file=sys.stderr)
sys.stdout.write(open("out/results.jsonl").read())
"""
    done = subprocess.run(
        [*small_disk("64k"), sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert "StoreError: out cannot be written: No space left on device" in done.stderr
    assert "the same command continues" in done.stderr
    lines = done.stdout.splitlines(keepends=True)
    assert len(lines) > 10
    assert [json.loads(line)["id"] for line in lines] == [str(n) for n in range(len(lines))]
    assert all(line.endswith("\n") for line in lines)


async def test_attempts_are_numbered_and_results_of_workers_are_found(tmp_path):
    store = opened(tmp_path / "out")
    first, folder = store.new_attempt_folder("a/b")
    second, _ = store.new_attempt_folder("a/b")
    write_durably(folder / "result.json", b'{"id": "a/b", "identity": "h", "ending": "solved"}')
    assert (first, second) == (1, 2)
    assert folder == tmp_path / "out" / "runs" / "a%2Fb" / "1"
    assert [each.identity for each in store.finished_in_folders("a/b")] == ["h"]
    store.close()


async def test_names_of_folders_are_safe_and_differ():
    ids = ["a", "django__django-1", "a/b", "a%2Fb", "..", ".", ".x", "x.", "ä", "x" * 300, "x" * 301, "a b", "A:b"]
    names = [folder_name(each) for each in ids]
    assert len(set(names)) == len(ids)
    for name in names:
        assert "/" not in name
        assert name.strip(".") == name != ""
        assert len(name) < 140


async def test_predictions_have_the_keys_of_the_evaluator(tmp_path):
    store = opened(tmp_path / "out")
    _, folder = store.new_attempt_folder("a")
    (folder / "patch.diff").write_text("--- a\n")
    await store.append(result("a", model="m", folder="runs/a/1"))
    await store.append(result("b", "infra"))
    store.write_predictions(())
    assert read_lines(tmp_path / "out" / "preds.jsonl") == [
        {"instance_id": "a", "model_name_or_path": "m", "model_patch": "--- a\n"}
    ]
    store.close()


async def test_each_task_is_predicted_once_as_it_is_now_and_further_samples_apart(tmp_path):
    store = opened(tmp_path / "out")
    for identity, model in (("new", "new"), ("old", "old")):
        await store.append(AttemptResult(id="a", identity=identity, ending="solved", model=model))
    await store.append(AttemptResult(id="a", identity="second", ending="solved", model="new", sample=2))
    await store.append(AttemptResult(id="b", identity="b1", ending="solved", model="x"))
    store.write_predictions({"new", "second"})
    names = [(line["instance_id"], line["model_name_or_path"]) for line in read_lines(tmp_path / "out" / "preds.jsonl")]
    assert names == [("a", "new"), ("b", "x")]
    assert [line["instance_id"] for line in read_lines(tmp_path / "out" / "preds-2.jsonl")] == ["a"]
    store.close()


async def test_a_later_result_of_a_shard_wins_over_an_earlier_one_of_the_whole_run(tmp_path):
    whole = opened(tmp_path / "out")
    await whole.append(result("a", "unsolved", started=1.0))
    whole.close()
    part = opened(tmp_path / "out", Shard(1, 2))
    await part.append(result("a", "solved", started=2.0))
    part.close()
    assert latest_results(RunFolder(tmp_path / "out").results())["h-a"].ending == "solved"


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_a_state_that_is_written_late_does_not_replace_the_last_one(tmp_path):
    store = opened(tmp_path / "out")
    await store.aclose({"over": True, "done": 3}, complete=True)
    store.write_progress({"over": False, "done": 2})
    assert store.read_progress()["progress.json"] == {"over": True, "done": 3}
    store.close()
