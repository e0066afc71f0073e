"""However a stream is cut into pieces, it says the same; wherever it ends too early, that is noticed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.providers.wire import anthropic_stream, openai_stream

from wieldy.agent.answer import Answer
from wieldy.core.provider import BlockEnded, BlockGrew, BlockStarted, Delta, Metered, ProviderFailure, Stopped
from wieldy.providers import anthropic
from wieldy.providers import openai_chat as completion
from wieldy.providers.leisure import LONGEST, Leisure
from wieldy.providers.sse import Events, Extent

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
STEPS = st.lists(STEP, min_size=1, max_size=4)


async def _given(pieces: list[bytes]) -> AsyncIterator[list[bytes]]:
    events = Events()
    for piece in pieces:
        yield events.feed(piece)
    if (rest := events.rest()) is not None:
        yield [rest]


def said(wire: Any, pieces: list[bytes]) -> tuple[dict[str, Any], ...]:
    async def listen() -> Answer:
        answer = Answer()
        async for delta in wire.deltas(_given(pieces)):
            answer.take(delta)
        answer.cut_off()
        return answer

    return asyncio.run(listen()).content()


def cut(data: bytes, places: list[int]) -> list[bytes]:
    at = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(at)]


@given(STEPS, st.lists(st.integers(0, 100_000), max_size=12), st.integers(0, 5), st.booleans())
@settings(max_examples=80, deadline=None)
def test_pieces_make_no_difference(steps, places, size, crlf):
    for make, wire in ((anthropic_stream, anthropic), (openai_stream, completion)):
        data = make(steps, size)
        if crlf:
            data = data.replace(b"\n", b"\r\n")
        whole = said(wire, [data])
        assert said(wire, cut(data, places)) == whole
        calls = [json.loads(step[3]) for step in steps if step[0] == "call"]
        assert [block["input"] for block in whole if block["type"] == "tool_use"] == calls


@given(STEPS, st.floats(0, 1, exclude_max=True))
@settings(max_examples=80, deadline=None)
def test_an_end_at_any_byte_is_either_the_whole_answer_or_a_failure(steps, share):
    for make, wire in ((anthropic_stream, anthropic), (openai_stream, completion)):
        data = make(steps, 3)
        whole = said(wire, [data])
        try:
            heard = said(wire, [data[: int(share * len(data))]])
        except ProviderFailure as failure:
            assert failure.kind in ("connection", "protocol")
        else:
            assert heard == whole


def deltas_of(wire: Any, pieces: list[bytes]) -> list[Delta]:
    """What has been said once these pieces have come, and no more."""

    async def so_far() -> AsyncIterator[Delta]:
        with suppress(ProviderFailure):  # there is more to come
            async for delta in wire.deltas(_given(pieces)):
                yield delta

    async def listen() -> list[Delta]:
        return [delta async for delta in so_far()]

    return asyncio.run(listen())


@given(STEPS, st.lists(st.integers(0, 100_000), max_size=6), st.booleans(), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_what_may_wait_is_only_more_of_what_is_being_said(steps, places, chunked, size):
    for make, wire in ((anthropic_stream, anthropic), (openai_stream, completion)):
        data = make(steps, size)
        ends = [at + 2 for at in range(len(data)) if data.startswith(b"\n\n", at)]
        arrivals = cut(data, [*ends, *places])
        leisure = Leisure(wire.SIGNS, 1.0)
        known = 0
        for count, arrival in enumerate(arrivals, 1):
            may_wait = leisure.allows(b"%x\r\n%s\r\n" % (len(arrival), arrival) if chunked else arrival, LONGEST / 2)
            heard = deltas_of(wire, arrivals[:count])
            fresh, known = heard[known:], len(heard)
            if not may_wait:
                continue
            assert arrival.endswith(b"\n\n")
            if wire is anthropic:
                assert all(isinstance(delta, BlockGrew) for delta in fresh)
            for delta in fresh:
                assert not isinstance(delta, Stopped | Metered)
                if isinstance(delta, BlockStarted):
                    assert delta.block["type"] in ("text", "thinking")
                if isinstance(delta, BlockGrew) and delta.field == "input":
                    assert wire is anthropic


@given(STEPS, st.integers(1, 3), st.booleans())
@settings(max_examples=60, deadline=None)
def test_an_ending_is_never_nearer_than_what_is_waited_for(steps, size, chunked):
    for make, wire in ((anthropic_stream, anthropic), (openai_stream, completion)):
        events = [event + b"\n\n" for event in make(steps, size).split(b"\n\n") if event]
        arrivals = [b"%x\r\n%s\r\n" % (len(event), event) if chunked else event for event in events]
        leisure = Leisure(wire.SIGNS, 1.0)
        waited: list[int] = []  # the bytes left of each mark that could stand: nothing that matters may end below it
        ended = 0
        for count, arrival in enumerate(arrivals, 1):
            heard = deltas_of(wire, events[:count])
            calls = {d.index for d in heard if isinstance(d, BlockStarted) and d.block["type"] == "tool_use"}
            ended, before = sum(isinstance(d, BlockEnded) and d.index in calls for d in heard), ended
            waited = [most - len(arrival) for most in waited]
            if ended > before or count == len(arrivals):
                assert all(most <= 0 for most in waited)
            leisure.allows(arrival, 0.0)
            if leisure.calm and (most := wire.ending(arrival)) > 1:
                waited.append(most)


@given(st.lists(st.floats(0, 0.2), min_size=1, max_size=30))
def test_nothing_waits_longer_than_it_may(pauses):
    now = given = 1000.0
    leisure = Leisure(anthropic.SIGNS, 1.0)
    for pause in pauses:
        now += pause
        if leisure.allows(b"data: {}\n\n", now):
            assert now - given < LONGEST
        else:
            given = now


@given(OBJECT, st.lists(st.integers(0, 1000), max_size=8), st.booleans())
@settings(max_examples=200, deadline=None)
def test_an_object_is_known_to_be_complete_at_its_last_character_and_not_before(value, places, ascii):
    text = json.dumps(value, ensure_ascii=ascii, indent=2 if ascii else None)
    extent = Extent()
    at = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    pieces = [text[a:b] for a, b in pairwise(at)]
    done = [extent.feed(piece) for piece in pieces if piece]
    assert done == [False] * (len(done) - 1) + [True]


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_events_end_in_any_of_three_ways_wherever_a_read_ends(end):
    data = (
        b"event: x"
        + end[: len(end) // 2]
        + b"data: 1"
        + end
        + b": note"
        + end
        + b"data: a"
        + end[: len(end) // 2]
        + b"data: b"
        + end
    )
    for size in range(1, len(data)):
        events = Events()
        found = [one for at in range(0, len(data), size) for one in events.feed(data[at : at + size])]
        assert found == [b"1", b"a\nb"]
        assert events.ended == 3
