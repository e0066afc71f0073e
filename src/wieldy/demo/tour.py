"""The tour: real tools, one after the other, on a copy of the sample project."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wieldy.core.result import ToolResult
from wieldy.toolbox import Toolbox

SAMPLE = Path(__file__).parent / "sample"
WIDTH = 100


@dataclass(frozen=True, slots=True)
class Stop:
    """One call of the tour, and what it is meant to show."""

    about: str
    tool: str
    input: Mapping[str, Any]
    fails: bool = False


STOPS = (
    Stop("What is here?", "LS", {"path": "."}),
    Stop("Where is work left?", "Grep", {"pattern": "TODO", "output_mode": "content", "-n": True}),
    Stop("Look at it.", "Read", {"file_path": "till.py"}),
    Stop(
        "The tests fail: an exit code is a result, not a crash.",
        "Bash",
        {"command": "python3 -m unittest -q tests/test_till.py 2>&1 | tail -4; exit ${PIPESTATUS[0]}"},
        fails=True,
    ),
    Stop(
        "Fix both places: all or nothing, atomic, undoable.",
        "MultiEdit",
        {
            "file_path": "till.py",
            "edits": [
                {
                    "old_string": "        # TODO: counts are ignored\n        return sum(price for _, price, _ in self.lines)",
                    "new_string": "        return sum(price * count for _, price, count in self.lines)",
                },
                {
                    "old_string": "        # TODO: should round to cents\n        return self.total() * (100 - percent) / 100",
                    "new_string": '        return (self.total() * (100 - percent) / 100).quantize(Decimal("0.01"))',
                },
            ],
        },
    ),
    Stop("The tests pass now.", "Bash", {"command": "python3 -m unittest -q tests/test_till.py 2>&1 | tail -3"}),
    Stop("A wrong name is answered with the right one.", "Grpe", {"pattern": "x"}, fails=True),
    Stop("A catastrophic command is refused, and says why.", "Bash", {"command": "rm -rf ~"}, fails=True),
)


async def tour() -> int:
    """Run every stop and print what a model and a person would see. Returns 0 when all went as it should."""
    started = time.perf_counter()
    surprises = 0
    edited = ""
    with tempfile.TemporaryDirectory(prefix="wieldy-demo-") as folder:
        root = Path(folder) / "till"
        shutil.copytree(SAMPLE, root, ignore=shutil.ignore_patterns("__pycache__"))
        before = (root / "till.py").read_bytes()
        print(
            f"A tour of the tools on a copy of a sample project in {root}. No model is involved: the calls are scripted.\n"
        )
        async with Toolbox(
            root,
            mode="acceptEdits",
            settings={"permissions": {"allow": ["Bash(python3 -m unittest:*)", "Bash(tail:*)", "Bash(exit:*)"]}},
        ) as box:
            for number, stop in enumerate(STOPS, 1):
                result = await box.call(stop.tool, dict(stop.input))
                _show(number, stop, result)
                surprises += result.is_error != stop.fails
                edited = result.call_id if stop.tool == "MultiEdit" else edited
            await box.undo(edited)
            undone = (root / "till.py").read_bytes() == before
            print(
                f"{_bold(f'{len(STOPS) + 1}. Undo that one call')}\n  till.py is {'byte for byte as it was' if undone else 'NOT as it was'}\n"
            )
            surprises += not undone
    seconds = time.perf_counter() - started
    print(f"{len(STOPS)} calls and one undo in {seconds:.1f} s; {surprises or 'no'} surprise(s).")
    return 1 if surprises else 0


def _show(number: int, stop: Stop, result: ToolResult) -> None:
    print(_bold(f"{number}. {stop.about}"))
    shown = ", ".join(f"{key}={value!r}" for key, value in stop.input.items())
    print(_cut(f"  {stop.tool}({shown})"))
    mark = "✗" if result.is_error else "✓"
    lines = result.text.splitlines()
    for line in lines[:12]:
        print(_cut(f"  {mark} {line}"))
    if len(lines) > 12:
        print(f"  {mark} … {len(lines) - 12} more lines")
    print()


def _cut(line: str) -> str:
    line = line.replace("\n", "⏎")
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def _bold(text: str) -> str:
    import os

    return f"\x1b[1m{text}\x1b[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text
