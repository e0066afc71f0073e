"""Events in, rows out: what a session looks like at several widths."""

from __future__ import annotations

from typing import Any

import pytest
from inline_snapshot import snapshot

from wieldy.core.call import ToolCall
from wieldy.core.decision import Answer, Decision
from wieldy.core.events import (
    Event,
    ModelAnswered,
    ModelBlockDelta,
    ModelRequested,
    ModelTextDelta,
    Notice,
    PermissionAsked,
    PermissionDecided,
    Retried,
    RunEnded,
    ToolFailed,
    ToolInputDelta,
    ToolProgress,
    ToolRequested,
    ToolStarted,
    ToolSucceeded,
)
from wieldy.core.outcome import Done, Failed, Refused, Text, ToolResult
from wieldy.core.provider import Usage
from wieldy.faces.terminal.text import row_text, row_width
from wieldy.faces.terminal.view_model import ViewModel, separated_rows
from wieldy.tools import builtin_tool

ASK = Decision("ask", ())
TODOS = [
    {"content": "Read the code", "status": "completed", "activeForm": ""},
    {"content": "Fix the total", "status": "in_progress", "activeForm": "Fixing the total"},
    {"content": "Run the tests", "status": "pending", "activeForm": ""},
]
PATCH = {
    "structuredPatch": [
        {
            "oldStart": 6,
            "oldLines": 3,
            "newStart": 6,
            "newLines": 3,
            "lines": [
                "     for item in items:",
                "-        result += item.price",
                "+        result += item.price * item.quantity",
                "     return result",
            ],
        }
    ]
}
ANSWER = """## Problem

The function `total` **ignores** the quantity of each item, so that an order of two is as cheap as one. See https://example.org/orders.

- first point about `item.price`
- second point, which is a bit longer so that it wraps at some widths

```python
def total(items): return sum(item.price * item.quantity for item in items)
```

| file | change |
|------|--------|
| src/app.py | multiply by the quantity |
"""


def result(call_id: str, name: str, outcome: Any, text: str = "", data: Any = None) -> ToolResult:
    return ToolResult(call_id, name, (Text(text),), data, not isinstance(outcome, Done), outcome)


def done(call_id: str, name: str, text: str, data: Any = None, seconds: float = 0.1) -> ToolSucceeded:
    outcome = Done((Text(text),), data)
    ended = result(call_id, name, outcome, text, data)
    return ToolSucceeded(at=1009.0, call_id=call_id, name=name, result=ended, seconds=seconds)


def a_run() -> list[Event]:
    """One run with a thought, an answer, reads, an edit, a failure, a refusal and a list of tasks."""
    at = 1000.0
    pieces = [ANSWER[start : start + 7] for start in range(0, len(ANSWER), 7)]
    return [
        ModelRequested(at=at, model="m", turn=1),
        ModelTextDelta(at=at, text="Let me see. ", thinking=True),
        ModelBlockDelta(at=at + 4, index=0),
        *(ModelTextDelta(at=at + 4, text=piece, index=1) for piece in pieces),
        ToolInputDelta(at=at + 5, call_id="1", name="Read", piece='{"file_path": "/project/src/app.py"}', index=2),
        ToolStarted(at=at + 9, call_id="1", name="Read", input={"file_path": "/project/src/app.py"}),
        done("1", "Read", "1\ta\n2\tb", {"file": {"numLines": 2, "totalLines": 2}}),
        ToolStarted(at=at + 9, call_id="2", name="Grep", input={"pattern": "total", "path": "/project/src"}),
        done("2", "Grep", "src/app.py\n[Found in 1 file]", {"numFiles": 1}),
        Notice(text="1 of 3 tasks done; now: Fixing the total", data={"todos": TODOS}),
        ToolRequested(at=at + 6, call_id="3", name="Edit"),
        PermissionAsked(at=at + 6, call_id="3", name="Edit", decision=ASK),
        PermissionDecided(
            at=at + 9, call_id="3", name="Edit", decision=ASK, answer=Answer(True, remember=("Edit(/src/app.py)",))
        ),
        ToolStarted(at=at + 9, call_id="3", name="Edit", input={"file_path": "/project/src/app.py"}),
        done("3", "Edit", "Changed", PATCH),
        ToolStarted(at=at + 9, call_id="4", name="Bash", input={"command": "pytest -q tests/test_app.py"}),
        ToolFailed(
            at=at + 21,
            call_id="4",
            name="Bash",
            result=result(
                "4",
                "Bash",
                Failed("1 failed"),
                data={"output": "\n".join(f"row {n}" for n in range(40)), "exitCode": 1},
            ),
            seconds=12.0,
        ),
        ToolFailed(
            call_id="5",
            name="Bash",
            input={"command": "rm -rf ~"},
            result=result(
                "5", "Bash", Refused("permission", "No.", person="not permitted: it removes the home folder")
            ),
            seconds=0.0,
        ),
        Retried(at=at + 30, attempt=1, most=8, seconds=2.0, why="the server is overloaded", status=529),
        ModelTextDelta(at=at + 33, text="All done."),
        RunEnded(at=at + 34, why="done", text="All done.", turns=3, cost=0.01, seconds=34.0),
    ]


