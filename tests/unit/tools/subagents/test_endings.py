"""However a subagent ends, its parent gets one result that says so, and what had been done."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from tests.unit.tools.subagents.conftest import agent_file, events_of, told

from wieldy import Script, Tool, tool
from wieldy.agent.transcript import raw_records
from wieldy.core.events import Notice, RunEnded, ToolStarted


class Gate:
    """A tool that holds a model up until a test has seen enough."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    def tool(self) -> Tool:
        @tool(read_only=True)
        async def hold() -> str:
            """Wait."""
            await self.open.wait()
            return "go on"

        return hold


LOOK = {"call": "Read", "input": {"file_path": "a.txt"}}


def sending(agent: Script, **input: Any) -> Script:
    return Script().calls("Agent", prompt="do it", **input).says("done").sends("general", agent)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("turns", "said"),
    [
        ([[LOOK], [{"fail": "auth", "message": "the key is wrong"}]], "the key is wrong"),
        ([[LOOK], [{"text": "half"}, {"fail": "bad_request", "message": "no"}]], "no"),
        ([[LOOK], [{"text": "cut he"}, {"stop": "max_tokens"}]], "cut off at the length limit"),
        ([[LOOK], [{"stop": "refusal"}]], "the model refused"),
        ([[LOOK]], "the script has no more turns"),
    ],
)
async def test_a_model_that_fails_is_an_error_with_what_was_done_until_then(opened, turns, said):
    model = sending(Script(turns))
    async with opened(model) as session:
        assert await session.ask("go") == "done"
    (text,) = told(model)
    assert "The general agent did not finish" in text
    assert said in text
    assert "Read(file_path=" in text
    assert model.requests[-1].messages[-1].content[0]["is_error"] is True


@pytest.mark.asyncio
async def test_a_kind_without_words_in_the_script_says_so(opened):
    model = Script().calls("Agent", prompt="p", agent_type="explore").says("done")
    async with opened(model) as session:
        await session.ask("go")
    assert "no turns for this explore agent" in told(model)[0]


@pytest.mark.asyncio
async def test_too_many_turns_end_it(opened, project):
    agent_file(project, "short", "maxTurns: 2\n")
    agent = Script([[LOOK], [{"text": "so far"}, LOOK], [{"text": "never said"}]])
    model = Script().calls("Agent", prompt="p", agent_type="short").says("done").sends("short", agent)
    async with opened(model) as session:
        await session.ask("go")
    text = told(model)[0]
    assert "stopped after 2 turns" in text
    assert "so far" in text
    assert "never said" not in text


@pytest.mark.asyncio
async def test_one_budget_holds_for_all_together(opened):
    dear = {"usage": {"input_tokens": 1_000_000}}
    agent = Script([[dear, LOOK], [dear, LOOK], [{"text": "never said"}]], context_window=9_000_000)
    model = Script([[{"call": "Agent", "input": {"prompt": "p"}}], [{"text": "x"}]], model="claude-sonnet-4-5")
    async with opened(model.sends("general", agent), max_cost=5.0) as session:
        events = await events_of(session)
    ended = events[-1]
    assert isinstance(ended, RunEnded)
    assert ended.why == "max_cost"
    assert ended.cost == pytest.approx(6.0)
    assert len(agent.requests) == 2
    result = session.messages[-1]["content"][0]
    assert "stopped at a cost of $6.0000" in result["content"][0]["text"]


@pytest.mark.asyncio
async def test_an_interrupt_stops_it_within_a_second_and_says_how_far_it_came(opened):
    agent = Script([[{"text": "I begin"}, LOOK], [{"call": "Bash", "input": {"command": "sleep 30"}}]])
    async with opened(sending(agent), mode="bypassPermissions") as session:
        began = 0.0
        last = None
        async for event in session.run("go"):
            inner = getattr(event, "event", None)
            if isinstance(inner, ToolStarted) and inner.name == "Bash":
                began = time.monotonic()
                session.abort()
            last = event
        assert time.monotonic() - began < 5.0  # a hang would be 30
        assert isinstance(last, RunEnded)
        assert last.why == "interrupted"
        assert not [sent for sent in session.box.workspace.services.subagent_registry.all() if sent.running]
    (result,) = session.messages[-1]["content"]
    text = result["content"][0]["text"]
    assert "interrupted by the user" in text
    assert "I begin" in text
    assert "Read(file_path=" in text


