"""What a person sees of a run: the line of progress, a table for the terminal, and an HTML page without network and scripts."""

from __future__ import annotations

import datetime
import math
import os
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from wieldy.core.text import format_duration, plural, truncate
from wieldy.faces.batch.store import AttemptResult, StoredRun, StoreError, latest_results, write_durably

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
        "unpriced": sum(state.get("unpriced", 0) for state in states),
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
    parts.append(f"{'≥ ' if state.get('unpriced') else ''}${state['cost']:.2f}")
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
    return line if width is None else truncate(line, width)


REPORT_NAME = "report.html"
MAX_ROWS = 5_000
BINS = 24
ENDINGS = ("solved", "done", "unsolved", "limit", "denied", "refused", "infra", "crashed", "skipped")
JUDGED = ("solved", "unsolved", "limit", "denied", "refused")
MEANINGS: Mapping[str, str] = {
    "solved": "the check passed",
    "done": "the model ended; there is no check",
    "unsolved": "the check failed",
    "limit": "a limit was reached",
    "denied": "a permission it needed was refused",
    "refused": "the model refused",
    "infra": "infrastructure failed; not the task",
    "crashed": "the worker died",
    "skipped": "not started",
}


class EndingRow(Struct, frozen=True):
    """All attempts with one ending."""

    ending: str
    attempts: int
    share: float
    cost: float
    median_seconds: float
    median_turns: float


class RunReport(Struct, frozen=True):
    """The outcome of a run: the result that counts for each attempt, and sums over them.

    `outdated` results are of tasks that were changed and have run again; they do not count.
    """

    name: str
    run: Mapping[str, Any]
    results: tuple[AttemptResult, ...]
    tries: int
    spent: float
    outdated: int = 0

    @property
    def rows(self) -> list[EndingRow]:
        rows = []
        for ending in ENDINGS:
            group = [result for result in self.results if result.ending == ending]
            if group:
                rows.append(
                    EndingRow(
                        ending,
                        len(group),
                        len(group) / len(self.results),
                        sum(result.cost for result in group),
                        statistics.median(result.seconds for result in group),
                        statistics.median(result.turns for result in group),
                    )
                )
        return rows

    @property
    def solved_share(self) -> float | None:
        """Solved attempts among those that say something about the task."""
        judged = [result for result in self.results if result.ending in JUDGED]
        return sum(result.ending == "solved" for result in judged) / len(judged) if judged else None

    @property
    def models(self) -> list[str]:
        return sorted({_model_name(result.model) for result in self.results if result.model})

    @property
    def tools(self) -> Counter[str]:
        calls: Counter[str] = Counter()
        for result in self.results:
            calls.update(result.tools)
        return calls

    @property
    def errors(self) -> Counter[str]:
        return Counter(
            result.error_class or result.limit or result.ending
            for result in self.results
            if result.ending in ("infra", "crashed", "limit")
        )

    @property
    def tags(self) -> list[tuple[str, int, int]]:
        """Each tag with its attempts and how many of them were solved."""
        names = sorted({tag for result in self.results for tag in result.tags})
        groups = [(name, [result for result in self.results if name in result.tags]) for name in names]
        return [(name, len(group), sum(each.ending == "solved" for each in group)) for name, group in groups]


def load_report(stored: StoredRun) -> RunReport:
    """Read a run. Raises `StoreError`."""
    run = stored.read_run()
    everything = list(stored.results())
    latest = latest_results(everything)
    # A task that was changed has another identity: it counts as it is now. Several models are compared.
    current = {(result.id, result.sample, result.model): result for result in latest.values()}
    results = sorted(current.values(), key=lambda result: (result.id, result.sample))
    location = stored.location.rstrip("/")
    name = os.path.basename(location if "://" in location else os.path.abspath(location))
    spent = sum(result.cost for result in everything)
    return RunReport(name, run, tuple(results), len(everything), spent, len(latest) - len(results))


