"""Answers with a type: checked, sent back with the problems, and given up after a few times."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest
from tests.unit.agent.oracle import check_history

from wieldy import Param, RunEnded, Script, SessionError

pytestmark = pytest.mark.asyncio


@dataclass
class Step:
    title: str
    minutes: Annotated[int, Param(ge=1)] = 5


@dataclass
class Plan:
    """A plan."""

    goal: str
    steps: list[Step]


class PlanDict(TypedDict):
    goal: str


class PlanStruct(msgspec.Struct):
    goal: str


class PlanModel(pydantic.BaseModel):
    goal: str


SCHEMA = {"type": "object", "properties": {"goal": {"type": "string"}}, "required": ["goal"]}
GOOD = json.dumps({"goal": "tea", "steps": [{"title": "boil"}]})


def says(*texts: str) -> Script:
    return Script([[{"text": text}] for text in texts])


async def test_an_answer_becomes_a_value_of_the_type(make_session):
    model = says(GOOD)
    async with make_session(model) as session:
        plan = await session.ask("plan it", returns=Plan)
    assert plan == Plan("tea", [Step("boil")])
    sent = model.requests[0].messages[-1].content
    assert sent[0]["text"] == "plan it"
    assert '"minutes"' in sent[1]["text"]


@pytest.mark.parametrize(
    ("returns", "value"),
    [
        (PlanDict, {"goal": "tea"}),
        (PlanStruct, PlanStruct("tea")),
        (PlanModel, PlanModel(goal="tea")),
        (SCHEMA, {"goal": "tea"}),
    ],
)
async def test_every_kind_of_type_is_understood(make_session, returns, value):
    async with make_session(says('{"goal": "tea"}')) as session:
        assert await session.ask("plan it", returns=returns) == value


@pytest.mark.parametrize(
    "text",
    [
        '{"goal": "tea"}',
        '```json\n{"goal": "tea"}\n```',
        'Here it is:\n```\n{"goal": "tea"}\n```\nDone.',
        'So: {"goal": "tea"}.',
    ],
)
async def test_json_is_found_in_what_models_write_around_it(make_session, text):
    async with make_session(says(text)) as session:
        assert await session.ask("plan it", returns=SCHEMA) == {"goal": "tea"}


@pytest.mark.parametrize(
    ("returns", "text", "value"),
    [
        (list[Step], 'The steps: [{"title": "boil"}, {"title": "pour"}]', [Step("boil"), Step("pour")]),
        (list[PlanModel], '```json\n[{"goal": "tea"}]\n```', [PlanModel(goal="tea")]),
        (dict[str, Step], '{"first": {"title": "boil"}}', {"first": Step("boil")}),
        (Step | None, "null", None),
        (Literal["yes", "no"], '"yes"', "yes"),
        (Annotated[int, Param(ge=1)], "3", 3),
        (bool, "true", True),
        (PlanDict, 'As [1] says: {"goal": "tea"}', {"goal": "tea"}),
    ],
)
async def test_any_annotation_can_be_the_type(make_session, returns, text, value):
    async with make_session(says(text)) as session:
        assert await session.ask("plan it", returns=returns) == value


async def test_a_list_that_does_not_fit_goes_back_with_its_problems(make_session):
    model = says('[{"title": "boil"}, {"minutes": 0}]', '[{"title": "boil"}]')
    async with make_session(model) as session:
        assert await session.ask("plan it", returns=list[Step]) == [Step("boil")]
    problems = str(model.requests[1].messages[-1].content)
    assert "[1].title" in problems and "[1].minutes" in problems


async def test_an_answer_that_does_not_fit_goes_back_with_its_problems(make_session):
    wrong = json.dumps({"goal": "tea", "steps": [{"title": "boil", "minutes": 0}], "more": 1})
    model = says("I think tea.", wrong, GOOD)
    async with make_session(model) as session:
        assert (await session.ask("plan it", returns=Plan)).goal == "tea"
        check_history(session.messages)
    assert "not JSON" in str(model.requests[1].messages[-1].content)
    problems = str(model.requests[2].messages[-1].content)
    assert "steps[0].minutes" in problems
    assert "more" in problems


async def test_tools_can_be_used_before_the_answer_and_between_corrections(make_session, ledger):
    call = {"call": "note", "input": {"word": "look"}}
    model = Script([[call], [{"text": "hm"}], [call], [{"text": GOOD}]])
    async with make_session(model) as session:
        assert (await session.ask("plan it", returns=Plan)).goal == "tea"
    assert ledger.ran == ["look", "look"]


async def test_after_some_corrections_it_gives_up_and_says_why(make_session):
    model = says(*["no"] * 9)
    async with make_session(model) as session:
        with pytest.raises(SessionError, match=r"does not fit after 3 corrections: .*not JSON"):
            await session.ask("plan it", returns=Plan)
        assert len(model.requests) == 4
        assert await session.ask("and now?") == "no"


async def test_an_interrupted_or_limited_run_is_not_corrected(make_session):
    async with make_session(says("no", "no"), max_turns=1) as session:
        with pytest.raises(SessionError):
            await session.ask("plan it", returns=Plan)


async def test_the_last_event_has_the_answer_as_json(make_session):
    async with make_session(says(GOOD)) as session:
        events = [event async for event in session.run("plan it", returns=Plan)]
    last = events[-1]
    assert isinstance(last, RunEnded)
    assert last.data == json.loads(GOOD)


@pytest.mark.parametrize("returns", [complex, list[bytes], "Plan", 3, {"type": "float"}])
async def test_what_is_no_type_for_an_answer_is_an_error(make_session, returns):
    model = says(GOOD)
    async with make_session(model) as session:
        with pytest.raises((TypeError, ValueError)):
            await session.ask("plan it", returns=returns)
    assert model.requests == []


async def test_a_null_is_an_answer_where_the_schema_allows_it(make_session):
    async with make_session(says("null")) as session:
        answer: Any = await session.ask("anything?", returns={"type": ["object", "null"]})
    assert answer is None


async def test_an_answer_that_has_to_wait_for_a_question_is_checked_when_it_comes(make_session):
    call = {"call": "asks", "input": {"word": "x"}, "id": "a"}
    async with make_session(Script([[call]]), ask="defer") as session:
        with pytest.raises(SessionError, match=r"there is no answer yet: see session\.pending"):
            await session.ask("plan it", returns=Plan)
        assert [question.id for question in session.pending] == ["a"]
    model = says('{"goal": 3}', GOOD)
    async with make_session(model, resume=session.id, ask="defer") as resumed:
        plan = await resumed.answer({"a": True}, returns=Plan)
        assert plan == Plan("tea", [Step("boil")])
    assert "does not fit" in str(model.requests[1].messages[-1].content)


async def test_the_events_of_an_answer_with_a_type_end_with_its_data(make_session):
    call = {"call": "asks", "input": {"word": "x"}, "id": "a"}
    async with make_session(Script([[call], [{"text": '{"goal": "tea"}'}]]), ask="defer") as session:
        await session.ask("go")
        events = [event async for event in session.answer({"a": True}, returns=SCHEMA)]
        assert isinstance(events[-1], RunEnded)
        assert events[-1].data == {"goal": "tea"}
        with pytest.raises(TypeError, match="`returns` cannot be used: the answer is annotated"):
            session.answer({}, returns=complex)
