"""After a plan is approved, the very next request offers what plan mode had taken away."""

from __future__ import annotations

from pathlib import Path

import pytest

from wieldy import Script, Session

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))


async def test_the_tools_come_back_and_the_prompt_no_longer_speaks_of_planning(tmp_path: Path) -> None:
    plan = {"call": "ExitPlan", "input": {"plan": "1. write a"}}
    write = {"call": "Write", "input": {"file_path": "a", "content": "x\n"}}
    model = Script([[plan], [write], [{"text": "done"}]])
    (tmp_path / "root").mkdir()
    async with Session(tmp_path / "root", model=model, settings={}, mode="plan", ask=lambda question: True) as session:
        assert await session.ask("go") == "done"
    planning, working, _ = model.requests
    before, after = ({offer.name for offer in request.tools} for request in (planning, working))
    assert "ExitPlan" in before
    assert "Write" not in before
    assert "ExitPlan" not in after
    assert "Write" in after
    assert "You are in plan mode" in str(planning.system)
    assert "You are in plan mode" not in str(working.system)
    assert (tmp_path / "root" / "a").read_text() == "x\n"
