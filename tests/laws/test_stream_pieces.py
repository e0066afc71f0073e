"""However a stream is cut into pieces, it says the same; wherever it ends too early, that is noticed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise, product
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws.wires import PARSERS, Called, Habits, Reply, WireName
from tests.unit.models.wire import anthropic_stream, openai_stream, responses_stream

from wieldy.core.call import ToolCall
from wieldy.core.provider import ProviderFailure
from wieldy.engine.turn import StreamedMessage
from wieldy.models.anthropic import MessageParser
from wieldy.models.http import SseDecoder, StreamParser, parse_events
from wieldy.models.openai_chat import CompletionParser, JsonEndScanner
from wieldy.models.openai_responses import ResponseParser

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
OBJECT = st.dictionaries(st.text(max_size=5), JSON, max_size=4)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(str.strip)
STEP = st.one_of(
    WORDS.map(lambda text: ("text", text)),
    WORDS.map(lambda text: ("think", text)),
    OBJECT.map(lambda value: ("call", "id", "Read", json.dumps(value, ensure_ascii=len(value) % 2 == 0))),
)
WIRES: list[tuple[Callable[..., bytes], Callable[[], StreamParser]]] = [
    (anthropic_stream, MessageParser),
    (openai_stream, CompletionParser),
    (responses_stream, ResponseParser),
]
STEPS = st.lists(STEP, min_size=1, max_size=4)


async def decode(pieces: list[bytes]) -> AsyncIterator[list[bytes]]:
    decoder = SseDecoder()
    for piece in pieces:
        yield decoder.feed(piece)
    if (rest := decoder.close()) is not None:
        yield [rest]


def parse(make_parser: Callable[[], StreamParser], pieces: list[bytes]) -> tuple[dict[str, Any], ...]:
    async def listen() -> StreamedMessage:
        answer = StreamedMessage()
        async for delta in parse_events(decode(pieces), make_parser()):
            answer.add(delta)
        answer.close_open_blocks()
        return answer

    return asyncio.run(listen()).content()


HABITS = st.builds(
    Habits,
    repeats_id=st.booleans(),
    repeats_name=st.booleans(),
    empty_before=st.integers(0, 2),
    empty_after=st.integers(0, 2),
    placeholder=st.booleans(),
    index=st.sampled_from(["given", "zero", "null", "absent"]),
    with_ids=st.booleans(),
)
NAMED = st.tuples(st.sampled_from(["Read", "LS"]), OBJECT, st.booleans())


def calls_started(reply: Reply) -> list[ToolCall]:
    """The calls that start while a reply arrives and when it has ended, in their order."""

    async def listen() -> list[ToolCall | None]:
        answer = StreamedMessage()
        started = [answer.add(d) async for d in parse_events(decode([reply.data()]), PARSERS[reply.wire]())]
        return [*started, *answer.close_open_blocks(), answer.take_undecided(cut_off=False)]

    return [call for call in asyncio.run(listen()) if call is not None]


@given(st.lists(NAMED, min_size=1, max_size=3), HABITS, st.lists(st.integers(0, 5), max_size=8), st.integers(1, 9))
@settings(max_examples=200, deadline=None)
def test_each_call_starts_once_with_its_input_whatever_a_server_repeats_or_leaves_out(named, habits, order, size):
    if not habits.with_ids:
        # Nothing tells two calls of one tool apart but that one is complete when the next has arguments.
        named = [(name, {**value, "n": "1"}, spaced) for name, value, spaced in named]
    can_interleave = habits.index == "given" or (habits.with_ids and habits.repeats_id)
    if habits.index != "given" and not habits.with_ids:
        habits = replace(habits, placeholder=False)
    blocks = tuple(
        Called(f"id{n}", name, json.dumps(value, indent=2 if spaced else None))
        for n, (name, value, spaced) in enumerate(named)
    )
    for wire in get_args(WireName):
        if wire == "completions" and not can_interleave:
            order = []
        started = calls_started(Reply(blocks, tuple(order), size, wire=wire, habits=habits))
        assert sorted((call.name, repr(call.input)) for call in started) == sorted(
            (name, repr(value)) for name, value, _ in named
        )
        assert all(call.complete for call in started)
        if habits.with_ids or wire != "completions":
            assert {call.id: call.input for call in started} == {b.id: json.loads(b.input) for b in blocks}


def chat(*pieces: dict[str, Any]) -> bytes:
    chunks = [
        *({"choices": [{"delta": {"tool_calls": [piece]}}]} for piece in pieces),
        {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
    ]
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)


def chat_piece(arguments: str, id: str | None = None, name: str | None = None, index: int = 0) -> dict[str, Any]:
    return {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize("late", ['{"n": 2}', "x", '"'])
@pytest.mark.parametrize(("id", "name"), [("a", "Read"), ("a", None), (None, "Read"), (None, None)])
def test_arguments_after_the_end_of_a_call_are_a_failure(late, id, name):
    with pytest.raises(ProviderFailure, match="call a, whose arguments were complete") as failure:
        parse(CompletionParser, [chat(chat_piece('{"n": 1}', "a", "Read"), chat_piece(late, id, name))])
    assert failure.value.kind == "protocol"


def test_a_call_that_changes_its_name_is_a_failure():
    with pytest.raises(ProviderFailure, match="call a is of Read and then of Bash"):
        parse(CompletionParser, [chat(chat_piece("", "a", "Read"), chat_piece("{}", "a", "Bash"))])


def test_brackets_too_many_make_no_difference_to_a_call():
    content = parse(CompletionParser, [chat(chat_piece('{"n": 1}', "a", "Read"), chat_piece("}\n", "a"))])
    assert [block["input"] for block in content] == [{"n": 1}]


def test_empty_objects_inside_arguments_are_kept():
    arguments = '{"text": "{} {} {"}'
    content = parse(CompletionParser, [chat(chat_piece("{}", "a", "Read"), chat_piece(arguments, "a"))])
    assert [block["input"] for block in content] == [json.loads(arguments)]


def test_arguments_before_the_name_belong_to_the_call():
    content = parse(CompletionParser, [chat(chat_piece('{"n"', "a"), chat_piece(": 1}", "a", "Read"))])
    assert [(block["name"], block["input"]) for block in content] == [("Read", {"n": 1})]


MESSAGES_CALL = [
    {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "tool_use", "id": "a", "name": "R", "input": {}},
    },
    {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"n": 1}'}},
    {"type": "content_block_stop", "index": 0},
]
RESPONSES_ITEM = {"type": "function_call", "call_id": "a", "name": "R", "arguments": '{"n": 1}'}
RESPONSES_CALL = [
    {"type": "response.output_item.added", "output_index": 0, "item": {**RESPONSES_ITEM, "arguments": ""}},
    {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": '{"n": 1}'},
    {"type": "response.output_item.done", "output_index": 0, "item": RESPONSES_ITEM},
]


@pytest.mark.parametrize("events", [MESSAGES_CALL, RESPONSES_CALL])
@pytest.mark.parametrize("repeated", [0, 1, 2])
def test_what_comes_again_after_the_end_of_a_call_is_a_failure(events, repeated):
    data = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in [*events, events[repeated]])
    with pytest.raises(ProviderFailure, match=r"begins|begun|ended|ends|again") as failure:
        parse(MessageParser if events is MESSAGES_CALL else ResponseParser, [data])
    assert failure.value.kind == "protocol"


@pytest.mark.parametrize("streamed", ["", "{}", '{"n"', '{"n": 1}'])
def test_what_of_the_arguments_of_an_item_was_not_streamed_comes_with_its_end(streamed):
    added, delta, done = RESPONSES_CALL
    events = [added, {**delta, "delta": streamed}, done, {"type": "response.completed", "response": {}}]
    data = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    assert [block["input"] for block in parse(ResponseParser, [data])] == [{"n": 1}]


@pytest.mark.parametrize(
    ("streamed", "fails"), [('{"n":1}', False), ('{"n": 1}\n', False), ('{"n": 2}', True), ("x", True)]
)
def test_arguments_at_the_end_of_an_item_that_are_not_those_that_were_streamed_are_a_failure(streamed, fails):
    added, delta, done = RESPONSES_CALL
    events = [added, {**delta, "delta": streamed}, done, {"type": "response.completed", "response": {}}]
    data = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    with pytest.raises(ProviderFailure, match="not those that were streamed") if fails else nullcontext():
        assert [block["input"] for block in parse(ResponseParser, [data])] == [{"n": 1}]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    at = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(at)]


@given(STEPS, st.lists(st.integers(0, 100_000), max_size=12), st.integers(0, 5), st.booleans())
@settings(max_examples=80, deadline=None)
def test_pieces_make_no_difference(steps, places, size, crlf):
    for make, wire in WIRES:
        data = make(steps, size)
        if crlf:
            data = data.replace(b"\n", b"\r\n")
        whole = parse(wire, [data])
        assert parse(wire, cut(data, places)) == whole
        calls = [json.loads(step[3]) for step in steps if step[0] == "call"]
        assert [block["input"] for block in whole if block["type"] == "tool_use"] == calls


@given(STEPS, st.floats(0, 1, exclude_max=True))
@settings(max_examples=80, deadline=None)
def test_an_end_at_any_byte_is_either_the_whole_answer_or_a_failure(steps, share):
    for make, wire in WIRES:
        data = make(steps, 3)
        whole = parse(wire, [data])
        try:
            receive = parse(wire, [data[: int(share * len(data))]])
        except ProviderFailure as failure:
            assert failure.kind in ("connection", "protocol")
        else:
            assert receive == whole


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from places(part, (*at, key))


def with_value(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    if not at:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[at[0]] = with_value(copy[at[0]], at[1:], new)
    return copy


@given(st.data(), STEPS, JSON | st.floats())
@settings(max_examples=200, deadline=None)
def test_whatever_stands_in_an_event_makes_an_answer_or_a_failure(data, steps, value):
    for make, wire in WIRES:
        events = [line[6:] for line in make(steps, 3).splitlines() if line.startswith(b"data: {")]
        number = data.draw(st.integers(0, len(events) - 1))
        event = json.loads(events[number])
        at = data.draw(st.sampled_from(list(places(event))))
        events[number] = json.dumps(with_value(event, at, value)).encode()
        try:
            content = parse(wire, [b"data: " + event + b"\n\n" for event in events])
        except ProviderFailure:
            continue
        for block in content:
            fields = {"text": str, "thinking": str} if block["type"] != "tool_use" else {"id": str, "input": dict}
            assert all(isinstance(block[name], kind) for name, kind in fields.items() if name in block)


@given(OBJECT, st.lists(st.integers(0, 1000), max_size=8), st.booleans())
@settings(max_examples=200, deadline=None)
def test_an_object_is_known_to_be_complete_at_its_last_character_and_not_before(value, places, ascii):
    text = json.dumps(value, ensure_ascii=ascii, indent=2 if ascii else None)
    scanner = JsonEndScanner()
    at = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    pieces = [text[a:b] for a, b in pairwise(at)]
    done = [scanner.feed(piece) for piece in pieces if piece]
    assert done == [False] * (len(done) - 1) + [bool(value)]
    assert not scanner.is_open


LINE_ENDS = [b"\n", b"\r\n", b"\r"]
PAIRS = [pair for pair in product(LINE_ENDS, LINE_ENDS) if b"".join(pair) != b"\r\n"]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_lines_end_in_any_of_three_ways_wherever_a_read_ends(first, second):
    end = first + second
    data = b"event: x%bdata: 1%b: note%bdata: a%bdata: b%b" % (first, end, end, second, end)
    for size in range(1, len(data)):
        decoder = SseDecoder()
        found = [one for at in range(0, len(data), size) for one in decoder.feed(data[at : at + size])]
        assert found == [b"1", b"a\nb"]
