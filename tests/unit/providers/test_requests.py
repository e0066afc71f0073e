"""What goes out over either wire."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.providers.wire import STREAMS, loopback, provider, receive, request, stream

from wieldy.core.messages import Message
from wieldy.core.provider import Request, ToolSpec
from wieldy.providers import anthropic
from wieldy.providers import openai_chat as openai

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "eA=="}}
OFFER = ToolSpec("Read", "Reads.", {"$schema": "x", "type": "object", "properties": {"file_path": {"type": "string"}}})


def history() -> tuple[Message, ...]:
    call = {"type": "tool_use", "id": "functions.Read:0", "name": "Read", "input": {"file_path": "é"}}
    other = {"type": "tool_use", "id": "b", "name": "Read", "input": {}}
    results: list[dict[str, Any]] = [
        {"type": "tool_result", "tool_use_id": "functions.Read:0", "content": [{"type": "text", "text": "one"}, IMAGE]},
        {"type": "tool_result", "tool_use_id": "b", "content": "two", "is_error": True},
    ]
    return (
        Message("user", ({"type": "text", "text": "look"}, IMAGE)),
        Message(
            "assistant",
            ({"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "so"}, call, other),
        ),
        Message("user", (*results, {"type": "text", "text": "and?"})),
    )


def sent(wire: Any, **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(
        wire.encode_request(Request(("stable", "here"), history(), (OFFER,), (1,), **more), "m")
    )
    return body


def test_the_messages_api_gets_the_conversation_as_it_is_with_legal_ids():
    body = sent(anthropic)
    assert (body["model"], body["stream"], body["max_tokens"]) == ("m", True, 16_000)
    said = body["messages"][1]["content"]
    assert said[0] == {"type": "thinking", "thinking": "hm", "signature": "s"}
    legal = said[2]["id"]
    assert legal.replace("_", "").isalnum()
    assert body["messages"][2]["content"][0]["tool_use_id"] == legal
    assert "$schema" not in body["tools"][0]["input_schema"]


def test_at_most_four_cache_breakpoints_the_stable_parts_and_the_last_two_of_the_users_messages():
    body = sent(anthropic)
    text = json.dumps(body)
    assert text.count("cache_control") == 4
    assert "cache_control" in body["system"][-1]
    assert "cache_control" in body["tools"][-1]
    assert "cache_control" in body["messages"][0]["content"][-1]
    assert "cache_control" in body["messages"][2]["content"][-1]


def test_a_message_is_encoded_once_for_all_requests():
    messages = [Message.user("a"), Message("assistant", ({"type": "text", "text": "b"},)), Message.user("c")] * 3
    for wire in (anthropic, openai):
        wire.encode_request(request(*messages), "m")
    before = [dict(message._wires) for message in messages]
    for wire in (anthropic, openai):
        wire.encode_request(request(*messages), "m")
    for message, cached in zip(messages, before, strict=True):
        assert all(message._wires[name] is data for name, data in cached.items())


def test_thoughts_nobody_signed_are_not_shown_to_the_messages_api():
    unsigned = Message("assistant", ({"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "so"}))
    body = json.loads(anthropic.encode_request(request(Message.user("x"), unsigned, Message.user("y")), "m"))
    assert [b["type"] for b in body["messages"][1]["content"]] == ["text"]


@pytest.mark.parametrize(
    ("model", "budget", "thinking"),
    [
        ("claude-sonnet-4-5", None, None),
        ("claude-opus-4-8", None, None),
        ("claude-opus-4-8", 5_000, {"type": "adaptive", "display": "summarized"}),
        ("claude-opus-5-5", None, {"type": "adaptive", "display": "summarized"}),
        ("some-model", 5_000, {"type": "enabled", "budget_tokens": 5_000}),
    ],
)
def test_models_are_asked_to_think_in_the_way_they_take(model, budget, thinking):
    body = json.loads(anthropic.encode_request(Request((), (Message.user("hi"),), thinking_budget=budget), model))
    assert body.get("thinking") == thinking
    assert body["max_tokens"] == anthropic.MAX_TOKENS + (budget if thinking and "budget_tokens" in thinking else 0)


def test_thinking_gets_a_budget_on_top_of_the_answer():
    body = sent(anthropic, thinking_budget=5_000, max_tokens=2_000, stop_sequences=("X",))
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 5_000}
    assert (body["max_tokens"], body["stop_sequences"]) == (7_000, ["X"])


def test_chat_completions_get_one_message_a_result_and_pictures_after_them():
    body = sent(openai)
    roles = [message["role"] for message in body["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool", "user"]
    system, first, said, one, two, rest = body["messages"]
    assert system["content"] == "stable\n\nhere"
    assert first["content"][1]["image_url"]["url"] == "data:image/png;base64,eA=="
    assert said["content"] == "so"
    assert "reasoning_content" not in said
    assert json.loads(said["tool_calls"][0]["function"]["arguments"]) == {"file_path": "é"}
    assert [call["id"] for call in said["tool_calls"]] == ["functions.Read:0", "b"]
    assert one == {"role": "tool", "tool_call_id": "functions.Read:0", "content": "one\n(1 image(s) follow)"}
    assert two["content"] == "two"
    assert [part["type"] for part in rest["content"]] == ["image_url", "text"]
    assert "max_tokens" not in body
    assert body["tools"][0]["function"]["parameters"]["type"] == "object"


def test_thoughts_of_this_wire_go_back_with_the_calls_they_led_to():
    call = {"type": "tool_use", "id": "a", "name": "Read", "input": {}}
    messages = [
        Message.user("x"),
        Message("assistant", ({"type": "thinking", "thinking": "hm"}, call)),
        Message.user("y"),
    ]
    body = json.loads(openai.encode_request(request(*messages), "m"))
    assert body["messages"][2]["reasoning_content"] == "hm"


@pytest.mark.parametrize(("model", "name"), [("gpt-4o", "max_tokens"), ("gpt-5-mini", "max_completion_tokens")])
def test_a_length_limit_is_named_as_the_model_knows_it(model, name):
    assert json.loads(openai.encode_request(request(max_tokens=7), model))[name] == 7


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("wire", "path", "header", "value"),
    [
        ("anthropic", "/v1/messages", "x-api-key", "key"),
        ("openai", "/chat/completions", "authorization", "Bearer key"),
    ],
)
async def test_the_key_and_the_path_of_each_house(wire, path, header, value):
    async with loopback(stream(STREAMS[wire]([("text", "x")]))) as server:
        await receive(provider(wire, f"{server.url}/under/"))
        await receive(
            provider("anthropic", f"{server.url}/v1", {"ANTHROPIC_AUTH_TOKEN": "t"}, key=None)
        ) if wire != "openai" else None
    assert server.received[0].line == f"POST /under{path} HTTP/1.1"
    assert server.received[0].headers[header] == value
    assert server.received[0].headers["content-type"] == "application/json"
    if wire == "anthropic":
        assert server.received[1].line == "POST /v1/messages HTTP/1.1"
        assert server.received[1].headers["authorization"] == "Bearer t"
