"""What comes over either wire, from a real server on loopback."""

from __future__ import annotations

import json

import pytest
from tests.unit.models.wire import STREAMS, loopback, provider, receive, request, sse, status, stream

from wieldy import Session
from wieldy.core.messages import Message
from wieldy.core.provider import ProviderFailure, Usage

WIRES = pytest.mark.parametrize("wire", ["anthropic", "openai", "responses"])
STEPS = [
    ("think", "let me see 🤔"),
    ("text", "I will look.\nAt both — ünïcode 😀."),
    ("call", "call-a", "Read", '{"file_path": "a \\"quoted\\" {brace} \\\\", "n": [1, {"x": 2}]}'),
    ("call", "call-b", "Read", '{"file_path":"b 😀"}'),
]


@WIRES
@pytest.mark.asyncio
@pytest.mark.parametrize("size", [0, 1, 7])
async def test_text_thoughts_and_parallel_calls_arrive_whole_in_any_pieces(wire, size):
    async with loopback(stream(STREAMS[wire](STEPS, size), size * 3)) as server:
        model = provider(wire, server.url)
        answer = await receive(model)
        await model.aclose()
    content = answer.content()
    assert [block["type"] for block in content] == ["thinking", "text", "tool_use", "tool_use"]
    assert content[0]["thinking"] == STEPS[0][1]
    assert content[1]["text"] == STEPS[1][1]
    assert [(b["id"], b["input"]) for b in content[2:]] == [(s[1], json.loads(s[3])) for s in STEPS[2:]]
    assert answer.stop_reason == "tool_use"
    assert not answer.open


@pytest.mark.asyncio
async def test_usage_is_told_apart_by_what_was_cached():
    async with loopback(*(stream(make(STEPS)) for make in STREAMS.values())) as server:
        usages = [(await receive(provider(wire, server.url))).usage for wire in STREAMS]
    assert usages == [Usage(10, 42, 4, 2), Usage(12, 42, 4, 0), Usage(12, 42, 4, 0)]


@pytest.mark.asyncio
@pytest.mark.parametrize("wire", ["openai", "responses"])
async def test_calls_whose_pieces_come_in_turns_are_told_apart(wire):
    steps = [("call", f"id{n}", "Read", json.dumps({"n": n, "pad": "x" * n})) for n in range(4)]
    async with loopback(stream(STREAMS[wire](steps, 3, interleave=True))) as server:
        answer = await receive(provider(wire, server.url))
    assert [(b["id"], b["input"]["n"]) for b in answer.content()] == [(f"id{n}", n) for n in range(4)]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("wire", "stop"), [("openai", "length"), ("anthropic", "max_tokens"), ("responses", "max_output_tokens")]
)
async def test_a_call_cut_off_by_the_length_limit_is_left_open_or_unreadable(wire, stop):
    data = STREAMS[wire]([("call", "a", "Write", '{"file_path": "x", "content": "half a fi')], 5, stop)
    async with loopback(stream(data)) as server:
        answer = await receive(provider(wire, server.url))
    assert answer.stop_reason == "max_tokens"
    left = answer.close_open_blocks()
    assert all(not call.complete for call in left)
    assert answer.content()[0]["input"] == {}


@pytest.mark.asyncio
async def test_servers_that_give_every_call_the_same_index_are_understood():
    def whole(id: str, word: str) -> bytes:
        call = {"index": 0, "id": id, "function": {"name": "Read", "arguments": {"word": word}}}
        return b"data: " + json.dumps({"choices": [{"delta": {"tool_calls": [call]}}]}).encode() + b"\r\n\r\n"

    end = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\r\n\r\n'
    async with loopback(stream(whole("a", "x") + whole("b", "y") + end)) as server:
        answer = await receive(provider("openai", server.url))
    assert [(b["id"], b["input"]) for b in answer.content()] == [("a", {"word": "x"}), ("b", {"word": "y"})]
    assert answer.stop_reason == "tool_use"


CALL_A, CALL_B = {"function": {"name": "Read", "arguments": '{"n": 1}'}}, {"function": {"name": "LS", "arguments": ""}}


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "deltas",
    [
        [{"tool_calls": [CALL_A, CALL_B]}],
        [{"tool_calls": [CALL_A]}, {"tool_calls": [CALL_B]}],
        [{"tool_calls": [{"index": None, "id": None, **call}]} for call in (CALL_A, CALL_B)],
        [
            {"role": None, "content": None, "tool_calls": None, "reasoning": None},
            {"tool_calls": [CALL_A, CALL_B]},
            None,
        ],
    ],
)
async def test_calls_without_id_and_index_are_told_apart(deltas):
    chunks = [{"choices": [{"delta": delta, "finish_reason": None}]} for delta in deltas]
    end = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    async with loopback(stream(b"".join(map(sse, [*chunks, end])))) as server:
        answer = await receive(provider("openai", server.url))
    assert [(b["name"], b["input"]) for b in answer.content()] == [("Read", {"n": 1}), ("LS", {})]
    assert len({block["id"] for block in answer.content()}) == 2
    assert answer.stop_reason == "tool_use"


