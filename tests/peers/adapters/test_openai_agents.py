"""The function tools for the OpenAI Agents SDK, driven by its runner."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.needs import import_or_skip

from wieldy import Toolbox

import_or_skip("agents")
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from agents import Agent, Model, ModelResponse, RunConfig, RunHooks, Runner, RunState, Usage

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.asyncio]
QUIET = RunConfig(tracing_disabled=True)


class Calling(Model):
    """A model that makes these calls, step by step, and then says that it is done. `seen` is what it was sent."""

    def __init__(self, *steps: list[tuple[str, dict[str, Any]]]) -> None:
        self.steps = list(steps)
        self.seen: list[Any] = []
        self._count = 0

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        self.seen.append(input)
        self._count += 1
        calls = self.steps.pop(0) if self.steps else []
        output: list[Any] = [
            ResponseFunctionToolCall(
                type="function_call", call_id=f"c{self._count}-{n}", name=name, arguments=json.dumps(args)
            )
            for n, (name, args) in enumerate(calls)
        ]
        if not output:
            text = ResponseOutputText(type="output_text", text="done", annotations=[])
            output = [
                ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
            ]
        return ModelResponse(output=output, usage=Usage(requests=1), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


def outputs(result: Any) -> list[Any]:
    return [item for item in result.new_items if item.type == "tool_call_output_item"]


async def test_a_tool_is_called_and_its_data_is_custom_data(box):
    model = Calling([("Read", {"file_path": "a.txt"})])
    result = await Runner.run(Agent("a", model=model, tools=box.as_openai_agents()), "look", run_config=QUIET)
    assert result.final_output == "done"
    (item,) = outputs(result)
    assert "alpha" in item.output
    assert item.custom_data["data"]


async def test_a_denied_call_is_a_result_that_says_so(box):
    model = Calling([("Read", {"file_path": "secret.txt"})])
    result = await Runner.run(Agent("a", model=model, tools=box.as_openai_agents()), "look", run_config=QUIET)
    assert result.final_output == "done"
    assert "denied" in outputs(result)[0].output.lower()


async def test_a_question_interrupts_the_run_until_it_is_approved_even_from_a_saved_state(box, project):
    model = Calling([("Write", {"file_path": "new.txt", "content": "new"})])
    tools = box.as_openai_agents()
    agent = Agent("a", model=model, tools=tools)
    result = await Runner.run(agent, "write", run_config=QUIET)
    (interruption,) = result.interruptions
    question = tools.questions[interruption.raw_item.call_id]
    assert question["suggested_rules"] == ["Edit(/new.txt)"]
    assert question["reasons"]
    assert not (project / "new.txt").exists()
    state = await RunState.from_json(agent, result.to_state().to_json())
    state.approve(state.get_interruptions()[0])
    result = await Runner.run(agent, state, run_config=QUIET)
    assert result.final_output == "done"
    assert (project / "new.txt").read_text() == "new"
    assert tools.questions == {}


async def test_a_rejected_call_is_not_run(box, project):
    model = Calling([("Write", {"file_path": "new.txt", "content": "new"})])
    agent = Agent("a", model=model, tools=box.as_openai_agents())
    result = await Runner.run(agent, "write", run_config=QUIET)
    state = result.to_state()
    state.reject(result.interruptions[0])
    result = await Runner.run(agent, state, run_config=QUIET)
    assert result.final_output == "done"
    assert not (project / "new.txt").exists()


async def test_calls_of_one_step_are_one_turn_for_undo_and_run_in_order_where_they_clash(project):
    first = [
        ("Write", {"file_path": "x.txt", "content": "one\n"}),
        ("Edit", {"file_path": "x.txt", "old_string": "one", "new_string": "two"}),
        ("Write", {"file_path": "y.txt", "content": "y"}),
    ]
    model = Calling(first, [("Write", {"file_path": "z.txt", "content": "z"})])
    async with Toolbox(project, settings={"permissions": {"allow": ["Write", "Edit"]}}) as box:
        await Runner.run(Agent("a", model=model, tools=box.as_openai_agents()), "go", run_config=QUIET)
        assert (project / "x.txt").read_text() == "two\n"
        await box.undo(turn=True)
        assert (project / "y.txt").exists()
        assert not (project / "z.txt").exists()
        await box.undo(turn=True)
    assert not (project / "x.txt").exists()
    assert not (project / "y.txt").exists()


async def test_calls_run_in_the_order_of_their_step_though_the_framework_is_slow_with_the_first(project):
    class SlowFirst(RunHooks[Any]):
        async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
            await asyncio.sleep(0.3 if tool.name == "Write" else 0)

    calls = [
        ("Write", {"file_path": "x.txt", "content": "one\n"}),
        ("Edit", {"file_path": "x.txt", "old_string": "one", "new_string": "two"}),
    ]
    async with Toolbox(project, settings={"permissions": {"allow": ["Write", "Edit"]}}) as box:
        agent = Agent("a", model=Calling(calls), tools=box.as_openai_agents())
        await Runner.run(agent, "go", run_config=QUIET, hooks=SlowFirst())
    assert (project / "x.txt").read_text() == "two\n"


async def test_a_picture_is_a_native_block(box):
    model = Calling([("picture", {})])
    await Runner.run(Agent("a", model=model, tools=box.as_openai_agents()), "show", run_config=QUIET)
    (output,) = [item for item in model.seen[1] if item.get("type") == "function_call_output"]
    assert [part["type"] for part in output["output"]] == ["input_text", "input_image"]


async def test_what_the_framework_cannot_parse_is_asked_about_and_repaired_by_the_toolbox(box):
    class Broken(Calling):
        async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
            response = await super().get_response(*args, **kwargs)
            for item in response.output:
                if isinstance(item, ResponseFunctionToolCall):
                    item.arguments = '{"file_path": "a.txt",}'
            return response

    model = Broken([("Read", {})])
    agent = Agent("a", model=model, tools=box.as_openai_agents())
    result = await Runner.run(agent, "look", run_config=QUIET)
    state = result.to_state()
    state.approve(result.interruptions[0])
    result = await Runner.run(agent, state, run_config=QUIET)
    assert "alpha" in outputs(result)[-1].output
