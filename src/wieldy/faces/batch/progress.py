"""Progress as one line: done, running, left, solved, cost, rate, time left, and the commonest errors."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from wieldy.faces.batch.durations import format_duration

_SHARD = re.compile(r"-of-(\d+)")
BAR_CELLS = 20
STALE_SECONDS = 60.0
ERRORS_SHOWN = 3


def current_states(states: Mapping[str, Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], int]:
    """The states that belong to the latest division of a run into shards, by the names of their files; and how many are missing.

    A run may have been divided in another way before; what those shards said last is out of date.
    """
    if not states:
        return [], 0
    latest = max(states, key=lambda name: states[name].get("at", 0.0))
    division = _SHARD.search(latest)
    count = int(division[1]) if division else 1
    current = [
        states[name] for name in sorted(states) if (int(match[1]) if (match := _SHARD.search(name)) else 1) == count
    ]
    return current, count - len(current)


def merge_states(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One state of several shards."""
    endings: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    running: dict[str, Any] = {}
    for state in states:
        endings.update(state["endings"])
        errors.update(state["errors"])
        running.update(state["running"])
    return {
        "at": max(state["at"] for state in states),
        "started": min(state["started"] for state in states),
        **{name: sum(state[name] for state in states) for name in ("total", "done", "done_before", "cost")},
        "running": running,
        "endings": dict(endings),
        "errors": dict(errors),
        "over": all(state["over"] for state in states),
        "stopping": next((state["stopping"] for state in states if state["stopping"]), ""),
    }


def progress_line(state: Mapping[str, Any], *, bar: bool = True, width: int | None = None) -> str:
    """The line for a state as `RunState.as_dict` gives it, cut to a width."""
    total, done, running = state["total"], state["done"], len(state["running"])
    seconds = max(state["at"] - state["started"], 0.001)
    rate = (done - state["done_before"]) / seconds
    left = total - done
    parts = [f"{done}/{total} done", f"{running} running", f"{max(left - running, 0)} left"]
    endings = state["endings"]
    if judged := sum(endings.get(name, 0) for name in ("solved", "unsolved", "limit", "denied", "refused")):
        parts.append(f"{endings.get('solved', 0)} solved ({endings.get('solved', 0) / judged:.0%})")
    if ended := endings.get("done", 0):
        parts.append(f"{ended} ended without a check")
    parts.append(f"${state['cost']:.2f}")
    if rate > 0:
        parts.append(f"{rate:.1f}/s" if rate >= 1 else f"{rate * 60:.1f}/min")
        if left and not state["over"]:
            parts.append(f"{format_duration(left / rate)} to go")
    if errors := Counter(state["errors"]).most_common(ERRORS_SHOWN):
        parts.append("errors: " + ", ".join(f"{name} {count}" for name, count in errors))
    if state["stopping"]:
        parts.append(f"stopping: {state['stopping']}")
    elif time.time() - state["at"] > STALE_SECONDS and left:
        parts.append(f"no news for {format_duration(time.time() - state['at'])}")
    line = " · ".join(parts)
    if bar:
        cells = BAR_CELLS * done // total if total else BAR_CELLS
        line = f"[{'#' * cells}{'-' * (BAR_CELLS - cells)}] {line}"
    return line if width is None or len(line) <= width else line[: max(width - 1, 0)] + "…"
