"""Sessions in a folder of their own, with tools that remember every time they ran."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wieldy import Session, Tool, tool
from wieldy.core.events import Event, RunEnded


class Ledger:
    """What the tools of a session did, in order."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def tools(self) -> list[Tool]:
        @tool(read_only=True)
        async def note(word: str = "") -> str:
            """Write a word down."""
            self.ran.append(word)
            return f"noted {word}"

        @tool(read_only=True)
        async def slow(word: str, seconds: float = 30) -> str:
            """Write a word down, slowly."""
            self.ran.append(word)
            await asyncio.sleep(seconds)
            return f"noted {word}"

        @tool(read_only=True)
        async def fails(word: str = "") -> str:
            """Always fails."""
            self.ran.append(word)
            raise ValueError("no luck")

        @tool
        async def asks(word: str = "") -> str:
            """Needs permission."""
            self.ran.append(word)
            return "done"

        return [note, slow, fails, asks]


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


SessionMaker = Callable[..., Session]


@pytest.fixture
def make_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ledger: Ledger) -> SessionMaker:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    root = tmp_path / "project"
    root.mkdir()

    def make(model: Any, **options: Any) -> Session:
        defaults = {"tools": ledger.tools(), "builtins": False, "settings": {}}
        return Session(root, model=model, **{**defaults, **options})

    return make


async def events_of(session: Session, prompt: Any = "go") -> list[Event]:
    """Every event of one run."""
    return [event async for event in session.run(prompt)]


def ended(events: list[Event]) -> RunEnded:
    """The last event of a run: how it ended."""
    assert isinstance(events[-1], RunEnded)
    return events[-1]