def shown(view: ViewModel, width: int) -> str:
    lines = []
    previous = None
    for block in view.blocks:
        lines += [row_text(row) for row in separated_rows(block, previous, width)]
        previous = block
    return "\n".join(line.rstrip() for line in lines)


def played(events: list[Event]) -> ViewModel:
    view = ViewModel(builtin_tool, "/project")
    view.start_run("Fix the total, please", 1000.0)
    for event in events:
        view.apply(event)
    return view


def test_a_run_at_40_columns() -> None:
    assert shown(played(a_run()), 40) == snapshot("""\
› Fix the total, please

thought for 4 s

Problem

The function total ignores the quantity
of each item, so that an order of two
is as cheap as one. See
https://example.org/orders.

• first point about item.price
• second point, which is a bit longer
  so that it wraps at some widths

def total(items): return sum(item.price * item.quantity for item in items)

file        change
──────────  ────────────────────────
src/app.py  multiply by the quantity

✓ Read src/app.py  2 lines
✓ Grep total in src  1 file
☑ 1 of 3 tasks done; now: Fixing the
total
✓ Edit src/app.py  +1 −1
  6       for item in items:
  7 -         result += item.price
  7 +         result += item.price * i…
  8       return result
  from now on allowed:
  Edit(/src/app.py)
✗ Bash pytest -q tests/…  exit 1 · 12 s
  row 0
  row 1
  … 34 more lines
  row 36
  row 37
  row 38
  row 39
⊘ Bash rm -rf ~
  not permitted: it removes the home
  folder
the server is overloaded; retrying in 2
s (1 of 8)

All done.

☑ Read the code
▸ Fixing the total
☐ Run the tests
worked for 34 s\
""")


def test_a_run_at_80_columns() -> None:
    assert shown(played(a_run()), 80) == snapshot("""\
› Fix the total, please

thought for 4 s

Problem

The function total ignores the quantity of each item, so that an order of two
is as cheap as one. See https://example.org/orders.

• first point about item.price
• second point, which is a bit longer so that it wraps at some widths

def total(items): return sum(item.price * item.quantity for item in items)

file        change
──────────  ────────────────────────
src/app.py  multiply by the quantity

✓ Read src/app.py  2 lines
✓ Grep total in src  1 file
☑ 1 of 3 tasks done; now: Fixing the total
✓ Edit src/app.py  +1 −1
  6       for item in items:
  7 -         result += item.price
  7 +         result += item.price * item.quantity
  8       return result
  from now on allowed: Edit(/src/app.py)
✗ Bash pytest -q tests/test_app.py  exit 1 · 12 s
  row 0
  row 1
  … 34 more lines
  row 36
  row 37
  row 38
  row 39
⊘ Bash rm -rf ~
  not permitted: it removes the home folder
the server is overloaded; retrying in 2 s (1 of 8)

All done.

☑ Read the code
▸ Fixing the total
☐ Run the tests
worked for 34 s\
""")


def test_a_run_at_120_columns() -> None:
    assert shown(played(a_run()), 120) == snapshot("""\
› Fix the total, please

thought for 4 s

Problem

The function total ignores the quantity of each item, so that an order of two is as cheap as one. See
https://example.org/orders.

• first point about item.price
• second point, which is a bit longer so that it wraps at some widths

def total(items): return sum(item.price * item.quantity for item in items)

file        change
──────────  ────────────────────────
src/app.py  multiply by the quantity

✓ Read src/app.py  2 lines
✓ Grep total in src  1 file
☑ 1 of 3 tasks done; now: Fixing the total
✓ Edit src/app.py  +1 −1
  6       for item in items:
  7 -         result += item.price
  7 +         result += item.price * item.quantity
  8       return result
  from now on allowed: Edit(/src/app.py)
✗ Bash pytest -q tests/test_app.py  exit 1 · 12 s
  row 0
  row 1
  … 34 more lines
  row 36
  row 37
  row 38
  row 39
⊘ Bash rm -rf ~
  not permitted: it removes the home folder
the server is overloaded; retrying in 2 s (1 of 8)

All done.

☑ Read the code
▸ Fixing the total
☐ Run the tests
worked for 34 s\
""")


@pytest.mark.parametrize("width", [40, 57, 80, 200])
def test_only_code_and_addresses_are_wider_than_the_screen(width: int) -> None:
    view = played(a_run())
    for block in view.blocks:
        for row in separated_rows(block, None, width):
            text = row_text(row)
            assert row_width(row) < width or text.startswith("def ") or "https://" in text