@pytest.mark.asyncio
async def test_arguments_in_a_code_fence_arrive_whole():
    pieces = ["```json\n", '{"n": 1}', "\n```"]
    calls = [{"index": 0, "id": "a", "function": {"name": "Read", "arguments": piece}} for piece in pieces]
    data = [sse({"choices": [{"delta": {"tool_calls": [call]}}]}) for call in calls]
    end = sse({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    async with loopback(stream(b"".join([*data, end]))) as server:
        answer = await receive(provider("openai", server.url))
    assert answer.content()[0]["input"] == {"n": 1}


@pytest.mark.asyncio
async def test_a_server_that_only_says_done_has_answered_unless_it_said_nothing():
    said = sse({"choices": [{"delta": {"content": "hi"}, "finish_reason": None}]})
    async with loopback(stream(said + b"data: [DONE]\n\n"), stream(b"data: [DONE]\n\n")) as server:
        answer = await receive(provider("openai", server.url))
        assert (answer.text(), answer.stop_reason) == ("hi", "end_turn")
        with pytest.raises(ProviderFailure, match="ended before"):
            await receive(provider("openai", server.url))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("arguments", "complete"), [('{"n": 1}', True), ("", True), ('{"command": "rm -rf build', False)]
)
async def test_half_a_call_before_done_without_a_finish_reason_is_not_complete(arguments, complete):
    call = {"index": 0, "id": "a", "function": {"name": "Bash", "arguments": arguments}}
    data = sse({"choices": [{"delta": {"content": "now", "tool_calls": [call]}, "finish_reason": None}]})
    async with loopback(stream(data + b"data: [DONE]\n\n")) as server:
        answer = await receive(provider("openai", server.url))
    assert answer.stop_reason == "tool_use"
    assert [block.start["name"] for block in answer.open.values()] == ([] if complete else ["Bash"])


@pytest.mark.asyncio
async def test_a_call_cut_off_before_its_input_is_not_complete():
    call = {"index": 0, "id": "a", "function": {"name": "Deploy", "arguments": ""}}
    data = sse({"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": None}]})
    end = sse({"choices": [{"delta": {}, "finish_reason": "length"}]})
    async with loopback(stream(data + end)) as server:
        answer = await receive(provider("openai", server.url))
    assert answer.stop_reason == "max_tokens"
    assert [block.start["name"] for block in answer.open.values()] == ["Deploy"]


@pytest.mark.asyncio
@pytest.mark.parametrize("reason", ["insufficient_system_resource", "error", "abort"])
async def test_a_finish_reason_of_a_server_that_gave_up_is_a_failure_that_passes(reason):
    said = sse({"choices": [{"delta": {"content": "hi"}, "finish_reason": None}]})
    end = sse({"choices": [{"delta": {}, "finish_reason": reason}]})
    async with loopback(stream(said + end + b"data: [DONE]\n\n")) as server:
        with pytest.raises(ProviderFailure, match=reason) as failure:
            await receive(provider("openai", server.url))
    assert failure.value.transient


@pytest.mark.asyncio
async def test_a_content_of_parts_is_thoughts_and_text():
    thought = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]
    deltas = [{"content": thought}, {"content": [{"type": "text", "text": "Yes"}]}, {"content": "."}]
    data = [sse({"choices": [{"delta": delta}]}) for delta in deltas]
    end = sse({"choices": [{"finish_reason": "stop"}]})
    async with loopback(stream(b"".join([*data, end]))) as server:
        answer = await receive(provider("openai", server.url))
    assert [(b["type"], b.get("thinking") or b.get("text")) for b in answer.content()] == [
        ("thinking", "hm"),
        ("text", "Yes."),
    ]


@pytest.mark.asyncio
async def test_half_characters_in_two_events_become_one():
    halves = [
        b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"\\ude00b"},"finish_reason":"stop"}]}\n\n',
    ]
    async with loopback(stream(b"".join(halves))) as server:
        answer = await receive(provider("openai", server.url))
    assert answer.content()[0]["text"] == "a😀b"


