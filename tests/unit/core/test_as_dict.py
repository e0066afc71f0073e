"""Everything a program may want to send can be made JSON: events, results, decisions, questions, answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from wieldy import Answer, AnyEvent, Event, Image, Output, RunEnded, Script, Session, Toolbox, tool
from wieldy.core import events as event_module

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))


class Odd:
    def __str__(self) -> str:
        return "odd"


@tool(read_only=True)
async def picture() -> Output:
    """Take a picture."""
    return Output((Image("image/png", "eA=="),), data={"odd": Odd(), "path": Path("a"), "set": {1}})


@tool
async def deploy(target: str) -> str:
    """Deploy."""
    return f"deployed to {target}"


def sent(value: Any) -> Any:
    return json.loads(json.dumps(value.as_dict()))


async def test_every_event_has_a_kind_of_its_own_and_is_in_the_union():
    kinds = [each.kind for each in get_args(AnyEvent)]
    assert len(set(kinds)) == len(kinds)
    classes = [each for each in vars(event_module).values() if isinstance(each, type) and issubclass(each, Event)]
    concrete = {each for each in classes if not each.__subclasses__()}
    assert concrete == set(get_args(AnyEvent))


async def test_every_event_of_a_run_can_be_sent(tmp_path):
    agent = Script([[{"call": "picture", "input": {}}], [{"text": "seen"}]])
    calls = [
        {"call": "picture", "input": {}},
        {"call": "deploy", "input": {"target": "x"}},
        {"call": "nothing", "input": {}},
        {"call": "Agent", "input": {"agent_type": "general", "prompt": "look", "description": "x"}},
    ]
    usage = {"usage": {"input_tokens": 10, "output_tokens": 5}}
    model = Script([[{"text": "hm"}, *calls, usage], [{"text": "done"}, usage]], agents=[("general", "", agent)])
    async with Session(
        tmp_path, model=model, settings={}, tools=[picture, deploy], ask=lambda question: True
    ) as session:
        events = [event async for event in session.run("go")]
    kinds = {sent(event)["kind"] for event in events}
    assert {
        "tool.started",
        "tool.succeeded",
        "tool.failed",
        "permission.asked",
        "permission.decided",
        "agent.event",
    } <= kinds
    last = events[-1]
    assert isinstance(last, RunEnded)
    assert last.usage.input_tokens == 20
    assert sent(last)["usage"]["output_tokens"] == 10
    decided = next(sent(event) for event in events if event.kind == "permission.decided" and event.name == "deploy")
    assert decided["decision"]["behavior"] == "allow"
    assert decided["answer"]["allowed"] is True
    inner = next(sent(event) for event in events if event.kind == "agent.event" and event.event.kind == "tool.started")
    assert inner["event"]["name"] == "picture"


async def test_the_tokens_of_a_run_are_its_own(tmp_path):
    def turn(text: str, tokens: int) -> list[dict[str, Any]]:
        return [{"text": text}, {"usage": {"input_tokens": tokens, "output_tokens": 1}}]

    model = Script([turn("a", 10), turn("b", 20)])
    async with Session(tmp_path, model=model, settings={}) as session:
        for tokens in (10, 20):
            events = [event async for event in session.run("go")]
            assert isinstance(events[-1], RunEnded)
            assert events[-1].usage.input_tokens == tokens


async def test_results_decisions_and_answers_can_be_sent(tmp_path):
    questions: list[Any] = []

    def ask(question: Any) -> bool:
        questions.append(question)
        return False

    async with Toolbox(tmp_path, settings={}, tools=[picture, deploy], ask=ask) as box:
        done = sent(await box.call("picture"))
        refused = sent(await box.call("deploy", target="x"))
        decision = sent(await box.explain("Bash", command="rm -rf build"))
    assert (done["outcome"], done["is_error"]) == ("done", False)
    assert done["content"][0]["source"]["data"] == "eA=="
    assert done["data"] == {"odd": "odd", "path": "a", "set": [1]}
    assert (refused["outcome"], refused["stage"]) == ("refused", "permission")
    assert decision["behavior"] == "ask"
    assert decision["why"].startswith("ask:")
    (question,) = questions
    data = sent(question)
    assert (data["id"], data["name"], data["input"]) == (refused["call_id"], "deploy", {"target": "x"})
    assert sent(Answer(False, "no"))["words"] == "no"
