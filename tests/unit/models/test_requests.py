"""What goes out over each wire."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.unit.models.wire import STREAMS, loopback, provider, receive, request, stream

from wieldy.core.messages import Message
from wieldy.core.provider import Request, ToolSpec
from wieldy.models import anthropic
from wieldy.models import openai_chat as openai
from wieldy.models import openai_responses as responses

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
    for wire in (anthropic, openai, responses):
        wire.encode_request(request(*messages), "m")
    before = [dict(message._wires) for message in messages]
    for wire in (anthropic, openai, responses):
        wire.encode_request(request(*messages), "m")
    for message, cached in zip(messages, before, strict=True):
        assert all(message._wires[name] is data for name, data in cached.items())


def test_thoughts_nobody_signed_are_not_shown_to_the_messages_api():
    unsigned = Message("assistant", ({"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "so"}))
    body = json.loads(anthropic.encode_request(request(Message.user("x"), unsigned, Message.user("y")), "m"))
    assert [b["type"] for b in body["messages"][1]["content"]] == ["text"]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "response_item", "item": {"type": "compaction", "id": "c"}},
        {"type": "thinking", "thinking": "hm", "item": {"type": "reasoning", "id": "r", "summary": []}},
        {"type": "thinking", "thinking": "hm"},
    ],
)
def test_a_message_of_nothing_but_items_of_another_api_is_never_sent_empty(block):
    for content in ((block,), (block, {"type": "redacted_thinking", "data": "x"})):
        history = Message.user("x"), Message("assistant", content), Message.user("y")
        body = json.loads(anthropic.encode_request(request(*history), "m"))
        assert body["messages"][1]["content"][-1] == {"type": "text", "text": "(nothing)"}
        for item in json.loads(responses.encode_request(request(*history), "m"))["input"]:
            assert item.get("content", "x")
        for message in json.loads(openai.encode_request(request(*history), "m"))["messages"]:
            assert message["content"]


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
        ("responses", "/responses", "authorization", "Bearer key"),
    ],
)
async def test_the_key_and_the_path_of_each_house(wire, path, header, value):
    async with loopback(stream(STREAMS[wire]([("text", "x")]))) as server:
        await receive(provider(wire, f"{server.url}/under/"))
        await receive(provider(wire, f"{server.url}/under{path}"))
        await receive(
            provider("anthropic", f"{server.url}/v1", {"ANTHROPIC_AUTH_TOKEN": "t"}, api_key=None)
        ) if wire == "anthropic" else None
    assert {received.line for received in server.received[:2]} == {f"POST /under{path} HTTP/1.1"}
    assert server.received[0].headers[header] == value
    assert server.received[0].headers["content-type"] == "application/json"
    if wire == "anthropic":
        assert server.received[2].line == "POST /v1/messages HTTP/1.1"
        assert server.received[2].headers["authorization"] == "Bearer t"


def test_responses_get_items_and_pictures_inside_the_results():
    body = sent(responses)
    assert (body["model"], body["stream"], body["store"], body["instructions"]) == ("m", True, False, "stable\n\nhere")
    kinds = [item["type"] for item in body["input"]]
    output = "function_call_output"
    assert kinds == ["message", "message", "function_call", "function_call", output, output, "message"]
    first, said, call, _, one, two, rest = body["input"]
    assert first["content"][1] == {"type": "input_image", "image_url": "data:image/png;base64,eA==", "detail": "auto"}
    assert (said["role"], said["content"]) == ("assistant", "so")
    assert (call["call_id"], json.loads(call["arguments"])) == ("functions.Read:0", {"file_path": "é"})
    assert [part["type"] for part in one["output"]] == ["input_text", "input_image"]
    assert (one["call_id"], two["output"]) == ("functions.Read:0", "two")
    assert rest["content"] == [{"type": "input_text", "text": "and?"}]
    tool = body["tools"][0]
    assert (tool["type"], tool["name"], tool["strict"]) == ("function", "Read", False)
    assert "max_output_tokens" not in body


REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "secret"}


def test_reasoning_items_go_back_word_for_word_to_the_api_they_came_from_and_to_no_other():
    thought = {"type": "thinking", "thinking": "hm", "item": REASONING}
    call = {"type": "tool_use", "id": "a", "name": "Read", "input": {}}
    result = Message("user", ({"type": "tool_result", "tool_use_id": "a", "content": "x"},))
    history = (Message.user("x"), Message("assistant", (thought, call)), result)
    items = json.loads(responses.encode_request(request(*history), "m"))["input"]
    assert items[1] == REASONING
    assert [item["type"] for item in items] == ["message", "reasoning", "function_call", "function_call_output"]
    assert b"secret" not in anthropic.encode_request(request(*history), "m")
    assert b"secret" not in openai.encode_request(request(*history), "m")
    assert b"reasoning_content" not in openai.encode_request(request(*history), "m")


def test_a_thought_that_led_to_nothing_or_lies_in_the_servers_storage_is_not_sent():
    stored = {"type": "thinking", "thinking": "", "item": {**REASONING, "encrypted_content": None}}
    cut_off = {"type": "thinking", "thinking": "", "item": REASONING}
    said = Message("assistant", (stored, {"type": "text", "text": "so"}, cut_off))
    items = json.loads(responses.encode_request(request(Message.user("x"), said, Message.user("y")), "m"))["input"]
    assert [item["type"] for item in items] == ["message", "message", "message"]


def test_encrypted_thoughts_are_asked_of_models_that_think():
    def body(model: str, **more: Any) -> dict[str, Any]:
        made: dict[str, Any] = json.loads(responses.encode_request(request(**more), model))
        return made

    assert body("gpt-5.5")["include"] == ["reasoning.encrypted_content"]
    assert "include" not in body("gpt-4o")
    assert "reasoning" not in body("gpt-5.5")
    efforts = [body("gpt-5.5", thinking_budget=n)["reasoning"]["effort"] for n in (1_000, 10_000, 50_000)]
    assert efforts == ["low", "medium", "high"]
    assert body("gpt-4o", max_tokens=7)["max_output_tokens"] == 7


def test_the_requests_of_a_conversation_share_a_cache_key_and_two_conversations_do_not():
    def key(*messages: Message) -> str:
        made: str = json.loads(responses.encode_request(request(*messages), "m"))["prompt_cache_key"]
        return made

    first = Message.user("first")
    assert key(first) == key(first, Message("assistant", ({"type": "text", "text": "a"},)), Message.user("b"))
    assert key(first) != key(Message.user("other"))


def test_mistral_gets_only_fields_ids_and_roles_that_it_takes():
    ids = ("toolu_1", "aB3dE6gH9")
    calls = [{"type": "tool_use", "id": id, "name": "Read", "input": {}} for id in ids]
    results = [{"type": "tool_result", "tool_use_id": id, "content": "x"} for id in ids]
    history = (
        Message.user("hi"),
        Message("assistant", ({"type": "thinking", "thinking": "hm"}, *calls)),
        Message("user", (*results, {"type": "text", "text": "and?"})),
    )
    model = openai.OpenAIChat("some-model", base_url="https://api.mistral.ai/v1", api_key="k")
    body = json.loads(model.encode(Request((), history)))
    assert body.keys() == {"model", "stream", "messages"}
    assert [message["role"] for message in body["messages"]] == [
        "user",
        "assistant",
        *["tool"] * 2,
        "assistant",
        "user",
    ]
    _, assistant, first, second, *_ = body["messages"]
    assert assistant.keys() == {"role", "content", "tool_calls"}
    sent_ids = [call["id"] for call in assistant["tool_calls"]]
    assert [first["tool_call_id"], second["tool_call_id"]] == sent_ids
    assert re.fullmatch("[a-z0-9]{9}", sent_ids[0])
    assert sent_ids[1] == ids[1]
    elsewhere = json.loads(openai.encode_request(Request((), history), "mistralai/Devstral-Small-2"))
    assert elsewhere["messages"] == body["messages"]
    assert "stream_options" in elsewhere
    assert json.loads(openai.encode_request(Request((), history), "m"))["messages"][-2]["role"] == "tool"


def test_a_custom_tool_takes_the_place_of_the_function_of_its_name():
    custom = {"type": "custom", "name": "Read", "format": {"type": "text"}}
    body = json.loads(
        responses.encode_request(Request((), (Message.user("x"),), (OFFER,), server_tools=(custom,)), "m")
    )
    assert body["tools"] == [custom]
    call = {"type": "tool_use", "id": "custom:c1", "name": "Read", "input": {"input": "free text"}}
    result = Message("user", ({"type": "tool_result", "tool_use_id": "custom:c1", "content": "done"},))
    items = json.loads(
        responses.encode_request(request(Message.user("x"), Message("assistant", (call,)), result), "m")
    )["input"]
    assert items[1] == {"type": "custom_tool_call", "call_id": "c1", "name": "Read", "input": "free text"}
    assert items[2] == {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"}


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("wire", "names"),
    [("anthropic", ("max_tokens",)), ("openai", ("max_tokens",)), ("responses", ("max_output_tokens",))],
)
async def test_the_limits_of_a_model_object_go_out_with_every_request(wire, names):
    async with loopback(stream(STREAMS[wire]([("text", "x")]))) as server:
        await receive(provider(wire, server.url, max_tokens=7, temperature=0.5))
        await receive(provider(wire, server.url, max_tokens=7), request(max_tokens=3))
    body, narrower = (each.body for each in server.received)
    assert ([body[name] for name in names], body["temperature"]) == ([7], 0.5)
    assert ([narrower[name] for name in names], "temperature" in narrower) == ([3], False)


def test_options_of_a_model_that_make_no_sense_are_refused():
    for options in ({"max_tokens": 0}, {"max_tokens": True}, {"temperature": -1}, {"temperature": 3}):
        with pytest.raises(ValueError, match="must be"):
            provider("openai", None, **options)
