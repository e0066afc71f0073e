"""The demo: a recorded model at work on a copy of the sample project, through the real tools."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from msgspec import Struct

from wieldy.agent.session import Session
from wieldy.core.events import RunEnded, ToolEnded
from wieldy.core.outcome import Refused
from wieldy.providers.script import Script
from wieldy.terminal.questions import Paint
from wieldy.terminal.view import View

HERE = Path(__file__).parent
PROMPT = "The tests of this little till fail. Find out why and fix it."
SETTINGS = {"permissions": {"allow": ["Bash(python3 -m unittest:*)"]}}


class Account(Struct, frozen=True):
    """What came of the demo."""

    calls: int
    refused: int
    fixed: bool
    undone: bool
    seconds: float

    @property
    def as_it_should(self) -> bool:
        """Whether everything went as recorded."""
        return self.fixed and self.undone and self.refused == 1

    def lines(self) -> list[str]:
        """The summary."""
        return [
            f"{self.calls} tool calls in {self.seconds:.1f} s, {self.refused} of them refused.",
            f"The tests {'fail no more' if self.fixed else 'STILL FAIL'}; nothing outside the copy was touched.",
            f"Undo put till.py back {'byte for byte' if self.undone else 'WRONGLY'}.",
        ]


async def show() -> int:
    """Run the demo and say what happened; 0 when all went as it should."""
    paint = Paint.for_stream()
    with tempfile.TemporaryDirectory(prefix="wieldy-demo-") as folder:
        root = Path(folder) / "till"
        shutil.copytree(HERE / "sample", root, ignore=shutil.ignore_patterns("__pycache__"))
        print(
            paint("The model is a recording: no key, no network. The tools, the files and the tests are real.", "dim")
        )
        print(paint(f"Working on a copy of a sample project in {root}\n", "dim"))
        print(paint(f"> {PROMPT}\n", "bold"))
        account = await _work(root, paint)
    print()
    print("\n".join(account.lines()))
    print("\nWith a model of your own:  wieldy -p 'Fix the failing tests' --model anthropic/claude-sonnet-5-5")
    return 0 if account.as_it_should else 1


async def _work(root: Path, paint: Paint) -> Account:
    before = (root / "till.py").read_bytes()
    calls = refused = 0
    seconds, edited, passed = 0.0, "", False
    async with Session(
        root, model=Script.load(HERE / "script.json"), mode="acceptEdits", settings=SETTINGS, persist=False
    ) as session:
        view = View(session.box.catalog.find, paint)
        async for event in session.run(PROMPT):
            sys.stdout.write(view.show(event))
            sys.stdout.flush()
            if isinstance(event, ToolEnded):
                calls += 1
                refused += isinstance(event.result.outcome, Refused)
                edited = event.call_id if event.name == "MultiEdit" else edited
                passed = not event.result.is_error if event.name == "Bash" and calls < 7 else passed
            elif isinstance(event, RunEnded):
                seconds = event.seconds
        print(paint("\n> undo the edit", "bold"))
        await session.box.undo(edited)
    return Account(calls, refused, passed, (root / "till.py").read_bytes() == before, seconds)