def report_lines(report: RunReport) -> list[str]:
    share = report.solved_share
    solved = f" · {share:.1%} solved" if share is not None else ""
    lines = [f"{report.name} · {', '.join(report.models) or 'no model'} · {len(report.results)} attempts{solved}", ""]
    rows = [("ending", "attempts", "share", "cost", "median time", "turns")]
    rows += [
        (
            r.ending,
            str(r.attempts),
            f"{r.share:.1%}",
            f"${r.cost:.2f}",
            format_duration(r.median_seconds),
            f"{r.median_turns:g}",
        )
        for r in report.rows
    ]
    lines += align(rows)
    sections: list[tuple[str, Iterable[tuple[str, str]]]] = [
        ("calls by tool", [(name, str(count)) for name, count in report.tools.most_common(10)]),
        ("limits and errors", [(name, str(count)) for name, count in report.errors.most_common(10)]),
        ("tags", [(name, f"{solved_count} of {count} solved") for name, count, solved_count in report.tags]),
    ]
    for title, pairs in sections:
        if table := [(name, value) for name, value in pairs]:
            lines += ["", title, *("  " + line for line in align(table))]
    if report.tries > len(report.results):
        lines += ["", f"{report.tries} tries were made, which cost ${report.spent:.2f}"]
    if unpriced := sum(result.unpriced for result in report.results):
        lines += ["", f"the price of a model is unknown in {plural(unpriced, 'attempt')}: costs are lower bounds"]
    if report.outdated:
        lines.append(f"{report.outdated} of the results are of tasks that were changed since, and do not count")
    return lines


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns side by side: the first to the left, numbers to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def write_html(report: RunReport, stored: StoredRun, target: str = "") -> str:
    """Write the page to a file, by default beside the results; returns where it is. Raises `StoreError`."""
    page = html_page(report).encode("utf-8", "replace")
    if not target:
        return stored.write_file(REPORT_NAME, page)
    try:
        write_durably(Path(target), page)
    except OSError as error:
        raise StoreError(f"{target} cannot be written: {error.strerror or error}") from None
    return target


def html_page(report: RunReport) -> str:
    results = report.results
    begun = datetime.datetime.fromtimestamp(report.run.get("created", 0), datetime.UTC)
    facts = [
        ", ".join(report.models) or "no model",
        f"begun {begun:%Y-%m-%d %H:%M} UTC",
        f"wieldy {report.run.get('wieldy', '')}",
        f"engine {report.run.get('engine', 'local')}",
    ]
    timed = [result for result in results if result.ending != "skipped"]
    plots = [
        _figure("Cost of an attempt", histogram([r.cost for r in timed], lambda value: f"${value:.3g}")),
        _figure("Working time of an attempt", histogram([r.seconds for r in timed], format_duration)),
        _figure("Turns of an attempt", histogram([float(r.turns) for r in timed], lambda value: f"{value:.0f}")),
        _figure("Calls by tool", bars(report.tools.most_common(15))),
    ]
    if report.errors:
        plots.append(_figure("Limits and errors", bars(report.errors.most_common(15))))
    if report.tags:
        solved = [(f"{name} ({count})", good / count) for name, count, good in report.tags[:20]]
        plots.append(_figure("Solved by tag", bars(solved, lambda value: f"{value:.0%}", most=1.0)))
    body = "".join(
        [
            f"<header><h1>{escape(report.name)}</h1><p>{escape(' · '.join(facts))}</p></header>",
            _tiles(report),
            f"<section><h2>Outcomes</h2>{outcome_bar(report.rows)}</section>",
            f'<div class="plots">{"".join(plots)}</div>',
            _table(results),
        ]
    )
    style = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(report.name)} · wieldy batch</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{style}</style></head>'
        f"<body><main>{body}</main></body></html>\n"
    )


def outcome_bar(rows: Sequence[EndingRow]) -> str:
    parts, left = [], 0.0
    for row in rows:
        width = row.share * 1000
        title = f"{row.ending}: {row.attempts} ({row.share:.1%})"
        parts.append(
            f'<rect x="{left:.2f}" y="0" width="{width:.2f}" height="36" class="{row.ending}"><title>{title}</title></rect>'
        )
        left += width
    legend = "".join(
        f'<li><i class="{row.ending}"></i><b>{row.attempts}</b> {row.ending} <small>{row.share:.1%} · '
        f"{escape(MEANINGS[row.ending])}</small></li>"
        for row in rows
    )
    bar = f'<svg viewBox="0 0 1000 36" preserveAspectRatio="none" class="outcomes" role="img">{"".join(parts)}</svg>'
    return f'{bar}<ul class="legend">{legend}</ul>'


def histogram(values: Sequence[float], label: Callable[[float], str]) -> str:
    """How often values occur, with the median marked."""
    if not values:
        return "<p>nothing to show</p>"
    low, high = 0.0, max(values)
    if high <= low:
        return f"<p>{escape(label(high))} in each of {len(values)} attempts</p>"
    high = _round_up(high)
    counts = [0] * BINS
    for value in values:
        counts[min(int((value - low) / (high - low) * BINS), BINS - 1)] += 1
    most = max(counts)
    width, height = 480, 160
    step = width / BINS
    rects = [
        f'<rect x="{index * step + 1:.1f}" y="{height - count / most * height:.1f}" width="{step - 2:.1f}" '
        f'height="{count / most * height:.1f}" class="bar"><title>{escape(label(low + (high - low) * index / BINS))} – '
        f"{escape(label(low + (high - low) * (index + 1) / BINS))}: {count}</title></rect>"
        for index, count in enumerate(counts)
        if count
    ]
    median = statistics.median(values)
    at = (median - low) / (high - low) * width
    anchor = "end" if at > width * 0.7 else "start"
    marker = (
        f'<line x1="{at:.1f}" x2="{at:.1f}" y1="-14" y2="{height}" class="median"/>'
        f'<text x="{at + (-6 if anchor == "end" else 6):.1f}" y="-5" text-anchor="{anchor}">median {escape(label(median))}</text>'
    )
    axis = "".join(
        f'<text x="{width * part:.0f}" y="{height + 18}" text-anchor="{where}">{escape(label(low + (high - low) * part))}</text>'
        for part, where in ((0.0, "start"), (0.5, "middle"), (1.0, "end"))
    )
    tallest = (
        f'<text x="{width}" y="-5" text-anchor="end">up to {most} attempts a bar</text>' if at < width * 0.5 else ""
    )
    base = f'<line x1="0" x2="{width}" y1="{height}" y2="{height}" class="axis"/>'
    return f'<svg viewBox="-4 -22 {width + 8} {height + 46}" role="img">{"".join(rects)}{base}{marker}{axis}{tallest}</svg>'


