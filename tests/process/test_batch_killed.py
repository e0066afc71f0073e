"""Drivers and workers of a batch may be killed at any moment: nothing finished is lost, and nothing finished is run again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
from tests.process.batch_runs import BatchRun, wait_until

from wieldy.agent.records import AssistantBlock, ToolResultRecord
from wieldy.agent.transcript import records

KILLS = 20
TASKS = 200


@pytest.fixture
def batch(tmp_path: Path) -> BatchRun:
    return BatchRun(tmp_path)


def notes_of(batch: BatchRun, identities: set[str]) -> Counter[str]:
    """How many tools have run for each identity."""
    counts = Counter(note.split("-")[0] for note in batch.notes())
    return Counter({identity: counts[identity] for identity in identities})


def wait_for_results(batch: BatchRun, process: subprocess.Popen[str], count: int) -> None:
    wait_until(lambda: len(batch.results()) >= count or process.poll() is not None)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_driver_killed_at_twenty_moments_finishes_everything_exactly_once(batch):
    batch.write_tasks(TASKS, model=batch.noting_script(1))
    chance = random.Random(23)
    finished: dict[str, int] = {}
    for _ in range(KILLS):
        process = batch.start("--workers", "16", "--processes", "1")
        if chance.random() < 0.6:
            wait_for_results(batch, process, len(batch.results()) + chance.randrange(1, 15))
        time.sleep(chance.random() * 0.3)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        now = {result.identity for result in batch.results() if result.is_final}
        assert set(finished) <= now, "a finished result was lost"
        notes = notes_of(batch, now)
        for identity, count_before in finished.items():
            assert notes[identity] == count_before, "a finished task was run again"
        finished = dict(notes)
    code, _, err = batch.run("--workers", "16")
    assert code == 0, err
    results = batch.results()
    assert Counter(result.id for result in results) == Counter(f"t{n}" for n in range(TASKS))
    assert {result.ending for result in results} == {"done"}
    notes = Counter(batch.notes())
    for result in results:
        assert notes[f"{result.identity}-{result.attempt} 0"] == 1
        calls = Counter[str]()
        for record in records(batch.out / result.folder):
            if isinstance(record, AssistantBlock) and record.block["type"] == "tool_use":
                calls[record.block["id"]] += 0
            elif isinstance(record, ToolResultRecord):
                calls[record.block["tool_use_id"]] += 1
        assert set(calls.values()) == {1}
    wait_until(lambda: not batch.processes(), what="processes are left")


def test_when_the_driver_dies_its_workers_and_their_commands_die_too(batch):
    command = "echo begun >> $LEDGER; sleep 300 & sleep 300"
    batch.write_tasks(2, model=batch.script("s", [{"call": "Bash", "input": {"command": command}}]))
    process = batch.start()
    wait_until(lambda: len(batch.notes()) == 2)
    assert len(batch.processes()) >= 4
    process.send_signal(signal.SIGKILL)
    process.communicate()
    wait_until(lambda: not batch.processes(), what="processes are left")


def test_a_task_that_kills_its_worker_is_told_apart_and_the_others_finish(batch):
    batch.write_tasks(6, model=batch.noting_script(3, pause=0.1), check="true")
    # The parent of the shell is the worker itself.
    poison = batch.script("poison", [{"call": "Bash", "input": {"command": "kill -9 $PPID; sleep 30"}}])
    rows = batch.tasks.read_text() + f'{{"id": "poison", "prompt": "x", "root": "project", "model": "{poison}"}}\n'
    batch.tasks.write_text(rows)
    code, _, err = batch.run("--processes", "1")
    assert code == 1, err
    endings = batch.endings()
    assert endings.pop("poison") == "crashed"
    assert set(endings.values()) == {"solved"}
    crashed = next(result for result in batch.results() if result.id == "poison")
    assert "killed by SIGKILL" in crashed.detail
    assert len(batch.results()) == 7
    wait_until(lambda: not batch.processes(), what="processes are left")


def test_a_worker_killed_from_outside_costs_no_task(batch):
    batch.write_tasks(12, model=batch.noting_script(3, pause=0.1), check="true")
    process = batch.start("--workers", "6", "--processes", "2")
    wait_until(lambda: len(batch.notes()) >= 6)
    children = psutil.Process(process.pid).children()
    workers = [child for child in children if "wieldy.faces.batch.workers" in " ".join(child.cmdline())]
    os.kill(workers[0].pid, signal.SIGKILL)
    assert process.wait(timeout=60) == 0
    process.communicate()
    assert Counter(batch.endings().values()) == {"solved": 12}
    assert len(batch.results()) == 12


def test_a_result_that_only_the_worker_has_written_is_adopted(batch):
    batch.write_tasks(1, model=batch.noting_script(1), check="true")
    batch.run()
    (batch.out / "results.jsonl").write_bytes(b"")
    code, _, _ = batch.run()
    assert code == 0
    assert batch.endings() == {"t0": "solved"}
    assert len(batch.notes()) == 1
