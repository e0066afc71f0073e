"""Models know tools of other agents by heart: their names and fields work where they mean something here, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from wieldy import Script, Session, Toolbox
from wieldy.core.outcome import ToolResult
from wieldy.core.user_questions import UserAnswer, UserQuestion
from wieldy.engine.workspace_services import HostServices

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))


async def _call(tmp_path: Path, name: str, **fields: Any) -> ToolResult:
    async with Toolbox(tmp_path, settings={}, mode="bypassPermissions") as box:
        return await box.call(name, fields)


async def test_tasks_may_have_the_id_and_priority_of_older_models(tmp_path: Path) -> None:
    todo = {"id": "1", "content": "Run tests", "status": "pending", "priority": "high"}
    result = await _call(tmp_path, "TodoWrite", todos=[todo], merge=False)
    assert (result.is_error, result.text) == (False, "Noted. 0 of 1 tasks done.")


async def test_tasks_to_be_merged_into_the_list_are_refused(tmp_path: Path) -> None:
    result = await _call(tmp_path, "TodoWrite", todos=[{"content": "Run tests", "status": "pending"}], merge=True)
    assert result.is_error and "`merge` is not a known field" in result.text


async def test_an_unknown_field_of_a_task_is_still_refused(tmp_path: Path) -> None:
    todo = {"id": "1", "content": "Run tests", "status": "pending", "stauts": "x"}
    result = await _call(tmp_path, "TodoWrite", todos=[todo])
    assert result.is_error and "stauts" in result.text and "`todos[0].id`" not in result.text


@pytest.mark.parametrize("todos", ["x", [1, "a", None, []], {"id": 1}, None])
async def test_nonsense_instead_of_tasks_is_refused_with_a_sentence(tmp_path: Path, todos: Any) -> None:
    result = await _call(tmp_path, "TodoWrite", todos=todos)
    assert result.is_error and result.text.startswith("InputValidationError: TodoWrite was not run")


async def test_bash_without_a_wish_to_leave_the_sandbox_runs(tmp_path: Path) -> None:
    fields = {"command": "echo hi", "dangerouslyDisableSandbox": False, "restart": False}
    assert (await _call(tmp_path, "Bash", **fields)).text == "hi"


async def test_the_wish_to_leave_the_sandbox_is_asked_about_under_its_other_name(tmp_path: Path) -> None:
    async with Toolbox(tmp_path, settings={"sandbox": {"enabled": True}}) as box:
        ours = await box.explain("Bash", {"command": "echo hi", "sandbox": False})
        theirs = await box.explain("Bash", {"command": "echo hi", "dangerouslyDisableSandbox": True})
    assert (ours.behavior, ours.reasons) == (theirs.behavior, theirs.reasons)


class Person:
    """Chooses the first option of every question."""

    def __init__(self) -> None:
        self.asked: list[UserQuestion] = []

    async def answer(self, questions: Sequence[UserQuestion]) -> Sequence[UserAnswer]:
        self.asked += questions
        return [UserAnswer(question.options[:1]) for question in questions]


async def test_a_question_may_have_options_with_descriptions(tmp_path: Path) -> None:
    person = Person()
    question = {
        "question": "Which color?",
        "header": "Color",
        "options": [{"label": "Red", "description": "warm"}, {"label": "Blue"}],
        "multiSelect": False,
    }
    async with Toolbox(tmp_path, settings={}, host=HostServices(question_handler=person)) as box:
        result = await box.call("AskUserQuestion", {"questions": [question]})
    assert person.asked == [UserQuestion("Which color?", ("Red: warm", "Blue"), False)]
    assert not result.is_error and "Red: warm" in result.text


async def test_a_background_shell_is_read_and_stopped_as_a_task(tmp_path: Path) -> None:
    async with Toolbox(tmp_path, settings={}, mode="bypassPermissions") as box:
        started = await box.call("Bash", {"command": "echo begun; sleep 60", "run_in_background": True})
        shell = started.data["backgroundTaskId"]
        shown = await box.call("TaskOutput", {"task_id": shell, "block": True, "timeout": 20_000})
        assert "begun" in shown.text
        stopped = await box.call("TaskStop", {"task_id": shell})
        assert not stopped.is_error and shell in stopped.text
        assert not (await box.call("BashOutput", {"bash_id": shell, "block": False, "wait_up_to": 5})).is_error


async def test_a_cell_may_be_named_by_its_number(tmp_path: Path) -> None:
    notebook = tmp_path / "a.ipynb"
    notebook.write_text(
        '{"cells": [{"cell_type": "code", "source": ["1"], "metadata": {}, "outputs": [], "execution_count": null}],'
        ' "metadata": {}, "nbformat": 4, "nbformat_minor": 4}'
    )
    async with Toolbox(tmp_path, settings={}, mode="bypassPermissions") as box:
        await box.call("NotebookRead", {"notebook_path": str(notebook)})
        result = await box.call("NotebookEdit", {"notebook_path": str(notebook), "cell_number": 0, "new_source": "2"})
    assert not result.is_error, result.text
    assert '"2"' in notebook.read_text()


async def test_a_subagent_with_a_wish_for_a_model_gets_as_far_as_one_without(tmp_path: Path) -> None:
    fields = {"description": "look", "prompt": "Look", "subagent_type": "explore"}
    assert (await _call(tmp_path, "Task", **fields, model="haiku")).text.startswith(
        "`Agent` is not available: it needs a model"
    )


async def test_a_subagent_with_a_wish_that_would_change_its_rights_is_refused(tmp_path: Path) -> None:
    fields = {"description": "look", "prompt": "Look", "subagent_type": "explore", "mode": "plan"}
    assert "`mode` is not a known field" in (await _call(tmp_path, "Task", **fields)).text


@pytest.mark.parametrize(
    ("name", "kind"), [("Explore", "explore"), ("general-purpose", "general"), ("GENERAL", "general")]
)
async def test_a_subagent_is_found_by_the_name_of_another_agent(tmp_path: Path, name: str, kind: str) -> None:
    model = Script().calls("Task", prompt="Look", description="look", subagent_type=name).says("done")
    model = model.sends(kind, Script().says("found it"))
    async with Session(tmp_path, model=model, settings={}, mode="bypassPermissions") as session:
        await session.ask("go")
    assert "found it" in model.requests[1].messages[-1].content[0]["content"][0]["text"]


async def test_a_rule_about_a_kind_of_subagent_is_not_passed_by_another_spelling(tmp_path: Path) -> None:
    async with Toolbox(
        tmp_path, settings={"permissions": {"deny": ["Agent(explore)"]}}, mode="bypassPermissions"
    ) as box:
        for name in ("explore", "Explore", "EXPLORE"):
            decision = await box.explain("Task", {"prompt": "Look", "subagent_type": name})
            assert decision.behavior == "deny", name


async def test_memory_takes_a_file_path(tmp_path: Path) -> None:
    settings = {"features": {"memory": True}}
    async with Toolbox(tmp_path, settings=settings, ask=lambda question: True) as box:
        written = await box.call("MemoryWrite", {"file_path": "notes.md", "content": "remembered"})
        assert not written.is_error, written.text
        assert "remembered" in (await box.call("MemoryRead", {"file_path": "notes.md"})).text


async def test_a_tool_of_the_host_keeps_a_name_that_another_agent_used_for_one_of_ours(tmp_path: Path) -> None:
    from wieldy import tool

    @tool(name="Task", read_only=True)
    def task(prompt: str) -> str:
        """Do it."""
        return "mine"

    async with Toolbox(tmp_path, settings={}, tools=[task]) as box:
        assert (await box.call("Task", {"prompt": "x"})).text == "mine"