def bars(pairs: Sequence[tuple[str, float]], label: Callable[[float], str] = "{:g}".format, most: float = 0.0) -> str:
    if not pairs:
        return "<p>nothing to show</p>"
    most = most or max(value for _, value in pairs) or 1.0
    rows = []
    for index, (name, value) in enumerate(pairs):
        y = index * 24
        rows.append(
            f'<text x="146" y="{y + 16}" text-anchor="end">{escape(truncate(name, 24))}<title>{escape(name)}</title></text>'
            f'<rect x="154" y="{y + 3}" width="{max(value / most * 266, 1):.1f}" height="17" class="bar"/>'
            f'<text x="{154 + value / most * 266 + 6:.1f}" y="{y + 16}">{escape(label(value))}</text>'
        )
    return f'<svg viewBox="0 0 480 {len(pairs) * 24 + 4}" role="img">{"".join(rows)}</svg>'


def _tiles(report: RunReport) -> str:
    results = report.results
    timed = [result for result in results if result.ending != "skipped"]
    tokens = sum(sum(result.usage.values()) for result in results)
    share = report.solved_share
    tiles = [
        ("attempts", f"{len(results):,}"),
        ("solved", f"{share:.1%}" if share is not None else "–"),
        ("cost", f"${report.spent:,.2f}"),
        ("median time", format_duration(statistics.median(r.seconds for r in timed)) if timed else "–"),
        ("tokens", _short(tokens)),
        ("tool calls", _short(report.tools.total())),
    ]
    if any(result.unpriced for result in results):
        tiles[2] = ("cost (prices unknown)", f"≥ {tiles[2][1]}")
    cells = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in tiles)
    return f'<div class="tiles">{cells}</div>'


def _table(results: Sequence[AttemptResult]) -> str:
    rows = "".join(map(_row, results[:MAX_ROWS]))
    more = f"<p>and {len(results) - MAX_ROWS} more in results.jsonl</p>" if len(results) > MAX_ROWS else ""
    heads = ("task", "ending", "why", "turns", "cost", "time", "waited", "copy", "files")
    head = "".join(f"<th>{name}</th>" for name in heads)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f"<section><h2>Attempts</h2><div class=scroll>{table}</div>{more}</section>"


def _row(result: AttemptResult) -> str:
    name = result.id if result.sample == 1 else f"{result.id} #{result.sample}"
    why = " · ".join(part for part in (result.limit, result.error_class, result.detail) if part)
    folder = escape(quote(result.folder))
    existing = {
        "patch.diff": bool(result.patch_bytes),
        "check.log": result.check is not None,
        "transcript.jsonl": bool(result.isolation),
        "trajectory.json": bool(result.isolation),
    }
    files = [name for name, exists in existing.items() if exists and result.folder]
    links = " ".join(f'<a href="{folder}/{file}">{file.partition(".")[0]}</a>' for file in files)
    cells = [
        f"<td>{escape(name)}</td>",
        f'<td><i class="{result.ending}"></i>{result.ending}</td>',
        f"<td>{escape(truncate(why, 200))}</td>",
        f"<td class=n>{result.turns}</td>",
        f"<td class=n>${result.cost:.3f}</td>",
        f"<td class=n>{format_duration(result.seconds)}</td>",
        f"<td class=n>{format_duration(result.waited_seconds) if result.waited_seconds >= 0.05 else ''}</td>",
        f"<td>{escape(result.isolation)}</td>",
        f"<td>{links}</td>",
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _figure(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def _round_up(value: float) -> float:
    """The next number with a short name, for the end of an axis."""
    magnitude = 10 ** math.floor(math.log10(value))
    return next((step * magnitude for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * magnitude >= value), value)


def _short(count: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:g}"


def _model_name(model: str) -> str:
    return f"script:{os.path.basename(model)}" if model.startswith("script:") else model
