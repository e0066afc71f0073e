"""Reading files of tasks: everything wrong is found before anything starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wieldy.faces.batch.tasks import (
    Task,
    TaskDefaults,
    TaskFileError,
    TaskLimits,
    TaskSource,
    parse_duration,
    parse_tasks,
    read_tasks,
    shard,
)


def parsed(*rows: Any, folder: Path, **defaults: Any) -> tuple[tuple[Task, ...], tuple[str, ...]]:
    data = b"\n".join(row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows)
    result = parse_tasks(data, TaskDefaults(**defaults), name="t.jsonl", folder=str(folder))
    return result.tasks, result.warnings


def problems(*rows: Any, folder: Path, **defaults: Any) -> list[str]:
    with pytest.raises(TaskFileError) as error:
        parsed(*rows, folder=folder, **defaults)
    return str(error.value).splitlines()


def test_a_task_keeps_what_it_says_and_takes_the_rest_from_the_defaults(tmp_path):
    (tmp_path / "répo one").mkdir()
    row = {
        "id": "a", "prompt": "fix it", "root": "répo one", "check": "make test", "tools": ["Read", "Edit"],
        "limits": {"seconds": "30m", "max_turns": 5}, "env": {"CI": "1"}, "tags": ["easy"], "mode": "plan",
    }  # fmt: skip
    defaults = {"model": "anthropic/x", "mode": "acceptEdits", "limits": TaskLimits(max_turns=50, max_cost=2.0)}
    (task, other), warnings = parsed(row, {"id": "b", "prompt": "x", "root": "répo one"}, folder=tmp_path, **defaults)
    assert warnings == ()
    assert task.source == TaskSource("root", str(tmp_path / "répo one"))
    assert (task.model, task.mode, task.tools) == ("anthropic/x", "plan", ("Read", "Edit"))
    assert task.limits == TaskLimits(max_turns=5, max_cost=2.0, seconds=1800.0)
    assert (other.mode, other.limits.max_turns) == ("acceptEdits", 50)


def test_a_row_of_swe_bench_is_a_task_and_its_solution_is_left_out(tmp_path):
    row = {
        "instance_id": "django__django-1", "problem_statement": "it breaks", "repo": "django/django", "base_commit": "abc",
        "patch": "GOLD", "test_patch": "GOLD", "hints_text": "GOLD", "FAIL_TO_PASS": "[]", "version": "3.0",
    }  # fmt: skip
    (task,), warnings = parsed(row, folder=tmp_path)
    assert warnings == ()
    assert task.id == "django__django-1"
    assert task.source == TaskSource("git", "https://github.com/django/django", "abc")
    assert "GOLD" not in repr(task)


@pytest.mark.parametrize("name", ["django/django", "django__django", "django.git"])
def test_a_folder_of_clones_comes_before_github(tmp_path, name):
    (tmp_path / "clones" / name).mkdir(parents=True)
    row = {"instance_id": "i", "problem_statement": "p", "repo": "django/django", "base_commit": "abc"}
    (task,), _ = parsed(row, folder=tmp_path, repos=str(tmp_path / "clones"))
    assert task.source.location == str(tmp_path / "clones" / name)


def test_every_problem_is_told_with_its_line(tmp_path):
    found = problems(
        b'{"id": "a", ',
        b"",
        [1],
        {"prompt": "x", "root": "."},
        {"id": "c", "prompt": " ", "root": "nowhere"},
        {"id": "d", "prompt": "x", "root": ".", "git": "u://x"},
        {"id": "e", "prompt": "x"},
        {"id": "f", "prompt": "x", "root": ".", "limits": {"seconds": "soon", "max_turns": 0, "max_cost": True}},
        {"id": "g", "prompt": "x", "root": ".", "tools": ["Raed"], "mode": "yolo", "env": {"A": 1}},
        {"id": "h", "prompt": "x", "root": ".", "settings": {"permissions": {"allow": "Read"}}},
        {"id": "ok", "prompt": "x", "root": "."},
        {"id": "ok", "prompt": "x", "root": "."},
        folder=tmp_path,
    )
    by_line = {int(line.split(":")[1]) for line in found}
    assert by_line == {1, 3, 4, 5, 6, 7, 8, 9, 10, 12}
    text = "\n".join(found)
    assert "t.jsonl:4: `id` is missing" in text
    assert f"there is no folder {tmp_path}/nowhere" in text
    assert "did you mean `Read`?" in text
    assert "`soon` is not a duration" in text
    assert "t.jsonl:12: the id `ok` is already used in line 11" in text


def test_an_unknown_key_warns_once_with_the_likely_one(tmp_path):
    rows = [{"id": str(n), "prompt": "x", "root": ".", "promt": 1, "limits": {"max_turn": 3}} for n in range(3)]
    tasks, warnings = parsed(*rows, folder=tmp_path)
    assert len(tasks) == 3
    assert warnings[0] == "t.jsonl:1 and 2 more lines: the key `promt` is unknown and ignored; did you mean `prompt`?"
    assert "limits.max_turn" in warnings[1]


def test_many_problems_are_cut_short(tmp_path):
    found = problems(*[{"id": str(n)} for n in range(40)], folder=tmp_path)
    assert len(found) == 21
    assert found[-1] == "and 60 more"


def test_a_file_that_cannot_be_read_or_is_empty_says_so(tmp_path):
    with pytest.raises(TaskFileError, match=r"tasks\.jsonl: No such file"):
        read_tasks(str(tmp_path / "tasks.jsonl"), TaskDefaults())
    assert "no tasks" in problems(b" ", folder=tmp_path)[0]


def test_shards_are_disjoint_and_cover_everything(tmp_path):
    tasks, _ = parsed(*[{"id": str(n), "prompt": "x", "root": "."} for n in range(10)], folder=tmp_path)
    parts = [[task.id for task in shard(tasks, index, 3)] for index in (1, 2, 3)]
    assert sorted(name for part in parts for name in part) == sorted(task.id for task in tasks)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("30m", 1800), ("2h", 7200), ("0.5h", 1800)])
def test_durations_are_read(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-3", "3 weeks", "m", "1h30"])
def test_anything_else_is_no_duration(text):
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)
