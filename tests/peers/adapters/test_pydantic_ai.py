"""The toolset for pydantic-ai, driven by pydantic-ai with its own function model."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.needs import import_or_skip

from wieldy import Toolbox, ToolContext, tool

import_or_skip("pydantic_ai")
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import AbstractToolset

pytestmark = [pytest.mark.peer, pytest.mark.asyncio]


def calling(*steps: list[tuple[str, dict[str, Any]]]) -> tuple[FunctionModel, list[list[ModelMessage]]]:
    """A model that makes these calls, step by step, and then says that it is done; and what it was sent."""
    seen: list[list[ModelMessage]] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(messages)
        done = sum(isinstance(message, ModelResponse) for message in messages)
        if done >= len(steps):
            return ModelResponse([TextPart("done")])
        return ModelResponse([ToolCallPart(name, args, f"c{done}-{n}") for n, (name, args) in enumerate(steps[done])])

    return FunctionModel(answer), seen


def returns(messages: list[ModelMessage]) -> list[ToolReturnPart]:
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    return [part for message in requests for part in message.parts if isinstance(part, ToolReturnPart)]


async def test_a_tool_is_called_and_its_data_is_the_metadata(box):
    model, _ = calling([("Read", {"file_path": "a.txt"})])
    toolset = box.as_pydantic_ai()
    assert isinstance(toolset, AbstractToolset)
    result = await Agent(model, toolsets=[toolset]).run("look")
    assert result.output == "done"
    (part,) = returns(result.all_messages())
    assert "alpha" in part.content
    assert part.metadata


async def test_the_model_sees_names_schemas_and_guidance(box):
    definitions: list[Any] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        definitions.extend(info.function_tools)
        return ModelResponse([TextPart("done")])

    await Agent(FunctionModel(answer), toolsets=[box.as_pydantic_ai()]).run("x")
    by_name = {definition.name: definition for definition in definitions}
    assert {"Read", "Bash", "Edit", "picture"} <= by_name.keys()
    assert "AskUser" not in by_name
    assert by_name["Read"].parameters_json_schema["required"] == ["file_path"]


async def test_a_denied_call_is_a_failed_result_and_not_an_exception(box):
    model, _ = calling([("Read", {"file_path": "secret.txt"})])
    result = await Agent(model, toolsets=[box.as_pydantic_ai()]).run("look")
    (part,) = returns(result.all_messages())
    assert part.outcome == "failed"
    assert "denied" in str(part.content).lower()


async def test_a_question_becomes_a_deferred_approval_with_reasons_and_the_rule_on_offer(box, project):
    model, _ = calling([("Write", {"file_path": "new.txt", "content": "new"}), ("Read", {"file_path": "a.txt"})])
    agent = Agent(model, toolsets=[box.as_pydantic_ai()], output_type=[str, DeferredToolRequests])
    result = await agent.run("write")
    requests = result.output
    assert isinstance(requests, DeferredToolRequests)
    (call,) = requests.approvals
    metadata = requests.metadata[call.tool_call_id]
    assert metadata["tool"] == "Write"
    assert metadata["reasons"]
    assert metadata["suggested_rules"] == ["Edit(/new.txt)"]
    assert not (project / "new.txt").exists()
    answers = DeferredToolResults(approvals={call.tool_call_id: True})
    result = await agent.run(message_history=result.all_messages(), deferred_tool_results=answers)
    assert result.output == "done"
    assert (project / "new.txt").read_text() == "new"


@pytest.mark.parametrize("by", ["denial", "override"])
async def test_a_person_can_refuse_or_change_a_call(box, project, by):
    model, _ = calling([("Write", {"file_path": "new.txt", "content": "new"})])
    agent = Agent(model, toolsets=[box.as_pydantic_ai()], output_type=[str, DeferredToolRequests])
    result = await agent.run("write")
    changed = ToolApproved(override_args={"file_path": "other.txt", "content": "x"})
    answer = ToolDenied("not now") if by == "denial" else changed
    answers = DeferredToolResults(approvals={result.output.approvals[0].tool_call_id: answer})
    await agent.run(message_history=result.all_messages(), deferred_tool_results=answers)
    assert not (project / "new.txt").exists()
    assert (project / "other.txt").exists() == (by == "override")


async def test_an_approval_is_for_one_call_even_if_another_run_uses_the_same_id(project):
    waiting, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def hold(ctx: ToolContext, name: str) -> str:
        """Wait."""
        waiting.set()
        await go_on.wait()
        return name

    async with Toolbox(project, settings={"permissions": {"ask": ["hold"]}}, tools=[hold]) as box:
        toolset = box.as_pydantic_ai()
        output: Any = [str, DeferredToolRequests]
        agents = [Agent(calling([("hold", {"name": n})])[0], toolsets=[toolset], output_type=output) for n in "ab"]
        first = await agents[0].run("go")
        answers = DeferredToolResults(approvals={first.output.approvals[0].tool_call_id: True})
        history = first.all_messages()
        running = asyncio.create_task(agents[0].run(message_history=history, deferred_tool_results=answers))
        await waiting.wait()
        other = asyncio.create_task(agents[1].run("go"))
        await asyncio.sleep(0.05)
        go_on.set()
        assert (await running).output == "done"
        assert isinstance((await other).output, DeferredToolRequests)


async def test_calls_of_one_step_are_one_turn_for_undo(project):
    settings = {"permissions": {"allow": ["Write", "Edit"]}}
    first = [("Write", {"file_path": "one.txt", "content": "1"}), ("Write", {"file_path": "two.txt", "content": "2"})]
    model, _ = calling(first, [("Write", {"file_path": "three.txt", "content": "3"})])
    async with Toolbox(project, settings=settings) as box:
        await Agent(model, toolsets=[box.as_pydantic_ai()]).run("go")
        await box.undo(turn=True)
        assert not (project / "three.txt").exists()
        assert (project / "one.txt").exists()
        await box.undo(turn=True)
    assert not (project / "one.txt").exists()
    assert not (project / "two.txt").exists()


async def test_calls_of_one_step_that_clash_run_in_order(project):
    settings = {"permissions": {"allow": ["Write", "Edit"]}}
    edits = [
        ("Write", {"file_path": "x.txt", "content": "one\n"}),
        ("Edit", {"file_path": "x.txt", "old_string": "one", "new_string": "two"}),
        ("Edit", {"file_path": "x.txt", "old_string": "two", "new_string": "three"}),
    ]
    model, _ = calling(edits)
    async with Toolbox(project, settings=settings) as box:
        await Agent(model, toolsets=[box.as_pydantic_ai()]).run("go")
    assert (project / "x.txt").read_text() == "three\n"


async def test_a_picture_is_native_content(box):
    model, _ = calling([("picture", {})])
    result = await Agent(model, toolsets=[box.as_pydantic_ai()]).run("show")
    (part,) = returns(result.all_messages())
    text, image = part.content
    assert text == "here it is"
    assert isinstance(image, BinaryContent)
    assert image.media_type == "image/png"
    assert part.metadata == {"width": 1}


async def test_a_toolbox_with_somebody_to_ask_asks_there(project):
    asked: list[str] = []

    def ask(question: Any) -> bool:
        asked.append(question.plan.tool.name)
        return True

    model, _ = calling([("Write", {"file_path": "new.txt", "content": "new"})])
    async with Toolbox(project, settings={}, ask=ask) as box:
        result = await Agent(model, toolsets=[box.as_pydantic_ai()]).run("write")
    assert (result.output, asked) == ("done", ["Write"])
