"""The recorded model says what its script says."""

from __future__ import annotations

import json

import pytest
from tests.unit.models.wire import receive, request

from wieldy import Script
from wieldy.core.errors import SessionError
from wieldy.core.messages import Message
from wieldy.core.provider import ProviderFailure, Usage


@pytest.mark.asyncio
async def test_a_script_in_code_reads_like_a_conversation():
    model = Script().thinks("hm").calls("add", a=2, b=3).calls("add", a=1, b=1).says("It is 5.")
    first = await receive(model)
    assert [block["type"] for block in first.content()] == ["thinking", "tool_use", "tool_use"]
    assert [block["input"] for block in first.content()[1:]] == [{"a": 2, "b": 3}, {"a": 1, "b": 1}]
    assert first.stop_reason == "tool_use"
    second = await receive(model)
    assert (second.content()[0]["text"], second.stop_reason) == ("It is 5.", "end_turn")


def test_then_begins_another_turn_and_thoughts_go_with_the_words_after_them():
    model = Script().calls("a").then().calls("b").says("x").thinks("hm").says("y")
    assert [[next(iter(step)) for step in turn] for turn in model.turns] == [
        ["call"],
        ["call"],
        ["text"],
        ["think", "text"],
    ]


@pytest.mark.asyncio
async def test_a_script_from_a_file_with_pace_usage_and_stop(tmp_path):
    steps = [{"text": "hello", "chunk": 2}, {"usage": {"input_tokens": 3}}, {"pause": 0}, {"stop": "max_tokens"}]
    (tmp_path / "s.json").write_text(json.dumps({"turns": [steps], "chunk": 1, "delay": 0}))
    model = Script.load(tmp_path / "s.json")
    answer = await receive(model)
    assert answer.content()[0]["text"] == "hello"
    assert (answer.usage, answer.stop_reason) == (Usage(input_tokens=3), "max_tokens")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        ([{"fail": "rate", "retry_after": 3}], "rate"),
        ([{"text": "x"}, {"fail": "overloaded", "status": 529}], "overloaded"),
        ([{"text": "x"}, {"cut": True}], "connection"),
    ],
)
async def test_failures_before_and_in_mid_stream(steps, kind):
    with pytest.raises(ProviderFailure) as failed:
        await receive(Script([steps]))
    assert failed.value.kind == kind


@pytest.mark.asyncio
async def test_a_script_that_is_over_says_so():
    with pytest.raises(ProviderFailure, match="no more turns"):
        await receive(Script())


@pytest.mark.asyncio
async def test_requests_are_remembered_as_they_were():
    model, messages = Script([[{"text": "x"}]] * 2), [Message.user("a")]
    await receive(model, request(*messages))
    messages.append(Message.user("b"))
    assert len(model.requests[0].messages) == 1
    forgetful = Script([[{"text": "x"}]], remember=False)
    await receive(forgetful)
    assert forgetful.requests == []


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ({"txt": "hello"}, "is not a step: a step has one of text, think, call"),
        ({"call": "Read", "inptu": {}}, "a step with `call` has no `inptu`; it may have input, raw, id"),
        ({"usage": {}, "text": "x"}, "a step with `text` has no `usage`"),
    ],
)
def test_a_misspelled_step_is_named_where_it_is_written(step, problem):
    with pytest.raises(ValueError, match=problem):
        Script([[step]])
    with pytest.raises(ValueError, match=problem):
        Script().does(**step)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"turns": 3}', '{"turns": [[1]]}', '{"turns": [[{"sing": "x"}]]}', "nonsense"]
)
def test_a_file_that_is_no_script_is_said(tmp_path, text):
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(SessionError, match="is not a script"):
        Script.load(tmp_path / "s.json")


def test_a_file_that_is_not_there_is_said(tmp_path):
    with pytest.raises(SessionError, match="cannot be read"):
        Script.load(tmp_path / "none.json")
