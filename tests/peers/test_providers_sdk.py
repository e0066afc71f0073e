"""The official SDKs as witnesses: what we send fits their request types, what their types serialise we understand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter
from tests.unit.models.test_requests import IMAGE, OFFER, history
from tests.unit.models.wire import STREAMS, loopback, provider, receive, request, stream

from wieldy import Session, tool
from wieldy.core.messages import Message
from wieldy.core.provider import Request, Usage
from wieldy.models import anthropic as anthropic_wire
from wieldy.models import openai_chat as openai_wire
from wieldy.models import openai_responses as responses_wire

pytestmark = pytest.mark.peer


def lines(events: list[Any]) -> bytes:
    return b"".join(b"data: " + event.model_dump_json().encode() + b"\n\n" for event in events)


def messages_stream() -> bytes:
    from anthropic import types

    made = types.Message(
        id="m",
        content=[],
        model="x",
        role="assistant",
        type="message",
        stop_reason=None,
        stop_sequence=None,
        usage=types.Usage(input_tokens=9, output_tokens=1),
    )
    usage = types.MessageDeltaUsage(output_tokens=5)
    end = types.raw_message_delta_event.Delta(stop_reason="tool_use", stop_sequence=None)
    return lines(
        [
            types.RawMessageStartEvent(type="message_start", message=made),
            types.RawContentBlockStartEvent(
                type="content_block_start",
                index=0,
                content_block=types.ThinkingBlock(type="thinking", thinking="", signature=""),
            ),
            types.RawContentBlockDeltaEvent(
                type="content_block_delta", index=0, delta=types.ThinkingDelta(type="thinking_delta", thinking="hm")
            ),
            types.RawContentBlockDeltaEvent(
                type="content_block_delta", index=0, delta=types.SignatureDelta(type="signature_delta", signature="sig")
            ),
            types.RawContentBlockStopEvent(type="content_block_stop", index=0),
            types.RawContentBlockStartEvent(
                type="content_block_start", index=1, content_block=types.TextBlock(type="text", text="", citations=None)
            ),
            types.RawContentBlockDeltaEvent(
                type="content_block_delta", index=1, delta=types.TextDelta(type="text_delta", text="hello")
            ),
            types.RawContentBlockStopEvent(type="content_block_stop", index=1),
            types.RawContentBlockStartEvent(
                type="content_block_start",
                index=2,
                content_block=types.ToolUseBlock(type="tool_use", id="t", name="Read", input={}),
            ),
            types.RawContentBlockDeltaEvent(
                type="content_block_delta",
                index=2,
                delta=types.InputJSONDelta(type="input_json_delta", partial_json='{"a":1}'),
            ),
            types.RawContentBlockStopEvent(type="content_block_stop", index=2),
            types.RawMessageDeltaEvent(type="message_delta", delta=end, usage=usage),
            types.RawMessageStopEvent(type="message_stop"),
        ]
    )


def completion_stream() -> bytes:
    from openai.types import CompletionUsage
    from openai.types.chat import ChatCompletionChunk
    from openai.types.chat.chat_completion_chunk import (
        Choice,
        ChoiceDelta,
        ChoiceDeltaToolCall,
        ChoiceDeltaToolCallFunction,
    )

    def chunk(delta: ChoiceDelta, reason: Any = None) -> ChatCompletionChunk:
        choice = Choice(index=0, delta=delta, finish_reason=reason)
        return ChatCompletionChunk(id="c", choices=[choice], created=1, model="x", object="chat.completion.chunk")

    def call(arguments: str, **more: Any) -> ChoiceDelta:
        name = more.pop("name", None)
        function = ChoiceDeltaToolCallFunction(arguments=arguments, name=name)
        return ChoiceDelta(tool_calls=[ChoiceDeltaToolCall(index=0, function=function, **more)])

    usage = CompletionUsage(prompt_tokens=9, completion_tokens=5, total_tokens=14)
    last = ChatCompletionChunk(id="c", choices=[], created=1, model="x", object="chat.completion.chunk", usage=usage)
    chunks = [
        chunk(ChoiceDelta(role="assistant", content="hello")),
        chunk(call("", id="t", type="function", name="Read")),
        chunk(call('{"a":')),
        chunk(call("1}")),
        chunk(ChoiceDelta(), "tool_calls"),
        last,
    ]
    return lines(chunks) + b"data: [DONE]\n\n"


def responses_stream() -> bytes:
    from openai.types import responses as types
    from openai.types.responses.response_reasoning_item import Summary
    from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

    inputs = InputTokensDetails.model_construct(cached_tokens=0)
    outputs = OutputTokensDetails.model_construct(reasoning_tokens=2)
    usage = types.ResponseUsage(
        input_tokens=9, output_tokens=5, total_tokens=14, input_tokens_details=inputs, output_tokens_details=outputs
    )
    response = types.Response.model_construct(id="r", object="response", status="completed", usage=usage)
    thought = types.ResponseReasoningItem(id="rs", type="reasoning", summary=[], encrypted_content="secret")
    thought_done = thought.model_copy(update={"summary": [Summary(text="hm", type="summary_text")]})
    text = types.ResponseOutputText(type="output_text", text="hello", annotations=[])
    message = types.ResponseOutputMessage(id="m", type="message", role="assistant", status="in_progress", content=[])
    message_done = message.model_copy(update={"content": [text], "status": "completed"})
    call = types.ResponseFunctionToolCall(type="function_call", id="fc", call_id="t", name="Read", arguments="")
    call_done = call.model_copy(update={"arguments": '{"a":1}', "status": "completed"})
    events: list[Any] = [types.ResponseCreatedEvent(type="response.created", response=response, sequence_number=0)]

    def add(kind: Any, **fields: Any) -> None:
        events.append(kind(sequence_number=len(events), **fields))

    pairs: list[tuple[Any, Any]] = [(thought, thought_done), (message, message_done), (call, call_done)]
    for index, (item, done) in enumerate(pairs):
        add(types.ResponseOutputItemAddedEvent, type="response.output_item.added", output_index=index, item=item)
        place = {"output_index": index, "item_id": item.id}
        if item is thought:
            kind = "response.reasoning_summary_text.delta"
            add(types.ResponseReasoningSummaryTextDeltaEvent, type=kind, summary_index=0, delta="hm", **place)
        elif item is message:
            kind = "response.output_text.delta"
            add(types.ResponseTextDeltaEvent, type=kind, content_index=0, delta="hello", logprobs=[], **place)
        else:
            kind = "response.function_call_arguments.delta"
            for piece in ('{"a":', "1}"):
                add(types.ResponseFunctionCallArgumentsDeltaEvent, type=kind, delta=piece, **place)
        add(types.ResponseOutputItemDoneEvent, type="response.output_item.done", output_index=index, item=done)
    add(types.ResponseCompletedEvent, type="response.completed", response=response)
    return lines(events)


SDK_STREAMS = {"anthropic": messages_stream, "openai": completion_stream, "responses": responses_stream}


@pytest.mark.asyncio
@pytest.mark.parametrize("wire", ["anthropic", "openai", "responses"])
async def test_a_stream_made_of_the_sdks_own_events_is_understood(wire):
    data = SDK_STREAMS[wire]()
    async with loopback(stream(data)) as server:
        answer = await receive(provider(wire, server.url))
    content = answer.content()
    assert content[-1]["input"] == {"a": 1}
    assert content[-2]["text"] == "hello"
    assert (answer.stop_reason, answer.usage) == ("tool_use", Usage(9, 5))
    if wire == "anthropic":
        assert {key: content[0][key] for key in ("type", "thinking", "signature")} == {
            "type": "thinking", "thinking": "hm", "signature": "sig",
        }  # fmt: skip

    if wire == "responses":
        assert (content[0]["thinking"], content[0]["item"]["encrypted_content"]) == ("hm", "secret")


def read_through(value: Any) -> None:
    """The SDKs declare lists as iterables, which are checked only while they are read."""
    if isinstance(value, dict):
        for item in value.values():
            read_through(item)
    elif not isinstance(value, str | bytes) and hasattr(value, "__iter__"):
        for item in value:
            read_through(item)


def check_messages_request(body: dict[str, Any]) -> None:
    from anthropic.types import message_create_params

    kept = {key: value for key, value in body.items() if key != "stream"}
    adapter: TypeAdapter[Any] = TypeAdapter(message_create_params.MessageCreateParamsNonStreaming)
    read_through(adapter.validate_python(kept))
    unknown = (
        set(body)
        - set(message_create_params.MessageCreateParamsStreaming.__annotations__)
        - set(message_create_params.MessageCreateParamsBase.__annotations__)
    )
    assert not unknown


def check_completion_request(body: dict[str, Any]) -> None:
    from openai.types.chat import completion_create_params

    adapter: TypeAdapter[Any] = TypeAdapter(completion_create_params.CompletionCreateParamsStreaming)
    read_through(adapter.validate_python(body))


def check_responses_request(body: dict[str, Any]) -> None:
    from openai.types.responses import response_create_params

    adapter: TypeAdapter[Any] = TypeAdapter(response_create_params.ResponseCreateParamsStreaming)
    read_through(adapter.validate_python(body))
    unknown = (
        set(body)
        - set(response_create_params.ResponseCreateParamsStreaming.__annotations__)
        - set(response_create_params.ResponseCreateParamsBase.__annotations__)
    )
    assert not unknown


CHECKS = {
    "anthropic": check_messages_request,
    "openai": check_completion_request,
    "responses": check_responses_request,
}


@pytest.mark.parametrize("more", [{}, {"thinking_budget": 2000}, {"max_tokens": 5, "stop_sequences": ("X",)}])
def test_our_requests_fit_the_sdks_types(more):
    asked = Request(
        ("stable", "here"),
        (*history(), Message("assistant", ({"type": "text", "text": "ok"},)), Message.user("x")),
        (OFFER,),
        (1,),
        **more,
    )
    check_messages_request(json.loads(anthropic_wire.encode_request(asked, "claude-sonnet-4-5")))
    check_completion_request(json.loads(openai_wire.encode_request(asked, "gpt-4o")))
    for model in ("gpt-4o", "gpt-5.5"):
        check_responses_request(json.loads(responses_wire.encode_request(asked, model)))


def test_the_witness_can_say_no():
    broken = json.loads(
        anthropic_wire.encode_request(request(Message("user", ({"type": "text", "text": "x"}, IMAGE))), "m")
    )
    broken["messages"][0]["content"][1]["source"].pop("data")
    with pytest.raises(ValueError, match="data"):
        check_messages_request(broken)


@pytest.mark.asyncio
@pytest.mark.parametrize("wire", ["anthropic", "openai", "responses"])
async def test_every_request_of_a_whole_session_with_all_our_tools_fits(wire, tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))

    @tool(read_only=True)
    async def Read2(a: int) -> str:
        """Give a number back."""
        return str(a)

    data = SDK_STREAMS[wire]().replace(b'"Read"', b'"Read2"')
    async with (
        loopback(stream(data), stream(STREAMS[wire]([("text", "done")]))) as server,
        Session(tmp_path, model=provider(wire, server.url), settings={}, tools=[Read2]) as session,
    ):
        assert await session.ask("go") == "done"
    assert len(server.received) == 2
    for asked in server.received:
        CHECKS[wire](asked.body)
    assert len(server.received[0].body["tools"]) > 8


@pytest.mark.asyncio
async def test_the_openai_sdk_reads_the_streams_that_our_tests_send():
    """Otherwise stream and parser could agree on the same mistake."""
    import openai

    steps = [("think", "hm"), ("text", "hello"), ("call", "t", "Read", '{"a":1}')]
    async with (
        loopback(stream(STREAMS["responses"](steps, 3))) as server,
        openai.AsyncOpenAI(api_key="k", base_url=server.url) as client,
    ):
        events = [event async for event in await client.responses.create(model="m", input="x", stream=True)]
    items: list[Any] = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.type for item in items] == ["reasoning", "message", "function_call"]
    assert items[2].arguments == '{"a":1}'