@pytest.mark.asyncio
async def test_comments_unknown_events_and_unknown_blocks_do_no_harm():
    data = b": keep alive\n\n" + sse({"type": "brand_new", "index": 7}) + STREAMS["anthropic"]([("text", "hi")])
    odd = sse({"type": "content_block_start", "index": 5, "content_block": {"type": "web_search_tool_result", "x": 1}})
    odd += sse({"type": "content_block_delta", "index": 5, "delta": {"type": "new_delta"}})
    odd += sse({"type": "content_block_stop", "index": 5})
    at = data.index(b"event: message_delta")
    async with loopback(stream(data[:at] + odd + data[at:])) as server:
        answer = await receive(provider("anthropic", server.url))
    assert [block["type"] for block in answer.content()] == ["text", "web_search_tool_result"]


@WIRES
@pytest.mark.asyncio
async def test_a_stream_cut_at_any_byte_is_a_broken_connection_unless_it_had_ended(wire):
    data = STREAMS[wire]([("text", "hi"), ("call", "a", "Read", "{}")])
    broken = 0
    for cut in range(0, len(data), 37):
        async with loopback(stream(data, cut=cut)) as server:
            try:
                answer = await receive(provider(wire, server.url))
            except ProviderFailure as failure:
                assert failure.transient
                broken += 1
            else:
                assert answer.stop_reason == "tool_use"
    assert broken > len(data) // 37 // 2


@pytest.mark.asyncio
async def test_a_stop_reason_without_a_message_stop_completes_an_answer():
    data = STREAMS["anthropic"]([("text", "hi")])
    without_end = data[: data.index(b"event: message_stop")]
    async with loopback(stream(without_end)) as server:
        answer = await receive(provider("anthropic", server.url))
    assert (answer.text(), answer.stop_reason) == ("hi", "end_turn")


@WIRES
@pytest.mark.asyncio
async def test_one_connection_serves_many_requests_and_a_stale_one_is_replaced(wire):
    data = STREAMS[wire]([("text", "hi")])
    async with loopback(stream(data)) as server:
        model = provider(wire, server.url)
        for _ in range(3):
            assert (await receive(model, keep=True)).content()[0]["text"] == "hi"
        assert server.connections == 1
        for writer in server._writers:
            writer.transport.abort()
        assert (await receive(model, keep=True)).content()[0]["text"] == "hi"
        assert server.connections == 2
        await model.aclose()


@WIRES
@pytest.mark.asyncio
async def test_an_error_leaves_the_connection_usable(wire):
    async with loopback(status(529, {"error": {"message": "busy"}}), stream(STREAMS[wire]([("text", "hi")]))) as server:
        model = provider(wire, server.url)
        with pytest.raises(ProviderFailure):
            await receive(model, keep=True)
        await receive(model)
        assert server.connections == 1


@WIRES
@pytest.mark.asyncio
async def test_leaving_a_stream_early_closes_its_connection(wire):
    async with loopback(stream(STREAMS[wire]([("text", "hi" * 50)], 1))) as server:
        model = provider(wire, server.url)
        async with model.stream(request(Message.user("x"))) as deltas:
            async for _ in deltas:
                break
        await receive(model)
        assert server.connections == 2


@pytest.mark.asyncio
async def test_tools_that_the_provider_runs_itself_are_asked_for_and_kept_word_for_word(tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    search = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{"type": "x", "encrypted": "abc"}]}
    plain = STREAMS["anthropic"]([("text", "it is raining")])
    at = plain.index(b"event: message_delta")
    said = b"".join(
        [
            sse({"type": "content_block_start", "index": 1, "content_block": search}),
            sse(
                {
                    "type": "content_block_delta",
                    "index": 1,
                    "delta": {"type": "input_json_delta", "partial_json": '{"query":'},
                }
            ),
            sse(
                {
                    "type": "content_block_delta",
                    "index": 1,
                    "delta": {"type": "input_json_delta", "partial_json": '"rain"}'},
                }
            ),
            sse({"type": "content_block_stop", "index": 1}),
            sse({"type": "content_block_start", "index": 2, "content_block": found}),
            sse({"type": "content_block_stop", "index": 2}),
        ]
    )
    offered = {"type": "web_search_20250305", "name": "web_search"}
    async with loopback(stream(plain[:at] + said + plain[at:]), stream(plain)) as server:
        model = provider("anthropic", server.url)
        async with Session(tmp_path, model=model, builtins=False, settings={}, server_tools=[offered]) as session:
            await session.ask("weather?")
            await session.ask("and now?")
    assert server.received[0].body["tools"] == [offered]
    assert server.received[1].body["messages"][1]["content"][1:] == [{**search, "input": {"query": "rain"}}, found]


