"""`box.tools_for` and `box.turn`: tools for any model, in dicts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from wieldy import Toolbox, ToolCall, Turn, tool
from wieldy.core.errors import ClosedError

pytestmark = pytest.mark.asyncio


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toolbox:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    return Toolbox(tmp_path, settings={}, tools=[echo])


@tool(read_only=True, prompt="Say it twice if it matters.")
async def echo(word: str = "nothing") -> str:
    """Say a word."""
    return f"said {word}"


def block_start(index: int, id: str, name: str = "echo") -> dict[str, Any]:
    block = {"type": "tool_use", "id": id, "name": name, "input": {}}
    return {"type": "content_block_start", "index": index, "content_block": block}


def grow(index: int, text: str) -> dict[str, Any]:
    return {
        "type": "content_block_delta",
        "index": index,
        "delta": {"type": "input_json_delta", "partial_json": text},
    }


def stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def chunk(*calls: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    delta = {"tool_calls": list(calls)} if calls else {}
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


async def test_tools_have_the_form_of_each_api_and_their_whole_prompt_in_a_stable_order(box):
    async with box:
        anthropic = await box.tools_for("anthropic")
        openai = await box.tools_for("openai")
        responses = await box.tools_for("responses")
        assert await box.tools_for("anthropic") == anthropic
    json.dumps([anthropic, openai, responses])
    mine = next(each for each in anthropic if each["name"] == "echo")
    assert mine["description"] == "Say a word.\n\nSay it twice if it matters."
    assert mine["input_schema"]["properties"]["word"]["type"] == "string"
    names = [each["name"] for each in anthropic]
    assert names == sorted(names)
    assert "ToolSearch" not in names
    assert [each["function"]["name"] for each in openai] == names
    assert [each["name"] for each in responses] == names
    assert {each["type"] for each in (*openai, *responses)} == {"function"}


@pytest.mark.parametrize("wire", ["antropic", "gemini", "", 3])
async def test_an_unknown_wire_is_an_error(box, wire):
    async with box:
        with pytest.raises(ValueError, match="there is no wire"):
            await box.tools_for(wire)
        async with box.turn() as turn:
            turn.submit(("echo", {}))
            with pytest.raises(ValueError, match="there is no wire"):
                await turn.messages(wire)


async def test_a_call_starts_as_soon_as_its_block_is_complete(box):
    async with box, box.turn() as turn:
        assert isinstance(turn, Turn)
        assert turn.feed(block_start(0, "t1")) is None
        assert turn.feed(grow(0, '{"word":')) is None
        assert turn.feed(grow(0, '"tea"}')) is None
        call = turn.feed(stop(0))
        assert call == ToolCall("t1", "echo", {"word": "tea"})
        for _ in range(20):
            await asyncio.sleep(0.005)
        turn.feed(block_start(1, "t2"))  # the stream goes on while the first call runs
        turn.feed(grow(1, "{}"))
        turn.feed(stop(1))
        (message,) = await turn.messages()
    assert message["role"] == "user"
    assert [(block["tool_use_id"], block["content"][0]["text"]) for block in message["content"]] == [
        ("t1", "said tea"),
        ("t2", "said nothing"),
    ]


async def test_a_call_without_input_waits_for_the_end_of_the_message(box):
    async with box, box.turn() as turn:
        turn.feed(block_start(0, "t1"))
        turn.feed(stop(0))
        turn.feed({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}})
        turn.feed({"type": "message_stop"})
        (message,) = await turn.messages("anthropic")
    assert message["content"][0]["content"][0]["text"] == "said nothing"


async def test_a_call_that_the_end_of_the_stream_cut_off_is_not_run(box):
    async with box, box.turn() as turn:
        turn.feed(block_start(0, "t1"))
        turn.feed(grow(0, '{"word": "te'))
        (message,) = await turn.messages()
    assert message["content"][0]["is_error"]
    assert "cut off" in message["content"][0]["content"][0]["text"]


async def test_chunks_of_completions_start_each_call_when_its_json_is_complete(box):
    async with box, box.turn() as turn:
        begin = {"index": 0, "id": "c1", "type": "function", "function": {"name": "echo", "arguments": ""}}
        assert turn.feed(chunk(begin)) is None
        call = turn.feed(chunk({"index": 0, "function": {"arguments": '{"word": "tea"}'}}))
        assert call is not None
        turn.feed(chunk({"index": 1, "id": "c2", "function": {"name": "echo", "arguments": ""}}))
        turn.feed(chunk(reason="tool_calls"))
        messages = await turn.messages("openai")
    assert messages == [
        {"role": "tool", "tool_call_id": "c1", "content": "said tea"},
        {"role": "tool", "tool_call_id": "c2", "content": "said nothing"},
    ]


async def test_without_calls_there_are_no_messages(box):
    async with box, box.turn() as turn:
        turn.feed({"type": "message_stop"})
        assert await turn.messages() == []
        assert await turn.results() == []


@pytest.mark.parametrize("event", [None, 3, "text", {"type": "banana"}, {}, object()])
async def test_what_is_no_event_is_an_error(box, event):
    async with box, box.turn() as turn:
        with pytest.raises(TypeError, match="stream events"):
            turn.feed(event)


async def test_events_of_two_apis_do_not_mix(box):
    async with box, box.turn() as turn:
        turn.feed({"type": "ping"})
        with pytest.raises(TypeError, match="anthropic"):
            turn.feed(chunk())


@pytest.mark.parametrize("call", [None, 3, "echo", {"type": "text", "text": "x"}, ("echo",), object()])
async def test_what_is_no_call_is_an_error(box, call):
    async with box, box.turn() as turn:
        with pytest.raises(TypeError, match="no tool call"):
            turn.submit(call)


async def test_results_of_one_turn_come_in_the_order_of_the_calls_in_any_form(box):
    calls: list[Any] = [
        ("echo", {"word": "1"}),
        ToolCall("x", "echo", '{"word": "2"}'),
        {"type": "tool_use", "id": "y", "name": "echo", "input": {"word": "3"}},
        {"id": "z", "type": "function", "function": {"name": "echo", "arguments": '{"word": "4"}'}},
        {"type": "function_call", "call_id": "w", "name": "echo", "arguments": '{"word": "5"}'},
        {"id": "v", "type": "function", "function": {"name": "echo", "arguments": ""}},
    ]
    async with box:
        results = await box.call_many(calls)
    assert [result.text for result in results] == [*(f"said {n}" for n in range(1, 6)), "said nothing"]
    assert [result.call_id for result in results[1:]] == ["x", "y", "z", "w", "v"]


async def test_a_turn_is_for_one_answer(box):
    async with box, box.turn() as turn:
        turn.feed({"type": "message_stop"})
        assert await turn.messages() == []
        with pytest.raises(RuntimeError, match="begin another turn"):
            turn.feed({"type": "ping"})


async def test_a_turn_that_is_over_takes_no_call_and_still_has_its_results(box):
    async with box:
        async with box.turn() as turn:
            turn.feed(chunk({"index": 0, "id": "c1", "function": {"name": "echo", "arguments": '{"word": "x"}'}}))
        [message] = await turn.messages("openai")
        assert message["content"] == "said x"
        with pytest.raises(ClosedError, match="this turn is over"):
            turn.submit(("echo", {"word": "late"}))
