"""Reports: a table for the terminal, and a page that shows whatever a task is called."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from msgspec.structs import replace

from wieldy.faces.batch.report import (
    align,
    bars,
    histogram,
    html_page,
    load_report,
    merge_states,
    progress_line,
    report_lines,
)
from wieldy.faces.batch.store import AttemptResult, RunFolder, StoreError, TaskCheck

HOSTILE = "<script>alert(1)</script>&\"'\x1b[31m"


def attempt(number: int, ending: str = "solved", **more) -> AttemptResult:
    fields = {
        "id": f"t{number}",
        "identity": str(number),
        "seconds": number * 3.0,
        "turns": number,
        "cost": number / 10,
    }
    return AttemptResult(**{**fields, "ending": ending, "model": "anthropic/m", **more})


def write_run(folder: Path, *results: AttemptResult) -> RunFolder:
    folder.mkdir()
    (folder / "run.json").write_text('{"v": 1, "created": 0, "wieldy": "0.1"}')
    (folder / "results.jsonl").write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in results))
    return RunFolder(folder)


class Tags(HTMLParser):
    """Checks that every element is closed, and collects scripts and links."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.scripts = 0
        self.links: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.scripts += tag == "script"
        self.links += [value for name, value in attrs if name == "href"]
        if tag not in ("meta", "line", "rect"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in ("line", "rect"):
            assert self.open.pop() == tag


def test_the_table_counts_what_counts(tmp_path):
    results = [attempt(n, tags=("easy",), tools={"Bash": n}) for n in range(1, 4)]
    results += [
        attempt(4, "unsolved"),
        attempt(5, "infra", error_class="rate_limit"),
        attempt(6, "done"),
        attempt(7, "skipped"),
    ]
    results.insert(0, attempt(1, "infra", error_class="connection"))
    report = load_report(write_run(tmp_path / "run", *results))
    lines = report_lines(report)
    assert lines[0] == "run · anthropic/m · 7 attempts · 75.0% solved"
    assert any(line.split()[:3] == ["solved", "3", "42.9%"] for line in lines)
    assert "  Bash  6" in lines
    assert "  rate_limit  1" in lines
    assert "  easy  3 of 3 solved" in lines
    assert "8 tries were made" in lines[-1]


def test_the_page_is_well_formed_and_escapes_everything(tmp_path):
    names = {"id": HOSTILE, "detail": HOSTILE, "tags": (HOSTILE,), "tools": {HOSTILE: 3}, "folder": "runs/a%2Fb c/1"}
    report = load_report(
        write_run(tmp_path / "a <b> run", attempt(1, "limit", limit="seconds", patch_bytes=9, **names), attempt(2))
    )
    page = html_page(report)
    tags = Tags()
    tags.feed(page)
    assert (tags.open, tags.scripts) == ([], 0)
    assert "runs/a%252Fb%20c/1/patch.diff" in tags.links
    assert "http" not in page.replace("http-equiv", "")


@pytest.mark.parametrize("values", [[0.0], [1.0], [0.0, 0.0], [0.001, 7.0, 7.0], [float(n) for n in range(1000)]])
def test_histograms_are_drawings_whatever_the_values(values):
    drawing = histogram(values, str)
    ElementTree.fromstring(drawing)
    assert "nan" not in drawing


def test_bars_of_nothing_say_so():
    assert bars([]) == "<p>nothing to show</p>"
    ElementTree.fromstring(bars([("a", 0.0), ("b", 2.0)]))


def test_only_files_that_exist_are_linked(tmp_path):
    folder = "runs/a/1"
    failed = attempt(1, "infra", folder=folder)
    worked = attempt(2, folder=folder, isolation="copy", check=TaskCheck(0), patch_bytes=0)
    tags = Tags()
    tags.feed(html_page(load_report(write_run(tmp_path / "run", failed, worked))))
    assert tags.links == [f"{folder}/{name}" for name in ("check.log", "transcript.jsonl", "trajectory.json")]


def test_a_task_that_was_changed_counts_as_it_is_now_and_models_are_compared(tmp_path):
    old, new = attempt(1, "unsolved"), replace(attempt(1), identity="changed")
    other = replace(attempt(1, "unsolved"), identity="other", model="another")
    report = load_report(write_run(tmp_path / "run", old, new, other))
    assert [(each.model, each.ending) for each in report.results] == [(new.model, "solved"), ("another", "unsolved")]
    assert "1 of the results are of tasks that were changed since, and do not count" in report_lines(report)


def test_a_folder_that_is_no_run_is_one_line(tmp_path):
    with pytest.raises(StoreError, match=r"is not the folder of a batch run: it has no run\.json"):
        load_report(RunFolder(tmp_path))


def test_columns_are_aligned():
    assert align([("a", "10"), ("long", "1")]) == ["a     10", "long   1"]


def state(**more):
    empty = {"at": 100.0, "started": 40.0, "total": 10, "done": 0, "done_before": 0, "running": {}, "endings": {}}
    return {**empty, "errors": {}, "cost": 0.0, "stopping": "", "over": False, **more}


def test_progress_says_what_matters_in_one_line(monkeypatch):
    import time

    line = progress_line(
        state(
            at=time.time(), started=time.time() - 60, done=6, running={"a": {}, "b": {}}, cost=1.234,
            endings={"solved": 3, "unsolved": 1, "infra": 2}, errors={"rate_limit": 5, "connection": 1},
        )
    )  # fmt: skip
    assert line.startswith(
        "[############--------] 6/10 done · 2 running · 2 left · 3 solved (75%) · $1.23 · 6.0/min · 40 s to go"
    )
    assert line.endswith("errors: rate_limit 5, connection 1")
    assert len(progress_line(state(), width=20)) == 20


def test_a_driver_that_is_silent_is_told():
    assert "no news for" in progress_line(state(at=0.0, started=0.0))


def test_shards_are_shown_as_one():
    merged = merge_states([state(done=3, endings={"solved": 3}), state(done=4, endings={"solved": 1, "limit": 3})])
    assert (merged["total"], merged["done"], merged["endings"]) == (20, 7, {"solved": 4, "limit": 3})


def test_costs_without_a_price_are_lower_bounds():
    state = {"total": 1, "done": 1, "done_before": 0, "running": {}, "endings": {}, "cost": 0.31, "unpriced": 1}
    assert "≥ $0.31" in progress_line({**state, "at": 2.0, "started": 1.0, "over": True, "errors": {}, "stopping": ""})
