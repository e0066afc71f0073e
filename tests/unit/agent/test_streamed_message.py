"""Deltas become blocks; a call is handed over the moment it may start."""

from __future__ import annotations

import pytest

from wieldy.core.provider import (
    BlockDelta,
    BlockEnded,
    BlockStarted,
    Delta,
    ProviderFailure,
    Stopped,
    Usage,
    UsageReported,
)
from wieldy.engine.turn import StreamedMessage


def call(index: int, name: str = "note", id: str = "a") -> BlockStarted:
    return BlockStarted(index, {"type": "tool_use", "id": id, "name": name, "input": {}})


def assemble(
    *deltas: Delta, used_ids: frozenset[str] = frozenset()
) -> tuple[StreamedMessage, list[tuple[str, object]]]:
    answer = StreamedMessage(used_ids)
    made = [call for delta in deltas if (call := answer.add(delta)) is not None]
    return answer, [(call.id, call.input if call.complete else None) for call in made]


def test_a_call_is_handed_over_when_its_block_closes_and_not_before():
    answer = StreamedMessage()
    assert answer.add(call(0)) is None
    assert answer.add(BlockDelta(0, "input", '{"word":')) is None
    assert answer.add(BlockDelta(0, "input", '"x"}')) is None
    made = answer.add(BlockEnded(0))
    assert made is not None
    assert made.input == {"word": "x"}
    assert answer.content() == ({"type": "tool_use", "id": "a", "name": "note", "input": {"word": "x"}},)


def test_blocks_keep_the_order_they_began_in_whatever_order_they_end_in():
    answer, calls = assemble(
        call(0, id="first"),
        call(1, id="second"),
        BlockDelta(1, "input", "{}"),
        BlockDelta(0, "input", '{"word":"x"}'),
        BlockEnded(1),
        BlockEnded(0),
        Stopped("tool_use"),
    )
    assert [block["id"] for block in answer.content()] == ["first", "second"]
    assert calls == [("second", {}), ("first", {"word": "x"})]


@pytest.mark.parametrize(("reason", "ran"), [("tool_use", {}), ("end_turn", {}), ("max_tokens", None)])
def test_a_call_with_no_input_waits_for_what_comes_next(reason, ran):
    answer, calls = assemble(call(0), BlockEnded(0))
    assert calls == []
    made = answer.add(Stopped(reason))
    assert made is not None
    assert (made.input if made.complete else None) == ran


def test_a_call_with_no_input_starts_when_another_block_begins():
    _, calls = assemble(call(0), BlockEnded(0), call(1, id="b"))
    assert calls == [("a", {})]


def test_two_calls_with_no_input_both_start():
    _, calls = assemble(call(0), BlockEnded(0), call(1, id="b"), BlockEnded(1), Stopped("tool_use"))
    assert calls == [("a", {}), ("b", {})]


def test_an_input_that_is_cut_off_is_handed_over_as_it_is_so_that_it_is_refused():
    answer, calls = assemble(call(0), BlockDelta(0, "input", '{"word": "x'), BlockEnded(0))
    assert calls == [("a", '{"word": "x')]
    assert answer.content()[0]["input"] == {}


def test_a_block_the_message_left_open_is_closed_and_its_call_never_runs():
    answer, _ = assemble(call(0), BlockDelta(0, "input", '{"word":"x"}'), Stopped("max_tokens"))
    assert [(made.id, made.complete) for made in answer.close_open_blocks()] == [("a", False)]
    assert len(answer.content()) == 1


def test_an_id_that_was_used_before_is_made_unique():
    answer, calls = assemble(call(0), BlockDelta(0, "input", "{}"), BlockEnded(0), used_ids=frozenset({"a", "a-2"}))
    assert calls == [("a-3", {})]
    assert answer.content()[0]["id"] == "a-3"


def test_an_id_is_made_for_a_call_without_one():
    _, calls = assemble(
        BlockStarted(0, {"type": "tool_use", "id": "", "name": "x"}), BlockEnded(0), Stopped("tool_use")
    )
    assert calls == [("call", {})]


def test_thoughts_keep_their_signature_and_blank_text_is_left_out():
    answer, _ = assemble(
        BlockStarted(0, {"type": "thinking", "thinking": ""}),
        BlockDelta(0, "thinking", "hm"),
        BlockDelta(0, "signature", "sig"),
        BlockEnded(0),
        BlockStarted(1, {"type": "text", "text": ""}),
        BlockDelta(1, "text", " \n"),
        BlockEnded(1),
        BlockStarted(2, {"type": "redacted_thinking", "data": "xyz"}),
        BlockEnded(2),
    )
    assert answer.content() == (
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "redacted_thinking", "data": "xyz"},
    )


def test_halves_of_a_character_in_two_pieces_become_one():
    answer, _ = assemble(
        BlockStarted(0, {"type": "text", "text": ""}),
        BlockDelta(0, "text", "a\ud83d"),
        BlockDelta(0, "text", "\ude00b"),
        BlockEnded(0),
        BlockStarted(1, {"type": "text", "text": ""}),
        BlockDelta(1, "text", "half \ud83d"),
        BlockEnded(1),
    )
    assert [block["text"] for block in answer.content()] == ["a😀b", "half \ufffd"]


def test_citations_are_gathered_and_the_last_count_of_tokens_stands():
    answer, _ = assemble(
        UsageReported(Usage(input_tokens=5)),
        BlockStarted(0, {"type": "text", "text": "", "citations": [{"n": 0}]}),
        BlockDelta(0, "citation", {"n": 1}),
        BlockDelta(0, "text", "so"),
        BlockEnded(0),
        UsageReported(Usage(input_tokens=5, output_tokens=7)),
    )
    assert answer.content()[0]["citations"] == [{"n": 0}, {"n": 1}]
    assert answer.usage.output_tokens == 7


@pytest.mark.parametrize(
    "deltas",
    [
        [BlockDelta(0, "text", "x")],
        [BlockEnded(3)],
        [BlockStarted(0, {"type": "text"}), BlockStarted(0, {"type": "text"})],
        [BlockStarted(0, {"type": "text"}), BlockEnded(0), BlockStarted(0, {"type": "text"})],
        [BlockStarted(0, {})],
    ],
)
def test_a_stream_that_makes_no_sense_is_a_failure_of_the_protocol(deltas):
    with pytest.raises(ProviderFailure) as failed:
        assemble(*deltas)
    assert failed.value.kind == "protocol"
