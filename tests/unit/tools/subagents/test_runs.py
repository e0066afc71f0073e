"""A subagent sent by a session: what it has, what it does not have, and what comes back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.tools.subagents.conftest import agent_file, events_of, told

from wieldy import Script
from wieldy.agent.transcript import raw_records
from wieldy.core.events import AgentEvent, Notice, ToolStarted


def sending(agent: Script, kind: str = "general", **input: object) -> Script:
    """A model that sends one agent and then says that it is done."""
    asked = {"prompt": "do it", "agent_type": kind, **input}
    return Script().calls("Agent", **asked).says("done").sends(kind, agent)


@pytest.mark.asyncio
async def test_its_last_words_are_the_result_with_what_it_took(opened):
    agent = Script([[{"text": "let me see"}, {"call": "Read", "input": {"file_path": "a.txt"}}], [{"text": "alpha"}]])
    model = sending(agent, "explore")
    async with opened(model) as session:
        assert await session.ask("go") == "done"
    (said,) = told(model)
    assert said.startswith("alpha\n")
    assert "2 turns, 1 tool use" in said
    assert "let me see" not in said


@pytest.mark.asyncio
async def test_it_knows_its_task_and_its_kind_and_nothing_of_the_conversation(opened, project):
    (project / "AGENTS.md").write_text("Be kind.")
    agent = Script().says("ok")
    async with opened(sending(agent, "explore")) as session:
        await session.ask("a secret wish")
    (request,) = agent.requests
    assert [message.as_dict() for message in request.messages] == [
        {"role": "user", "content": [{"type": "text", "text": "do it"}]}
    ]
    assert request.system[0].startswith("You explore")
    assert "Be kind." in "\n".join(request.system)
    assert "secret" not in "\n".join(request.system)


@pytest.mark.asyncio
async def test_explore_has_tools_that_read_and_general_has_all_but_those_for_the_person(opened):
    explorer, general = Script().says("x"), Script().says("x")
    model = Script().calls("Agent", prompt="p", agent_type="explore").then().calls("Agent", prompt="p").says("done")
    async with opened(model.sends("explore", explorer).sends("general", general)) as session:
        await session.ask("go")
    offered = {tool.name for tool in explorer.requests[0].tools}
    assert {"Read", "Grep", "Glob", "LS", "ToolSearch"} <= offered
    assert not offered & {"Bash", "Write", "Edit", "MultiEdit", "Agent", "AskUser"}
    offered = {tool.name for tool in general.requests[0].tools}
    assert {"Bash", "Write", "Edit", "Agent"} <= offered
    assert not offered & {"AskUser", "ExitPlan"}


@pytest.mark.asyncio
async def test_a_tool_it_does_not_have_does_not_exist_for_it(opened, project):
    agent = Script().calls("Write", file_path="new.txt", content="x").says("tried")
    async with opened(sending(agent, "explore"), mode="bypassPermissions") as session:
        await session.ask("go")
    assert "No such tool: `Write`" in told(agent)[0]
    assert not (project / "new.txt").exists()


@pytest.mark.asyncio
async def test_the_call_narrows_what_the_kind_has_and_never_adds_to_it(opened):
    agent = Script().says("x")
    async with opened(sending(agent, "explore", tools=["Read", "Bash", "Gr*"])) as session:
        await session.ask("go")
    assert [tool.name for tool in agent.requests[0].tools] == ["Grep", "Read"]


@pytest.mark.asyncio
async def test_what_it_reads_its_parent_has_not_read(opened, project):
    agent = Script().calls("Read", file_path="a.txt").says("read")
    model = Script().calls("Agent", prompt="p").then().calls("Read", file_path="a.txt").then()
    model.calls("Agent", prompt="p").says("done").sends("general", agent)
    async with opened(model) as session:
        await session.ask("go")
        assert session.box.workspace.services.read_state.reading(str(project / "a.txt")) is not None
    assert "alpha" in told(model, 2)[0], "no stub: this model has not seen it"
    assert all("alpha" in told(agent, n)[0] for n in (1, 3))


@pytest.mark.asyncio
async def test_it_stands_where_its_parent_stood_and_does_not_move_it(opened, project):
    (project / "sub").mkdir()
    agent = Script().calls("Bash", command="pwd; cd ..; pwd").says("x")
    model = Script().calls("Bash", command="cd sub").then().calls("Agent", prompt="p").then()
    model.calls("Bash", command="pwd").says("done").sends("general", agent)
    async with opened(model, mode="bypassPermissions") as session:
        await session.ask("go")
    assert told(agent)[0].splitlines()[:2] == [str(project / "sub"), str(project)]
    assert told(model)[0].strip() == str(project / "sub")


@pytest.mark.asyncio
async def test_what_it_changed_is_taken_back_with_the_turn_that_sent_it(opened, project):
    agent = Script().calls("Write", file_path="new.txt", content="x\n").then()
    agent.calls("Read", file_path="a.txt").then()
    agent.calls("Edit", file_path="a.txt", old_string="alpha", new_string="omega").says("wrote")
    async with opened(sending(agent), mode="acceptEdits") as session:
        await session.ask("go")
        assert (project / "a.txt").read_text() == "omega\n"
        await session.box.undo(turn=True)
    assert (project / "a.txt").read_text() == "alpha\n"
    assert not (project / "new.txt").exists()


@pytest.mark.asyncio
async def test_both_transcripts_name_each_other(opened):
    async with opened(sending(Script().calls("LS").says("x"), "explore")) as session:
        await session.ask("go")
        folder = session.box.workspace.session_dir
    (named,) = [one for one in raw_records(folder) if one["type"] == "agent"]
    path = Path(named["transcript"])
    assert path == folder / "agents" / named["id"] / "transcript.jsonl"
    header = json.loads(path.read_text().splitlines()[0])
    assert (header["parent"], header["parent_call"], header["agent"]) == (session.id, named["call"], "explore")
    (ended,) = [one for one in raw_records(folder) if one["type"] == "agent_ended"]
    assert (ended["why"], ended["turns"], ended["id"]) == ("done", 2, named["id"])


@pytest.mark.asyncio
async def test_its_steps_are_events_with_its_name_and_no_one_elses(opened):
    agent = Script().calls("Read", file_path="a.txt").says("x")
    async with opened(sending(agent, "explore")) as session:
        events = await events_of(session)
    inside = [event for event in events if isinstance(event, AgentEvent)]
    (call,) = {event.call_id for event in inside}
    assert {event.agent_type for event in inside} == {"explore"}
    assert [event.event.name for event in inside if isinstance(event.event, ToolStarted)] == ["Read"]
    outside = [event for event in events if isinstance(event, ToolStarted)]
    assert [(event.name, event.call_id) for event in outside] == [("Agent", call)]


@pytest.mark.asyncio
async def test_ids_of_calls_are_not_used_twice_in_a_session(opened):
    agent = Script([[{"call": "LS", "input": {}, "id": "same"}], [{"text": "x"}]])
    turns = [[{"call": "Agent", "input": {"prompt": "p"}, "id": "same"}], [{"call": "LS", "input": {}, "id": "same"}]]
    model = Script([*turns, [{"text": "done"}]]).sends("general", agent)
    async with opened(model) as session:
        await session.ask("go")
    ids = [b["id"] for m in (model, agent) for block in m.requests[-1].messages for b in block.calls()]
    assert len(ids) == len(set(ids)) == 3


@pytest.mark.asyncio
async def test_tokens_and_cost_count_for_the_session_at_once(opened):
    usage = {"usage": {"input_tokens": 1_000_000, "output_tokens": 0}}
    agent = Script([[usage, {"text": "x"}]])
    model = Script([[{"call": "Agent", "input": {"prompt": "p"}}], [{"text": "done"}]], model="claude-sonnet-4-5")
    async with opened(model.sends("general", agent)) as session:
        await session.ask("go")
        assert session.conversation.cost == pytest.approx(3.0)
    assert "1,000,000 tokens, $3.0000" in told(model)[0]


@pytest.mark.asyncio
async def test_deferred_tools_can_be_searched_for_and_called_inside(opened):
    from wieldy import tool

    @tool(name="Weather", read_only=True, deferred=True)
    async def weather(city: str) -> str:
        """The weather in a city."""
        return f"{city}: sunny"

    agent = Script().calls("ToolSearch", query="weather").then().calls("Weather", city="Rome").says("sunny")
    model = sending(agent)
    async with opened(model, tools=[weather], settings={"defer": "always"}) as session:
        await session.ask("go")
    assert "Weather" not in [tool.name for tool in agent.requests[0].tools]
    assert "Weather" in [tool.name for tool in agent.requests[1].tools]
    assert told(agent) == ["Rome: sunny"]
    assert "Weather" not in [tool.name for tool in model.requests[1].tools], "loaded by the agent, not by its parent"


@pytest.mark.asyncio
async def test_an_agent_may_send_agents_but_not_for_ever(opened):
    innermost = Script().calls("Agent", prompt="deeper").says("bottom")
    middle = Script().calls("Agent", prompt="third").says("middle")
    first = Script().calls("Agent", prompt="second").says("first")
    model = Script().calls("Agent", prompt="first").says("done")
    for name, part in (("third", innermost), ("second", middle), ("first", first)):
        model.sends("general", part, prompt=name)
    async with opened(model) as session:
        await session.ask("go")
        assert [sent.running for sent in session.box.workspace.services.subagent_registry.all()] == [False] * 3
    assert "Agent" not in [tool.name for tool in innermost.requests[0].tools]
    assert "No such tool: `Agent`" in told(innermost)[0]
    assert told(middle)[0].startswith("bottom")
    assert told(model)[0].startswith("first")


@pytest.mark.asyncio
async def test_agents_can_be_switched_off(opened):
    model = Script().calls("Agent", prompt="p").says("done")
    async with opened(model, settings={"agents": {"maxDepth": 0}}) as session:
        await session.ask("go")
    assert "Agent" not in [tool.name for tool in model.requests[0].tools]
    assert "agents.maxDepth" in told(model)[0]


@pytest.mark.asyncio
async def test_a_kind_from_a_file_is_told_of_and_used(opened, project):
    agent_file(project, "reviewer", "tools: Read, Nowhere\nmaxTurns: 1\n", "You review.")
    agent = Script().says("fine")
    model = sending(agent, "reviewer")
    async with opened(model) as session:
        events = await events_of(session)
    assert "- reviewer: Does reviewer." in "\n".join(model.requests[0].system)
    assert agent.requests[0].system[0].startswith("You review.")
    assert [tool.name for tool in agent.requests[0].tools] == ["Read"]
    notices = [e.event.text for e in events if isinstance(e, AgentEvent) and isinstance(e.event, Notice)]
    assert notices == ["The agent reviewer asks for tools that it cannot have: Nowhere"]


@pytest.mark.asyncio
async def test_an_unknown_kind_or_an_empty_task_is_refused_with_what_there_is(opened):
    model = Script().calls("Agent", prompt="p", agent_type="wizard").calls("Agent", prompt=" ").says("done")
    async with opened(model) as session:
        await session.ask("go")
    wizard, empty = told(model)
    assert "no agent `wizard`" in wizard
    assert "- explore:" in wizard
    assert "`prompt`" in empty


@pytest.mark.asyncio
async def test_it_is_told_that_it_can_only_look_and_not_to_present_a_plan(opened):
    agent = Script().says("x")
    async with opened(sending(agent, "explore")) as session:
        await session.ask("go")
    assert "You can only look" in agent.requests[0].system[0]
    assert "Work out a plan" not in agent.requests[0].system[0]