@pytest.mark.parametrize("size", [1, 3, 10, 1000])
def test_the_size_of_deltas_makes_no_difference(size: int) -> None:
    events: list[Event] = [ModelTextDelta(text=ANSWER[n : n + size]) for n in range(0, len(ANSWER), size)]
    end = RunEnded(why="done", text="", turns=1, cost=0.0, seconds=1.0)
    assert shown(played([*events, end]), 80) == shown(played([ModelTextDelta(text=ANSWER), end]), 80)


def live(view: ViewModel, width: int = 80, now: float = 1000.0, most: int = 20) -> list[str]:
    return [row_text(row) for row in view.live_rows(width, now, most)]


def test_a_call_is_named_while_the_model_still_writes_it() -> None:
    view = played([ToolInputDelta(call_id="1", name="Bash", piece='{"command": "pytest -', index=0)])
    assert live(view) == ["○ Bash pytest -"]


def test_a_running_call_shows_how_long_and_its_last_lines() -> None:
    view = played(
        [
            ToolStarted(at=1000.0, call_id="1", name="Bash", input={"command": "make"}),
            ToolProgress(call_id="1", name="Bash", text="3 s, 80 bytes\none\ntwo\nthree\nfour"),
        ]
    )
    assert live(view, now=1003.0) == ["● Bash make  3 s", "  two", "  three", "  four"]


def test_results_of_parallel_calls_come_with_their_call() -> None:
    view = played(
        [
            ToolStarted(at=1009.0, call_id="1", name="Bash", input={"command": "slow"}),
            ToolStarted(at=1009.0, call_id="2", name="Bash", input={"command": "quick"}),
            done("2", "Bash", "from quick", {"output": "from quick"}),
            done("1", "Bash", "from slow", {"output": "from slow"}),
        ]
    )
    lines = shown(view, 80).splitlines()
    assert lines[-4:] == ["✓ Bash quick", "  from quick", "✓ Bash slow", "  from slow"]


def test_a_table_is_held_back_until_it_ends() -> None:
    view = played([ModelTextDelta(text="| a | b |\n|---|---|\n| 1 | 2 |\n| 3 |")])
    assert live(view) == ["table, 3 lines…"]
    assert "1" not in shown(view, 80)
    view.apply(ModelTextDelta(text=" 4 |\n\nAfter"))
    assert "3  4" in shown(view, 80)


def test_columns_of_a_table_are_aligned_as_its_header_says() -> None:
    view = played(
        [ModelTextDelta(text="| file | lines | kind |\n|---|---:|:-:|\n| a.py | 7 | x |\n| b.py | 21 | y |\n\nAfter")]
    )
    lines = shown(view, 80).splitlines()
    assert lines[lines.index("file  lines  kind") :][:4] == [
        "file  lines  kind",
        "────  ─────  ────",
        "a.py      7   x",
        "b.py     21   y",
    ]


def test_the_live_part_is_never_higher_than_allowed() -> None:
    view = played([ModelTextDelta(text="word " * 800)])
    rows = live(view, most=10)
    assert len(rows) == 10
    assert rows[0].endswith("lines above")


def test_a_run_that_ends_leaves_no_call_behind() -> None:
    call = ToolCall("1", "Bash", {})
    view = played(
        [
            ToolStarted(call_id=call.id, name=call.name, input={"command": "make"}),
            RunEnded(why="interrupted", text="", turns=1, cost=0.0, seconds=1.0),
        ]
    )
    assert live(view) == []
    assert shown(view, 80).splitlines()[-2:] == ["■ Bash make", "■ interrupted"]


def test_an_answer_without_an_end_is_kept_bounded() -> None:
    view = played([ModelTextDelta(text="word " * 20) for _ in range(10_000)])
    assert sum(len(block.piece.source) for block in view.blocks if hasattr(block, "piece")) > 900_000
    assert len(live(view)) <= 20


def test_a_huge_result_is_cut_before_it_is_laid_out() -> None:
    text = "x" * 1_000_000 + "\n" + "y\n" * 3_000_000
    view = played(
        [ToolStarted(call_id="1", name="Bash", input={"command": "big"}), done("1", "Bash", text, {"output": text})]
    )
    assert len(shown(view, 80)) < 2_000


def test_the_input_of_an_answer_completes_what_was_not_read() -> None:
    content = ({"type": "tool_use", "id": "1", "name": "Read", "input": {"file_path": "/project/a.py"}},)
    view = played(
        [
            ToolInputDelta(call_id="1", name="Read", index=0),
            ModelAnswered(content=content, stop_reason="tool_use", usage=Usage(), seconds=1.0),
        ]
    )
    assert live(view) == ["○ Read a.py"]