@pytest.mark.asyncio
async def test_reasoning_and_other_items_of_responses_are_kept_word_for_word():
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "rain"}}
    data = STREAMS["responses"]([("think", "a"), ("text", "so")])
    more = sse({"type": "response.output_item.added", "output_index": 7, "item": {**search, "status": "in_progress"}})
    more += sse({"type": "response.web_search_call.searching", "output_index": 7})
    more += sse({"type": "response.output_item.done", "output_index": 7, "item": search})
    at = data.index(b"event: response.completed")
    async with loopback(stream(data[:at] + more + data[at:])) as server:
        content = (await receive(provider("responses", server.url))).content()
    assert [block["type"] for block in content] == ["thinking", "text", "response_item"]
    assert content[0]["item"]["encrypted_content"] == "secret a"
    assert content[2]["item"] == search


@pytest.mark.asyncio
@pytest.mark.parametrize("streamed", [True, False])
async def test_the_plain_text_of_a_custom_call_arrives_as_an_input_whether_streamed_or_not(streamed):
    text = 'line "one"\nline \\ two 😀'
    item = {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": ""}
    events = [{"type": "response.output_item.added", "output_index": 0, "item": item}]
    if streamed:
        events += [{"type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": c} for c in text]
    events.append({"type": "response.output_item.done", "output_index": 0, "item": {**item, "input": text}})
    events.append({"type": "response.completed", "response": {}})
    async with loopback(stream(b"".join(map(sse, events)))) as server:
        answer = await receive(provider("responses", server.url))
    (call,) = answer.content()
    assert (call["id"], call["name"], call["input"]) == ("custom:c1", "patch", {"input": text})
    assert answer.stop_reason == "tool_use"


@pytest.mark.asyncio
async def test_a_server_that_sends_only_whole_items_is_understood():
    items = [
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "s"},
        {
            "type": "message",
            "role": "assistant",
            "phase": "commentary",
            "content": [{"type": "output_text", "text": "so"}],
        },
        {"type": "function_call", "call_id": "a", "name": "Read", "arguments": '{"x": 1}'},
    ]
    events = [{"type": "response.output_item.done", "output_index": n, "item": item} for n, item in enumerate(items)]
    done = sse({"type": "response.completed", "response": {"usage": None}})
    async with loopback(stream(b"".join(map(sse, events)) + done)) as server:
        content = (await receive(provider("responses", server.url))).content()
    assert (content[0]["thinking"], content[0]["item"]) == ("hm", items[0])
    assert content[1]["text"] == "so"
    assert content[2]["input"] == {"x": 1}


@pytest.mark.asyncio
async def test_a_phase_of_a_message_goes_back_with_it_and_to_no_other_api():
    data = STREAMS["responses"]([("text", "let me see")]).replace(
        b'"role": "assistant"', b'"role": "assistant", "phase": "p"'
    )
    async with loopback(stream(data)) as server:
        model = provider("responses", server.url)
        answer = await receive(model, keep=True)
        said = Message("assistant", answer.content())
        await receive(model, request(Message.user("x"), said, Message.user("y")))
    assert server.received[1].body["input"][1]["phase"] == "p"
    async with loopback(stream(STREAMS["anthropic"]([("text", "x")]))) as server:
        await receive(provider("anthropic", server.url), request(Message.user("x"), said, Message.user("y")))
    assert "phase" not in json.dumps(server.received[0].body)


@pytest.mark.asyncio
async def test_encrypted_thoughts_go_back_in_every_request_also_after_the_session_is_resumed(tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    (tmp_path / "a.txt").write_text("alpha")
    call = ("call", "c1", "Read", json.dumps({"file_path": str(tmp_path / "a.txt")}))
    first, then = (
        STREAMS["responses"]([("think", "look"), call]),
        STREAMS["responses"]([("think", "x"), ("text", "ok")]),
    )
    async with loopback(stream(first), stream(then)) as server:
        async with Session(tmp_path, model=provider("responses", server.url), settings={}) as session:
            assert await session.ask("what is in a.txt?") == "ok"
        resumed = Session(tmp_path, model=provider("responses", server.url), settings={}, resume=session.id)
        async with resumed:
            assert await resumed.ask("and now?") == "ok"
    second, third = (received.body["input"] for received in server.received[1:])
    kinds = ["message", "reasoning", "function_call", "function_call_output"]
    assert [item["type"] for item in second] == kinds
    assert [item["type"] for item in third] == [*kinds, "reasoning", "message", "message"]
    assert third[: len(second)] == second
    assert second[1]["encrypted_content"] == "secret look"
    keys = {received.body["prompt_cache_key"] for received in server.received}
    assert len(keys) == 1
