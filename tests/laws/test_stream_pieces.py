"""However a stream is cut into pieces, it says the same; wherever it ends too early, that is noticed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.providers.wire import anthropic_stream, openai_stream, responses_stream

from wieldy.core.provider import ProviderFailure
from wieldy.engine.streamed_message import StreamedMessage
from wieldy.providers.anthropic import MessageParser
from wieldy.providers.endpoint import StreamParser, parse_events
from wieldy.providers.openai_chat import CompletionParser, JsonEndScanner
from wieldy.providers.openai_responses import ResponseParser
from wieldy.providers.sse import SseDecoder

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
    assert done == [False] * (len(done) - 1) + [True]


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
