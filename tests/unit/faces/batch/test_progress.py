"""The progress of a run, in one line: of its latest shards, and of no others."""

from __future__ import annotations

from typing import Any

from wieldy.faces.batch.report import current_states, merge_states, progress_line


def state(at: float, done: int, total: int = 4, **more: Any) -> dict[str, Any]:
    fields = {
        "at": at,
        "started": 0.0,
        "total": total,
        "done": done,
        "done_before": 0,
        "cost": 0.5,
        "stopping": "",
        "over": False,
    }
    return {**fields, "running": {}, "endings": {"solved": done}, "errors": {}, **more}


def test_shards_are_added_up():
    states = {f"progress-{n}-of-2.json": state(10.0, n) for n in (1, 2)}
    current, missing = current_states(states)
    assert missing == 0
    assert progress_line(merge_states(current), bar=False).startswith("3/8 done · 0 running · 5 left · 3 solved (100%)")


def test_an_earlier_division_of_the_run_does_not_count():
    states = {
        "progress.json": state(5.0, 8, 8),
        "progress-1-of-2.json": state(20.0, 4),
        "progress-2-of-2.json": state(1.0, 3),
        "progress-1-of-3.json": state(4.0, 2),
    }
    assert current_states(states) == ([states["progress-1-of-2.json"], states["progress-2-of-2.json"]], 0)
    states["progress.json"] = state(30.0, 8, 8)
    assert current_states(states) == ([states["progress.json"]], 0)


def test_shards_that_have_not_begun_are_counted():
    assert current_states({"progress-3-of-64.json": state(1.0, 1)})[1] == 63
    assert current_states({}) == ([], 0)
