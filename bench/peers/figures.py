"""What the runs come to: for every agent and every question one number, the best of its runs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.peers.measure import Run
from bench.peers.script import FEW, MANY

Runs = Mapping[str, Sequence[Run]]
"""All runs of one agent, by scenario."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A question and its unit; `of` takes it from an agent's runs."""

    key: str
    text: str
    unit: str
    of: Callable[[Runs], float]


def _least(scenario: str, value: Callable[[Run], float], times: float = 1e3) -> Callable[[Runs], float]:
    return lambda runs: times * min(value(run) for run in runs[scenario])


def _mean(run: Run) -> float:
    return statistics.fmean(run.gaps)


def _late(run: Run) -> float:
    """The gap at turn 200: the median of the last twenty, since a single one is mostly luck."""
    return statistics.median(run.gaps[-20:])


def _to_tool(run: Run) -> float:
    return run.to_tool if run.to_tool is not None else float("nan")


def _a_piece(runs: Runs) -> float:
    """What one more piece takes: a long answer less a short one, so that nothing that is done once is in it."""
    many, few = (min(run.cpu for run in runs[f"{count} pieces"]) for count in (MANY, FEW))
    return 1e3 * (many - few) / (MANY - FEW)


FIGURES = (
    Figure("first", "start to first request", "ms", _least("hello", lambda run: run.to_first_request)),
    Figure("hello", "hello, start to end", "ms", _least("hello", lambda run: run.wall)),
    Figure("hello_cpu", "hello, CPU", "ms", _least("hello", lambda run: run.cpu)),
    Figure("hello_memory", "hello, memory", "MB", lambda runs: max(run.memory for run in runs["hello"])),
    Figure("read", "a turn with a read (mean of 50)", "ms", _least("reads", _mean)),
    Figure("command", "a turn with a command (mean of 50)", "ms", _least("commands", _mean)),
    Figure("ten", "10 reads in one turn", "ms", _least("ten reads", _mean)),
    Figure("ten_cold", "… of a model that answers at once: 10 reads", "ms", _least("ten reads, at once", _mean)),
    Figure("sleeps", "5 × `sleep 0.5` in one turn", "ms", _least("sleeps", _mean)),
    Figure("sleeps_cold", "… of a model that answers at once: 5 × `sleep 0.5`", "ms", _least("sleeps, at once", _mean)),
    Figure("starts", "a command begins after its call is complete", "ms", _least("overlap", _to_tool)),
    Figure(
        "starts_cold", "… of a model that answers at once: a command begins", "ms", _least("overlap, at once", _to_tool)
    ),
    Figure("leaves", "next request after the end of the stream, tool done", "ms", _least("overlap", _mean)),
    Figure("chunk", "CPU for a streamed piece", "ms", _a_piece),
    Figure(
        "early", "200 × 20 KB: a turn, early", "ms", _least("growth", lambda run: statistics.median(run.gaps[4:24]))
    ),
    Figure("late", "200 × 20 KB: a turn, at the end", "ms", _least("growth", _late)),
    Figure("sent", "200 × 20 KB: the last request", "MB", _least("growth", lambda run: run.last_request, 1)),
    Figure("growth_memory", "200 × 20 KB: memory", "MB", lambda runs: max(run.memory for run in runs["growth"])),
)


def table(figures: Mapping[str, Mapping[str, float]]) -> str:
    """All figures, a row a question and a column an agent."""
    names = list(figures)
    lines = [f"| | {' | '.join(names)} |", f"| --- |{' ---: |' * len(names)}"]
    for figure in FIGURES:
        cells = (f"{figures[name][figure.key]:.3g}" for name in names)
        cells = (f"{float(cell):g} {figure.unit}" for cell in cells)
        lines.append(f"| {figure.text} | {' | '.join(cells)} |")
    return "\n".join(lines)
