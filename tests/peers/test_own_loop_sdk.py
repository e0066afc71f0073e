"""A loop of one's own around the official SDKs: their streams are fed as they come, their servers get the results."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.models.wire import STREAMS, Loopback, Step, loopback, stream

from wieldy import Image, Output, Toolbox, tool

pytestmark = [pytest.mark.peer, pytest.mark.asyncio]

PIXEL = base64.b64encode(b"picture").decode()
STEPS: list[Step] = [
    ("text", "Let me see."),
    ("call", "c1", "Read", json.dumps({"file_path": "a.txt"})),
    ("call", "c2", "picture", "{}"),
    ("call", "c3", "Read", json.dumps({"file_path": "none.txt"})),
]


@tool(read_only=True)
async def picture() -> Output:
    """Take a picture."""
    return Output((Image("image/png", PIXEL),))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    root = tmp_path / "project"
    root.mkdir()
    (root / "a.txt").write_text("hello from a\n")
    return root


def box(folder: Path) -> Toolbox:
    return Toolbox(folder, settings={}, tools=[picture])


def server(wire: str, **options: Any) -> Any:
    return loopback(stream(STREAMS[wire](STEPS, 5, **options), 40), stream(STREAMS[wire]([("text", "Done.")])))


async def anthropic_loop(box: Toolbox, url: str, *, helper: bool) -> str:
    from anthropic import AsyncAnthropic

    tools: Any = await box.tools_for("anthropic")
    messages: list[Any] = [{"role": "user", "content": "look"}]
    async with AsyncAnthropic(api_key="key", base_url=url, max_retries=0) as client:
        while True:
            request: dict[str, Any] = {"model": "m", "max_tokens": 100, "messages": messages, "tools": tools}
            async with box.turn() as turn:
                if helper:
                    async with client.messages.stream(**request) as events:
                        async for event in events:
                            turn.feed(event)
                        answer = await events.get_final_message()
                    content: Any = [block.model_dump(exclude_none=True) for block in answer.content]
                    text = "".join(block.text for block in answer.content if block.type == "text")
                else:
                    content = []
                    text = ""
                    async for event in await client.messages.create(stream=True, **request):
                        call = turn.feed(event)
                        if call is not None:
                            content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": call.input})
                        if event.type == "content_block_delta" and event.delta.type == "text_delta":
                            text += event.delta.text
                results = await turn.messages("anthropic")
            if not results:
                return text
            messages += [{"role": "assistant", "content": content}, *results]


async def openai_loop(box: Toolbox, url: str, *, helper: bool) -> str:
    from openai import AsyncOpenAI

    tools: Any = await box.tools_for("openai")
    messages: list[Any] = [{"role": "user", "content": "look"}]
    async with AsyncOpenAI(api_key="key", base_url=url, max_retries=0) as client:
        while True:
            text, calls = "", []
            async with box.turn() as turn:
                if helper:
                    async with client.chat.completions.stream(model="m", messages=messages, tools=tools) as events:
                        async for event in events:
                            if (call := turn.feed(event)) is not None:
                                calls.append(call)
                            if event.type == "content.delta":
                                text += event.delta
                else:
                    chunks = await client.chat.completions.create(
                        model="m", messages=messages, tools=tools, stream=True
                    )
                    async for chunk in chunks:
                        if (call := turn.feed(chunk)) is not None:
                            calls.append(call)
                        text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
                results = await turn.messages("openai")
            if not results:
                return text
            tool_calls = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.input)}}
                for c in calls
            ]
            messages += [{"role": "assistant", "content": text, "tool_calls": tool_calls}, *results]


async def responses_loop(box: Toolbox, url: str, *, helper: bool) -> str:
    from openai import AsyncOpenAI

    tools: Any = await box.tools_for("responses")
    items: list[Any] = [{"role": "user", "content": "look"}]
    async with AsyncOpenAI(api_key="key", base_url=url, max_retries=0) as client:
        while True:
            text, output = "", []
            async with box.turn() as turn:
                if helper:
                    async with client.responses.stream(model="m", input=items, tools=tools) as events:
                        async for helped in events:
                            turn.feed(helped)
                            if helped.type == "response.output_text.delta":
                                text += helped.delta
                            if helped.type == "response.output_item.done":
                                item = helped.item.model_dump(exclude_none=True)
                                output.append({k: v for k, v in item.items() if k != "parsed_arguments"})
                else:
                    async for event in await client.responses.create(model="m", input=items, tools=tools, stream=True):
                        turn.feed(event)
                        if event.type == "response.output_text.delta":
                            text += event.delta
                        if event.type == "response.output_item.done":
                            output.append(event.item.model_dump(exclude_none=True))
                results = await turn.messages("responses")
            if not results:
                return text
            items += [*output, *results]


def check_results(there: Loopback, wire: str) -> None:
    """The second request has every result, in order, in the form of its API."""
    body = there.received[1].body
    names = [tool["function"]["name"] if wire == "openai" else tool["name"] for tool in body["tools"]]
    assert {"Read", "Bash", "picture"} <= set(names)
    if wire == "anthropic":
        blocks = body["messages"][-1]["content"]
        assert [block["tool_use_id"] for block in blocks] == ["c1", "c2", "c3"]
        assert "hello from a" in blocks[0]["content"][0]["text"]
        assert blocks[1]["content"][0]["source"]["data"] == PIXEL
        assert blocks[2]["is_error"]
    elif wire == "openai":
        *results, pictures = body["messages"][2:]
        assert [message["tool_call_id"] for message in results] == ["c1", "c2", "c3"]
        assert "hello from a" in results[0]["content"]
        assert pictures["content"][0]["image_url"]["url"].endswith(PIXEL)
        assert "none.txt" in results[2]["content"]
    else:
        results = [item for item in body["input"] if item.get("type") == "function_call_output"]
        assert [item["call_id"] for item in results] == ["c1", "c2", "c3"]
        assert "hello from a" in results[0]["output"]
        assert results[1]["output"][0]["image_url"].endswith(PIXEL)


@pytest.mark.parametrize("helper", [True, False])
async def test_a_loop_around_the_anthropic_sdk(folder, helper):
    async with box(folder) as tools, server("anthropic") as there:
        assert await anthropic_loop(tools, there.url, helper=helper) == "Done."
        check_results(there, "anthropic")


@pytest.mark.parametrize("helper", [True, False])
@pytest.mark.parametrize("interleave", [True, False])
async def test_a_loop_around_chat_completions_of_the_openai_sdk(folder, helper, interleave):
    async with box(folder) as tools, server("openai", interleave=interleave) as there:
        assert await openai_loop(tools, there.url, helper=helper) == "Done."
        check_results(there, "openai")


@pytest.mark.parametrize("helper", [True, False])
@pytest.mark.parametrize("interleave", [True, False])
async def test_a_loop_around_responses_of_the_openai_sdk(folder, helper, interleave):
    async with box(folder) as tools, server("responses", interleave=interleave) as there:
        assert await responses_loop(tools, there.url, helper=helper) == "Done."
        check_results(there, "responses")


async def test_whole_blocks_of_both_sdks_can_be_submitted(folder):
    from anthropic.types import ToolUseBlock
    from openai.types.chat import ChatCompletionMessageFunctionToolCall
    from openai.types.chat.chat_completion_message_function_tool_call import Function
    from openai.types.responses import ResponseCustomToolCall, ResponseFunctionToolCall

    text = json.dumps({"file_path": "a.txt"})
    blocks: list[Any] = [
        ToolUseBlock(type="tool_use", id="b1", name="Read", input={"file_path": "a.txt"}),
        ChatCompletionMessageFunctionToolCall(id="b2", type="function", function=Function(name="Read", arguments=text)),
        ResponseFunctionToolCall(type="function_call", call_id="b3", name="Read", arguments=text),
        ResponseCustomToolCall(type="custom_tool_call", call_id="b4", name="Read", input="a.txt"),
    ]
    blocks += [block.model_dump() for block in blocks[:3]]
    async with box(folder) as tools, tools.turn() as turn:
        for block in blocks:
            turn.submit(block)
        results = await turn.results()
        assert [result.call_id for result in results] == ["b1", "b2", "b3", "custom:b4", "b1", "b2", "b3"]
        assert [result.is_error for result in results] == [False, False, False, True, False, False, False]
        items = await turn.messages("responses")
        assert [item["type"] for item in items[2:4]] == ["function_call_output", "custom_tool_call_output"]
        assert items[3]["call_id"] == "b4"
