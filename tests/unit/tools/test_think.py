from __future__ import annotations

import json
from pathlib import Path

import pytest

from wieldy import Toolbox
from wieldy.core.events import Event, ToolStarted
from wieldy.tools.think import think


@pytest.mark.asyncio
async def test_a_thought_is_logged_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    (tmp_path / "root").mkdir()
    events: list[Event] = []
    async with Toolbox(tmp_path / "root", settings={}) as box:
        box.subscribe(events.append)
        result = await box.call("Think", {"thought": "First the test, then the fix."})
    assert (result.text, result.is_error) == ("Noted.", False)
    assert [event.input for event in events if isinstance(event, ToolStarted)] == [
        {"thought": "First the test, then the fix."}
    ]
    assert not list((tmp_path / "root").iterdir())


def test_thinking_touches_nothing_and_asks_nobody() -> None:
    assert think.read_only
    assert not think.needs_permission({}, ())
    assert len(json.dumps(think.schema)) <= 700
    assert len(think.description) <= 350
