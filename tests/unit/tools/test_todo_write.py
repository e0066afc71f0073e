from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wieldy import Toolbox
from wieldy.core.events import Event, Notice
from wieldy.tools.todo_write import Todo, todo_write

pytestmark = pytest.mark.asyncio

TODOS: list[dict[str, Any]] = [
    {"content": "Write tests", "status": "completed"},
    {"content": "Run tests", "status": "in_progress", "activeForm": "Running tests"},
    {"content": "Commit", "status": "pending"},
]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))


async def test_the_list_is_kept_told_and_shown(tmp_path: Path) -> None:
    async with Toolbox(tmp_path, settings={}) as box:
        heard: list[Event] = []
        box.subscribe(heard.append)
        result = await box.call("TodoWrite", todos=TODOS)
        assert result.text == "Noted. 1 of 3 tasks done; now: Running tests."
        assert box.workspace.services.todo_list.todos[2] == Todo("Commit", "pending")
        assert todo_write.show_result(result) == "☑ Write tests\n▶ Running tests\n☐ Commit"
    (notice,) = [event for event in heard if isinstance(event, Notice)]
    assert notice.text == "1 of 3 tasks done; now: Running tests"
    assert [todo["status"] for todo in notice.data["todos"]] == ["completed", "in_progress", "pending"]


async def test_each_call_replaces_the_list_in_the_order_of_the_calls(tmp_path: Path) -> None:
    async with Toolbox(tmp_path, settings={}) as box:
        calls = [("TodoWrite", {"todos": [{"content": str(n), "status": "pending"}]}) for n in range(5)]
        await box.call_many([*calls, ("TodoWrite", {"todos": TODOS[:1]})])
        assert box.workspace.services.todo_list.todos == (Todo("Write tests", "completed"),)
        result = await box.call("TodoWrite", todos=[])
        assert result.text == "Noted. There are no tasks."
        assert not box.workspace.services.todo_list.todos


async def test_two_tasks_under_way_are_remarked_on(tmp_path: Path) -> None:
    async with Toolbox(tmp_path, settings={}) as box:
        result = await box.call("TodoWrite", todos=[{**TODOS[1]}, {**TODOS[1], "content": "b"}])
        assert "Only one task at a time" in result.text


@pytest.mark.parametrize(
    "todo", [{"content": "x"}, {"content": "x", "status": "later"}, {"content": "", "status": "pending"}]
)
async def test_a_task_that_says_too_little_is_refused_and_the_list_stays(tmp_path: Path, todo: dict[str, str]) -> None:
    async with Toolbox(tmp_path, settings={}) as box:
        await box.call("TodoWrite", todos=TODOS)
        assert (await box.call("TodoWrite", todos=[todo])).is_error
        assert len(box.workspace.services.todo_list.todos) == 3


async def test_plan_mode_has_it_too(tmp_path: Path) -> None:
    async with Toolbox(tmp_path, settings={}, mode="plan") as box:
        assert not (await box.call("TodoWrite", todos=TODOS)).is_error
        assert {row.tool.name for row in await box.offer() if row.offered} >= {"TodoWrite", "ExitPlan"}