@pytest.mark.asyncio
async def test_a_time_limit_stops_it_too(opened):
    agent = Script([[LOOK], [{"pause": 30}]])
    model = sending(agent)
    async with opened(model, settings={"tools": {"Agent": {"timeout": 0.5}}}) as session:
        assert await session.ask("go") == "done"
        assert not [sent for sent in session.box.workspace.services.subagent_registry.all() if sent.running]
    text = told(model)[0]
    assert "did not finish within 0.5 s" in text
    assert "Read(file_path=" in text


@pytest.mark.asyncio
async def test_one_in_the_background_reports_when_it_ends(opened):
    agent = Script([[{"pause": 0.05}, LOOK], [{"text": "found it"}]])
    model = Script().calls("Agent", prompt="p", run_in_background=True).says("I wait").says("done")
    async with opened(model.sends("general", agent)) as session:
        events = await events_of(session)
    started = told(model, 1)[0]
    assert "is at work" in started
    assert "found it" in told(model)[-1]
    assert next(event.text for event in events if isinstance(event, Notice)).endswith("has ended: p")
    assert isinstance(events[-1], RunEnded)
    assert events[-1].text == "done"


@pytest.mark.asyncio
async def test_several_in_the_background_work_side_by_side_and_each_reports_once(opened):
    agent = Script([[{"pause": 0.02}, LOOK], [{"text": "found it"}]])
    model = Script()
    for number in range(3):
        model.calls("Agent", prompt=f"p{number}", run_in_background=True)
    model.says("I wait")
    model.turns += [[{"text": f"word {n}"}] for n in range(3)]
    async with opened(model.sends("general", agent)) as session:
        await session.ask("go")
    words = "\n".join(b["text"] for m in session.messages for b in m["content"] if b["type"] == "text")
    assert words.count("It reports:") == 3


@pytest.mark.asyncio
async def test_one_in_the_background_can_be_waited_for_by_id(opened):
    gate = Gate()
    agent = Script([[{"pause": 0.05}, {"text": "found it"}]])
    model = Script().calls("Agent", prompt="p", run_in_background=True).then().calls("hold")
    async with opened(model.sends("general", agent), tools=[gate.tool()]) as session:
        task = asyncio.ensure_future(events_of(session))
        registry = session.box.workspace.services.subagent_registry
        while not registry.all():
            await asyncio.sleep(0.005)
        (sent,) = registry.all()
        model.then().calls("Agent", agent_id=sent.id).says("done")
        gate.open.set()
        await task
    assert told(model)[0].startswith("found it")
    words = [b["text"] for m in session.messages for b in m["content"] if b["type"] == "text"]
    assert not any("It reports:" in text for text in words), "a report that was read is not told again"


@pytest.mark.asyncio
async def test_one_can_be_stopped_by_id_and_gone_on_with(opened):
    agent = Script([[{"text": "I begin"}, LOOK], [{"pause": 30}]])
    again = Script([[{"text": "now done"}]])
    gate = Gate()
    model = Script().calls("Agent", prompt="first", run_in_background=True).then().calls("hold")
    model.sends("general", agent, prompt="first").sends("general", again, prompt="go on")
    async with opened(model, tools=[gate.tool()]) as session:
        task = asyncio.ensure_future(events_of(session))
        registry = session.box.workspace.services.subagent_registry
        while not (registry.all() and len(agent.requests) == 2):
            await asyncio.sleep(0.005)
        (sent,) = registry.all()
        model.then().calls("Agent", agent_id=sent.id, stop=True).then()
        model.calls("Agent", agent_id=sent.id, prompt="go on").says("done")
        gate.open.set()
        await task
    stopped, resumed = (told(model, n)[0] for n in (-2, -1))
    assert f"The agent {sent.id} was stopped." in stopped
    assert "I begin" in stopped
    assert resumed.startswith("now done")
    history = again.requests[0].messages
    assert history[0].content[0]["text"] == "first"
    assert history[-1].content[-1]["text"] == "go on"


