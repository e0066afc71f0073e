"""Sessions with real tools in a project of their own; only the model follows a script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wieldy import Script, Session
from wieldy.core.events import Event


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    return tmp_path


@pytest.fixture
def project(home: Path) -> Path:
    root = home / "project"
    root.mkdir()
    (root / "a.txt").write_text("alpha\n")
    (root / "b.txt").write_text("beta\n")
    return root


OpenFile = Callable[..., Session]


@pytest.fixture
def opened(project: Path) -> OpenFile:
    def make(model: Script, **options: Any) -> Session:
        return Session(project, model=model, **{"settings": {}, **options})

    return make


def told(model: Script, request: int = -1) -> list[str]:
    """What the last message of a request says, block by block: results, then words."""
    said = []
    for block in model.requests[request].messages[-1].content:
        if block["type"] == "tool_result":
            said += [part["text"] for part in block["content"]]
        elif block["type"] == "text":
            said.append(block["text"])
    return said


async def events_of(session: Session, prompt: str = "go") -> list[Event]:
    """Every event of one run."""
    return [event async for event in session.run(prompt)]


def agent_file(root: Path, name: str, head: str = "", body: str = "You work.", place: str = ".wieldy/agents") -> Path:
    """A file that describes a kind of agent."""
    path = root / place / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: {name}\ndescription: Does {name}.\n{head}---\n{body}\n")
    return path
