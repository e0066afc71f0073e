"""Runs the demo: a recorded model fixes a copy of the sample project with the real tools."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from msgspec import Struct

from wieldy.agent.session import Session
from wieldy.core.console import StyledText, write
from wieldy.core.events import RunEnded, ToolEnded
from wieldy.core.outcome import Refused
from wieldy.faces.terminal.plain import BlockPrinter
from wieldy.faces.terminal.view_model import ViewModel
from wieldy.models.script import Script

FOLDER = Path(__file__).parent
PROMPT = "The tests of this shop till fail. Find out why and fix it."
SETTINGS = {"permissions": {"allow": ["Bash(python3 -m unittest:*)"]}}


class DemoResult(Struct, frozen=True):
    """What happened in the demo."""

    calls: int
    refused: int
    fixed: bool
    undone: bool
    seconds: float

    @property
    def is_expected(self) -> bool:
        return self.fixed and self.undone and self.refused == 1

    def __str__(self) -> str:
        return (
            f"{self.calls} tool calls in {self.seconds:.1f} s, {self.refused} of them refused.\n"
            f"The tests {'pass now' if self.fixed else 'STILL FAIL'}; nothing outside the copy was changed.\n"
            f"Undo restored till.py {'byte for byte' if self.undone else 'WRONGLY'}."
        )


async def show() -> int:
    """Run the demo and print a summary; return 0 when everything went as expected."""
    with tempfile.TemporaryDirectory(prefix="wieldy-demo-") as folder:
        root = Path(folder) / "till"
        shutil.copytree(FOLDER / "sample", root, ignore=shutil.ignore_patterns("__pycache__"))
        about = "The model is a recording: no key, no network. The tools, the files and the tests are real."
        write(StyledText(f"{about}\nWorking on a copy of a sample project in {root}\n", ("dim",)))
        result = await _run(root, Path(folder) / "state")
    write(f"\n{result}")
    write("\nWith a model of your own:  wieldy -p 'Fix the failing tests' --model anthropic/claude-sonnet-5-5")
    return 0 if result.is_expected else 1


def _environment() -> dict[str, str]:
    """The environment, with this interpreter as `python3` where the machine has Python under another name only."""
    if shutil.which("python3") is not None:
        return dict(os.environ)
    return {
        **os.environ,
        "PATH": os.pathsep.join([os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable)]),
    }


async def _run(root: Path, state: Path) -> DemoResult:
    original = (root / "till.py").read_bytes()
    calls = refused = 0
    seconds, edit_id, passed = 0.0, "", False
    script = Script.load(FOLDER / "script.json")
    async with Session(
        root,
        model=script,
        mode="acceptEdits",
        settings=SETTINGS,
        persist=False,
        env=_environment(),
        state_dir=state,
        session_dir=state / "session",
    ) as session:
        view = ViewModel(session.box.catalog.find, root)
        printer = BlockPrinter(view)
        view.start_run(PROMPT, time.time())
        async for event in session.run(PROMPT):
            view.apply(event)
            printer.print_new()
            if isinstance(event, ToolEnded):
                calls += 1
                is_refused = isinstance(event.result.outcome, Refused)
                refused += is_refused
                if event.name == "MultiEdit":
                    edit_id = event.call_id
                elif event.name == "Bash" and not is_refused:
                    passed = not event.result.is_error
            elif isinstance(event, RunEnded):
                seconds = event.seconds
        write(StyledText("\n> undo the edit", ("bold",)))
        await session.box.undo(edit_id)
    return DemoResult(calls, refused, passed, (root / "till.py").read_bytes() == original, seconds)