@pytest.mark.asyncio
async def test_one_of_an_earlier_session_can_be_gone_on_with(opened):
    first = Script().calls("Agent", prompt="first", agent_type="explore").says("done")
    async with opened(first.sends("explore", Script().says("I remember 42"))) as session:
        await session.ask("go")
        (named,) = [one for one in raw_records(session.box.workspace.session_dir) if one["type"] == "agent"]
    again = Script().says("it was 42")
    asked = {"agent_id": named["id"], "prompt": "what was it?"}
    second = Script().calls("Agent", **asked).then().calls("Agent", **asked, agent_type="explore").says("done")
    async with opened(second.sends("explore", again), resume=session.id) as resumed:
        await resumed.ask("and now?")
    assert "is a `explore` agent" in told(second, 1)[0]
    assert told(second)[0].startswith("it was 42")
    assert "I remember 42" in str(again.requests[0].messages)


@pytest.mark.asyncio
async def test_an_id_that_nobody_has_is_an_error_that_names_those_there_are(opened):
    model = Script().calls("Agent", agent_id="agent_00000000").calls("Agent", agent_id="../x", prompt="p").says("done")
    async with opened(model) as session:
        await session.ask("go")
    waited, resumed = told(model)
    assert "no agent `agent_00000000`" in waited
    assert "no agent `../x`" in resumed


@pytest.mark.asyncio
async def test_no_more_than_agreed_are_at_work_at_once(opened):
    agent = Script([[{"pause": 0.2}, {"text": "x"}]])
    model = Script().calls("Agent", prompt="1", run_in_background=True).calls("Agent", prompt="2").says("done")
    model.turns.append([{"text": "done"}])
    async with opened(model.sends("general", agent), settings={"agents": {"maxRunning": 1}}) as session:
        await session.ask("go")
    assert "which is the limit" in told(model, 1)[1]


@pytest.mark.asyncio
async def test_closing_the_session_ends_those_in_the_background(opened, project):
    agent = Script([[{"call": "Bash", "input": {"command": "sleep 30"}}]])
    model = Script().calls("Agent", prompt="p", run_in_background=True)
    model.does(pause=30)
    async with opened(model.sends("general", agent), mode="bypassPermissions") as session:
        run = session.run("go")
        async for event in run:
            if isinstance(getattr(event, "event", None), ToolStarted):
                break
        await run.aclose()
        registry = session.box.workspace.services.subagent_registry
    assert not [sent for sent in registry.all() if sent.running]


@pytest.mark.asyncio
async def test_an_interrupt_does_not_wait_for_a_tool_that_will_not_stop(opened):
    let_go = asyncio.Event()

    @tool(read_only=True)
    async def stubborn() -> str:
        """Never stops when told to."""
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        return "at last"

    agent = Script([[LOOK], [{"call": "stubborn", "input": {}}], [{"text": "never"}]])
    async with opened(sending(agent), tools=[stubborn]) as session:
        async for event in session.run("go"):
            inner = getattr(event, "event", None)
            if isinstance(inner, ToolStarted) and inner.name == "stubborn":
                session.abort()
        assert not let_go.is_set()
        text = session.messages[-1]["content"][0]["content"][0]["text"]
        let_go.set()
    assert "interrupted by the user" in text
    assert "Read(file_path=" in text


@pytest.mark.asyncio
async def test_only_one_goes_on_with_an_agent_at_a_time(opened):
    part = Script([[{"pause": 0.05}, {"text": "again"}]])
    model = Script().calls("Agent", prompt="first", agent_type="explore").says("done")
    model.sends("explore", part, prompt="more").sends("explore", Script().says("x"))
    async with opened(model) as session:
        await session.ask("go")
        (sent,) = session.box.workspace.services.subagent_registry.all()
        more = {"agent_id": sent.id, "agent_type": "explore", "prompt": "more"}
        model.calls("Agent", **more).calls("Agent", **more).says("done")
        await session.ask("go on")
    one, other = sorted(told(model), key=len)
    assert one.startswith("again") != other.startswith("again")
    assert "is still at work" in one + other
