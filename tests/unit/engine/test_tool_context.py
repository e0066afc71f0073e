"""What a tool learns about the session it runs in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wieldy import Script, Session, Toolbox, ToolContext, tool

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))


seen: list[Any] = []


@tool(read_only=True)
async def look(ctx: ToolContext) -> str:
    """Look at the options."""
    seen.append(ctx.options)
    return "seen"


async def test_in_a_toolbox_the_options_have_its_tools_and_skills(tmp_path):
    skill = tmp_path / ".wieldy" / "skills" / "greet" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: greet\ndescription: Greets.\n---\nSay hello.\n")
    async with Toolbox(tmp_path, settings={}, tools=[look]) as box:
        await box.call("Skill", skill="greet")
        await box.call("look")
    options = seen.pop()
    assert {"look", "Read", "Bash"} <= set(options.tools)
    assert options.commands == ("greet",)
    assert (options.model, options.fork, options.thinking_budget) == (None, 0, None)


async def test_in_a_session_the_options_have_the_model_the_budget_and_the_number_of_forks(tmp_path):
    def script() -> Script:
        return Script([[{"call": "look", "input": {}}], [{"text": "done"}]])

    async with Session(tmp_path, model=script(), settings={}, tools=[look], thinking_budget=2_000) as session:
        await session.ask("look")
        offered = tuple(session.offered)
    options = seen.pop()
    assert options.model == session.model_name
    assert options.thinking_budget == 2_000
    assert options.fork == 0
    assert options.tools == offered
    async with Session(tmp_path, model=script(), settings={}, tools=[look], resume=session.id, fork=True) as fork:
        await fork.ask("look again")
    assert seen.pop().fork == 1
    async with Session(tmp_path, model=script(), settings={}, tools=[look], resume=fork.id, fork=True) as second:
        await second.ask("look again")
    assert seen.pop().fork == 2
