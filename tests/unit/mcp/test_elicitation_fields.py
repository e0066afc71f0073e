"""Forms of servers, answered question by question."""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import Sequence
from typing import Any

import pytest

from wieldy.core.decision import Answer
from wieldy.core.user_questions import UserAnswer, UserQuestion
from wieldy.engine.workspace_services import HostServices
from wieldy.mcp.server_requests import form_questions, form_values

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name", "description": "as on the door"},
        "age": {"type": "integer", "default": 7},
        "share": {"type": "number"},
        "sure": {"type": "boolean", "default": False},
        "size": {"type": "string", "enum": ["s", "m"], "enumNames": ["small", "middle"]},
        "colour": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]},
        "days": {"type": "array", "items": {"type": "string", "enum": ["mon", "tue", "wed"]}},
    },
    "required": ["name"],
}


def test_each_field_is_a_question_with_its_options_and_the_first_says_who_asks():
    asked = form_questions("shop", "Who are you?", SCHEMA)
    assert asked[0] == UserQuestion("The MCP server shop asks: Who are you?\nYour name (as on the door)")
    assert asked[1] == UserQuestion("age [Enter: 7]")
    assert asked[3] == UserQuestion("sure [Enter: no]", ("yes", "no"))
    assert [one.options for one in asked[4:]] == [("small", "middle"), ("Red", "Green"), ("mon", "tue", "wed")]
    assert [one.several for one in asked] == [False] * 6 + [True]


def test_replies_become_values_of_the_right_kind_and_silence_the_default():
    said = [
        UserAnswer(words="Ann"),
        UserAnswer(),
        UserAnswer(words="0.5"),
        UserAnswer(("yes",)),
        UserAnswer(("middle",)),
        UserAnswer(("Green",)),
        UserAnswer(("mon", "wed")),
    ]
    assert form_values(SCHEMA, said) == {
        "name": "Ann",
        "age": 7,
        "share": 0.5,
        "sure": True,
        "size": "m",
        "colour": "g",
        "days": ["mon", "wed"],
    }
    assert form_values(SCHEMA, [UserAnswer(words="Ann"), *[UserAnswer()] * 6]) == {
        "name": "Ann",
        "age": 7,
        "sure": False,
    }


def test_what_is_no_number_stays_what_was_said_and_does_not_fit():
    assert form_values({"properties": {"age": {"type": "integer"}}}, [UserAnswer(words="old")]) == {"age": "old"}


class Answering:
    """Somebody who says the same to every question."""

    def __init__(self, reply: UserAnswer | None) -> None:
        self.reply = reply
        self.asked: list[str] = []

    async def answer(self, inquiries: Sequence[UserQuestion]) -> Sequence[UserAnswer] | None:
        self.asked += [inquiry.question for inquiry in inquiries]
        return None if self.reply is None else [self.reply for _ in inquiries]


@pytest.mark.parametrize(("reply", "said"), [(UserAnswer(words="blue"), '"colour": "blue"'), (None, "decline")])
@pytest.mark.asyncio
async def test_a_server_s_form_is_filled_in_by_whoever_sits_at_the_screen(stage, reply, said):
    person = Answering(reply)
    async with stage.box(host=HostServices(question_handler=person), s=stage.entry()) as box:
        await box.connected()
        result = await box.call("mcp__s__ask", {})
    assert said in result.text
    assert person.asked == ["The MCP server s asks: Which colour?\ncolour"]


INVALID_PARAMS = -32602


def doubling(number: int) -> dict[str, Any]:
    """A form of a few kB in which each of the `number` definitions refers to the next one twice."""
    twice = {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(number)}
    definitions = {**twice, f"a{number}": {"type": "string"}}
    return {"type": "object", "properties": {"colour": {"$ref": "#/$defs/a0"}}, "$defs": definitions}


def nested(levels: int) -> dict[str, Any]:
    field: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        field = {"type": "object", "properties": {"colour": field}}
    return field


HOSTILE_FORMS = {
    "small, and huge where its references are followed": doubling(28),
    "alternatives of alternatives": doubling(12),
    "deep": nested(100),
    "very many fields": {"type": "object", "properties": {f"f{n}": {"type": "string"} for n in range(30_000)}},
    "a pattern that takes much memory": {
        "type": "object",
        "properties": {"colour": {"type": "string", "pattern": "(?:(?:a{1,1000}){1,1000}){1,100}"}},
    },
    "a reference to another document": {
        "type": "object",
        "properties": {"colour": {"$ref": "http://127.0.0.1:9/schema"}},
    },
}


@pytest.mark.parametrize("form", HOSTILE_FORMS.values(), ids=HOSTILE_FORMS)
@pytest.mark.parametrize("is_asked_in_fields", [True, False])
@pytest.mark.asyncio
async def test_a_hostile_form_is_declined_and_shown_to_no_person(stage, form, is_asked_in_fields):
    person, questions = Answering(UserAnswer(words="blue")), []

    def ask(question: Any) -> Answer:
        questions.append(question)
        return Answer(True, updated_input={"colour": "blue"})

    host = HostServices(question_handler=person) if is_asked_in_fields else None
    file = stage.folder / "form.json"
    file.write_text(json.dumps(form))
    async with asyncio.timeout(20), stage.box(ask=ask, host=host, s=stage.entry(form=str(file))) as box:
        await box.connected()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = await box.call("mcp__s__ask", {})
        assert '"decline"' in result.text or f'"code": {INVALID_PARAMS}' in result.text
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024
        assert person.asked == [] and questions == []
        assert not (await box.call("mcp__s__echo", {"text": "there"})).is_error
