"""Records fold into the conversation they tell of."""

from __future__ import annotations

from typing import Any

from tests.unit.agent.oracle import check_history, check_request

from wieldy.agent.conversation import Conversation, fold
from wieldy.agent.records import (
    AssistantBlock,
    AssistantMessageEnded,
    HistoryReplaced,
    MessageDiscarded,
    ResultsShortened,
    ToolResultRecord,
    TranscriptRecord,
    UserMessage,
    convert_record,
)

CALL = {"type": "tool_use", "id": "a", "name": "Read", "input": {}}
OTHER = {"type": "tool_use", "id": "b", "name": "Read", "input": {}}


def user(text: str) -> UserMessage:
    return UserMessage([{"type": "text", "text": text}])


def block(index: int, block: dict[str, Any]) -> AssistantBlock:
    return AssistantBlock(block, index)


def result(id: str, text: str = "ok") -> ToolResultRecord:
    return ToolResultRecord({"type": "tool_result", "tool_use_id": id, "content": text})


def said(*records: TranscriptRecord) -> list[dict[str, Any]]:
    messages = [message.as_dict() for message in fold(records).messages]
    check_history(messages)
    return messages


ANSWERED = AssistantMessageEnded("tool_use", {"input_tokens": 7, "output_tokens": 3}, 0.5)


def test_a_result_that_came_while_the_model_still_spoke_waits_for_the_end_of_the_message():
    messages = said(
        user("hi"),
        block(0, CALL),
        result("a"),
        block(1, {"type": "text", "text": "and"}),
        block(2, OTHER),
        ANSWERED,
        result("b"),
    )
    assert [b["type"] for b in messages[1]["content"]] == ["tool_use", "text", "tool_use"]
    assert [b["tool_use_id"] for b in messages[2]["content"]] == ["a", "b"]


def test_results_are_ordered_by_request_not_by_when_they_came():
    messages = said(user("hi"), block(0, CALL), block(1, OTHER), ANSWERED, result("b"), result("a"))
    assert [b["tool_use_id"] for b in messages[2]["content"]] == ["a", "b"]


def test_words_of_a_message_that_never_ended_are_forgotten():
    assert len(said(user("hi"), block(0, {"type": "text", "text": "half"}))) == 1


def test_calls_of_a_message_that_never_ended_are_kept_because_they_may_have_run():
    messages = said(user("hi"), block(0, CALL))
    assert messages[1]["content"] == [CALL]
    assert "no result" in messages[2]["content"][0]["content"]


def test_an_attempt_that_was_dropped_leaves_nothing():
    assert len(said(user("hi"), block(0, {"type": "text", "text": "x"}), MessageDiscarded(), user("again"))) == 1


def test_a_server_tool_that_never_answered_goes_with_the_stream_that_broke():
    server = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    broken = AssistantMessageEnded("broken")
    messages = said(user("hi"), block(0, server), block(1, CALL), broken, result("a"))
    assert messages[1]["content"] == [CALL]
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    messages = said(user("hi"), block(0, server), block(1, found), block(2, CALL), broken, result("a"))
    assert len(messages[1]["content"]) == 3


def test_unknown_and_damaged_records_are_passed_over():
    damaged = [
        {"type": "from the future", "x": 1},
        {"no": "type"},
        {"type": ["odd"]},
        {"type": "user", "content": None},
        {"type": "user", "content": [1, {"type": 2}, {"type": "text", "text": "hi"}]},
        {"type": "block", "block": "no"},
        {"type": "result", "block": {"type": "tool_result"}},
        {"type": "compacted", "messages": 3},
        {"type": "activated", "tools": "x"},
        {"type": "answered", "usage": 3, "cost": "much"},
    ]
    messages = said(*filter(None, map(convert_record, damaged)))
    assert messages == [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]


def test_cost_turns_and_tokens_are_added_up():
    told = fold([user("hi"), block(0, CALL), ANSWERED, result("a"), ANSWERED])
    assert (told.cost, told.turns, told.tokens) == (1.0, 2, 10)


def test_each_message_is_repaired_once_and_stays_the_same_object():
    told = Conversation()
    told.apply(user("hi"))
    before = told.settle()[0]
    for record in (block(0, CALL), ANSWERED, result("a")):
        told.apply(record)
    messages = told.settle()
    assert messages[0] is before
    check_request([message.as_dict() for message in messages])


def test_a_prompt_that_follows_another_joins_it_and_results_stay_in_place():
    told = Conversation()
    for record in (user("hi"), block(0, CALL), ANSWERED, result("a")):
        told.apply(record)
    told.settle()
    told.apply(user("and this"))
    messages = [message.as_dict() for message in told.settle()]
    check_request(messages)
    assert [b["type"] for b in messages[2]["content"]] == ["tool_result", "text"]


def test_a_message_that_goes_on_after_a_pause_is_one_message():
    told = Conversation()
    text = {"type": "text", "text": "searching"}
    for record in (user("hi"), block(0, text), AssistantMessageEnded("pause_turn")):
        told.apply(record)
    told.settle()
    for more in (block(0, CALL), ANSWERED, result("a")):
        told.apply(more)
    messages = [message.as_dict() for message in told.settle()]
    check_request(messages)
    assert messages[1]["content"] == [text, CALL]


def test_looking_at_a_copy_changes_nothing():
    told = Conversation()
    told.apply(user("hi"))
    told.apply(block(0, CALL))
    assert len(told.copy().settle()) == 3
    assert (len(told.messages), len(told.blocks)) == (1, 1)


def test_a_compacted_conversation_goes_on_from_what_it_was_compacted_to():
    session = [{"role": "user", "content": "in short"}, {"role": "assistant", "content": [CALL]}]
    messages = said(user("hi"), HistoryReplaced([*session, {"role": "robot"}, 3]), user("on"))
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert messages[2]["content"][1]["text"] == "on"


def test_ids_that_were_used_stay_used_after_compaction_and_in_copies():
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "go"}]},
        {"role": "assistant", "content": [CALL]},
    ]
    told = fold([HistoryReplaced(messages, "fork", ids=["long ago", 3])])
    assert {"a", "long ago"} <= told.ids
    assert fold([HistoryReplaced(messages, ids="damaged")]).ids == {"a"}


def test_results_put_aside_are_replaced_by_what_stands_for_them():
    messages = said(user("hi"), block(0, CALL), ANSWERED, result("a", "long"), ResultsShortened({"a": "(aside)"}))
    assert messages[2]["content"][0]["content"] == [{"type": "text", "text": "(aside)"}]
