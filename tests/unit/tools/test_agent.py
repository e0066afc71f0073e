"""Agent and Architect as tools: where they are offered, what they declare, and how they look to a person."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from wieldy import Script, Session, Toolbox, tool
from wieldy.core.effects import NO_EFFECTS, USES_FILES, Delegates
from wieldy.core.events import AgentEvent, ModelRequested
from wieldy.core.outcome import Done, Text, ToolResult
from wieldy.engine.workspace_services import open_workspace
from wieldy.tools.agent import agent
from wieldy.tools.architect import architect

ON = {"features": {"architect": True}}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.txt").write_text("alpha\n")
    return tmp_path


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["Agent", "Architect"])
async def test_without_a_model_it_is_not_offered_and_a_call_says_why(place, name):
    async with Toolbox(place, settings=ON) as box:
        (row,) = [row for row in await box.offer() if row.tool.name == name]
        result = await box.call(name, prompt="do it")
    assert not row.offered
    assert "it needs a model" in row.reason
    assert result.is_error
    assert "it needs a model" in result.text


@pytest.mark.asyncio
async def test_architect_is_off_unless_switched_on(place):
    async with Toolbox(place, settings={}) as box:
        (row,) = [row for row in await box.offer() if row.tool.name == "Architect"]
    assert "features.architect" in row.reason


@pytest.mark.asyncio
async def test_architect_reads_changes_nothing_and_returns_the_plan(place):
    analyst = Script().calls("Read", file_path="a.txt").calls("Write", file_path="b.txt", content="x").says("1. do it")
    model = Script().calls("Architect", prompt="a plan", context="it is old").says("done").sends("architect", analyst)
    async with Session(place, model=model, settings=ON, mode="bypassPermissions") as session:
        await session.ask("go")
    assert not (place / "b.txt").exists()
    assert {tool.name for tool in analyst.requests[0].tools} == {"Glob", "Grep", "LS", "NotebookRead", "Read", "Think"}
    asked = analyst.requests[0].messages[0].content[0]["text"]
    assert asked == "a plan\n\nWhat is known already:\nit is old"
    assert model.requests[1].messages[-1].content[0]["content"][0]["text"].startswith("1. do it")


@pytest.mark.asyncio
async def test_architect_is_no_kind_that_agent_could_send(place):
    model = Script().calls("Agent", prompt="p", agent_type="architect").says("done")
    async with Session(place, model=model, settings=ON) as session:
        await session.ask("go")
    assert "no agent `architect`" in model.requests[1].messages[-1].content[0]["content"][0]["text"]


def test_effects_follow_the_kind(place):
    workspace = open_workspace(place, session_dir=place / "s")
    for input, expected in (
        ({"prompt": "p", "agent_type": "explore"}, (Delegates(contained=True), USES_FILES)),
        ({"prompt": "p", "agent_type": "general"}, (Delegates(),)),
        ({"prompt": "p", "agent_type": "general", "run_in_background": True}, (Delegates(contained=True),)),
        ({"agent_id": "agent_1", "agent_type": "general"}, NO_EFFECTS),
        ({"agent_id": "agent_1", "agent_type": "general", "prompt": "p"}, (Delegates(),)),
        ({"prompt": "p", "agent_type": "general", "isolation": "worktree"}, (Delegates(contained=True), USES_FILES)),
    ):
        assert agent.effects(input, workspace) == expected, input
    assert architect.effects({"prompt": "p"}, workspace) == NO_EFFECTS
    assert agent.normalize({"prompt": "p"}, workspace) == {"prompt": "p", "agent_type": "general"}


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("input", "problem"),
    [
        ({"agent_id": "ID", "prompt": "more", "isolation": "worktree"}, "`isolation` is for a new agent"),
        ({"agent_id": "ID", "isolation": "worktree"}, "`isolation` is for a new agent"),
        ({"agent_id": "ID", "tools": ["Read"]}, "`tools` needs a `prompt`"),
        ({"agent_id": "ID", "run_in_background": True}, "`run_in_background` needs a `prompt`"),
        ({"agent_id": "ID", "stop": True, "run_in_background": True}, "`run_in_background` needs a `prompt`"),
        ({"agent_id": "ID", "agent_type": "general"}, "ID is a `explore` agent"),
        ({"agent_id": "ID", "prompt": "more", "agent_type": "general"}, "ID is a `explore` agent"),
        ({"agent_id": "ID", "prompt": "more", "stop": True}, "cannot be stopped and continued at once"),
        ({"prompt": "a task", "stop": True}, "`stop` needs `agent_id`"),
    ],
)
async def test_an_argument_that_could_not_be_heeded_is_refused(place, input, problem):
    model = Script().calls("Agent", prompt="first", agent_type="explore").says("done")
    model.sends(None, Script().says("x"))
    async with Session(place, model=model, settings={}) as session:
        await session.ask("go")
        (started,) = session.box.workspace.services.subagent_registry.all()
        model.calls("Agent", **{key: started.id if value == "ID" else value for key, value in input.items()})
        model.says("done")
        await session.ask("again")
    result = model.requests[-1].messages[-1].content[0]
    assert result["is_error"]
    assert problem.replace("ID", started.id) in result["content"][0]["text"]


@pytest.mark.asyncio
@pytest.mark.parametrize("resumed", [False, True])
async def test_an_agent_that_goes_on_keeps_the_tools_it_was_narrowed_to(place, resumed):
    first, second, third = Script().says("one"), Script().says("two"), Script().says("three")
    model = Script().calls("Agent", prompt="first", agent_type="explore", tools=["Read", "Grep"]).says("done")
    for prompt, part in (("first", first), ("more", second), ("less", third)):
        model.sends("explore", part, prompt=prompt)
    session = Session(place, model=model, settings={})
    await session.ask("go")
    (started,) = session.box.workspace.services.subagent_registry.all()
    if resumed:
        await session.aclose()
        session = Session(place, model=model, settings={}, resume=session.id)
    for prompt, narrower in (("more", {}), ("less", {"tools": ["Read"]})):
        model.calls("Agent", agent_id=started.id, agent_type="explore", prompt=prompt, **narrower).says("done")
        await session.ask(prompt)
    await session.aclose()
    offered = [{tool.name for tool in part.requests[0].tools} for part in (first, second, third)]
    assert offered == [{"Read", "Grep"}, {"Read", "Grep"}, {"Read"}]


@pytest.mark.asyncio
async def test_the_agents_of_one_answer_run_side_by_side(place):
    async def most_at_once(kind: str) -> int:
        model = Script()
        for number in range(3):
            model.calls("Agent", prompt=f"p{number}", agent_type=kind)
            agent = Script([[{"pause": 0.05}, {"text": "x"}]])
            model.sends(kind, agent, prompt=f"p{number}")
        at_work: set[str] = set()
        most = 0
        async with Session(place, model=model.says("done"), settings={}) as session:
            async for event in session.run("go"):
                if isinstance(event, AgentEvent):
                    if isinstance(event.event, ModelRequested):
                        at_work.add(event.agent_id)
                    elif event.event.kind == "model.answered":
                        at_work.discard(event.agent_id)
                    most = max(most, len(at_work))
        return most

    assert await most_at_once("explore") == 3
    assert await most_at_once("general") == 3


def test_a_person_sees_who_was_sent_to_do_what_and_what_it_came_to():
    assert (
        agent.show_use({"description": "find it", "agent_type": "explore", "prompt": "…"}) == "Agent(explore: find it)"
    )
    assert agent.show_use({"agent_id": "agent_1"}) == "Agent(agent_1: wait)"
    assert agent.show_use({"agent_id": "agent_1", "stop": True}) == "Agent(agent_1: stop)"
    assert agent.show_use({"agent_id": "agent_1", "prompt": "more"}) == "Agent(agent_1: go on)"
    text = "one\n\ntwo\nthree\nfour\nfive\n\n[explore agent agent_1: 2 turns]"
    result = ToolResult("1", "Agent", (Text(text),), None, False, Done((Text(text),)))
    assert agent.show_result(result).splitlines() == [
        "one", "two", "three", "four", "[explore agent agent_1: 2 turns]",
    ]  # fmt: skip
    assert architect.show_use({"prompt": "a  plan\nfor it"}) == "Architect(a plan for it)"


@pytest.mark.asyncio
async def test_an_analyst_can_be_gone_on_with_and_stays_what_it_was(place):
    analyst, again = Script().says("the plan"), Script().says("the rest")
    model = Script().calls("Architect", prompt="a plan").says("done")
    model.sends("architect", again, prompt="more").sends("architect", analyst)
    async with Session(place, model=model, settings=ON, mode="bypassPermissions") as session:
        await session.ask("go")
        said = session.messages[2]["content"][0]["content"][0]["text"]
        agent_id = "agent_" + said.split("agent_")[1][:8]
        model.calls("Agent", agent_id=agent_id, prompt="more").says("done")
        await session.ask("go on")
    assert model.requests[-1].messages[-1].content[0]["content"][0]["text"].startswith("the rest")
    assert {tool.name for tool in again.requests[0].tools} == {tool.name for tool in analyst.requests[0].tools}


@pytest.mark.asyncio
async def test_agents_of_one_answer_work_side_by_side_and_their_clashing_calls_take_turns(place):
    both = asyncio.Barrier(2)
    running: list[str] = []
    overlaps: list[list[str]] = []

    @tool(read_only=True)
    async def meet() -> str:
        """Wait for the other agent."""
        await asyncio.wait_for(both.wait(), 10)
        return "met"

    @tool(needs_permission=False)
    async def alone(name: str) -> str:
        """Do something unknown."""
        running.append(name)
        overlaps.append(list(running))
        await asyncio.sleep(0.02)
        running.remove(name)
        return name

    agents = [Script().calls("meet") for _ in range(2)]
    for number, script in enumerate(agents):
        script.then().calls("alone", name=f"{number}").then().calls("alone", name=f"{number} again").says(
            f"done {number}"
        )
    model = Script().calls("Agent", prompt="first").calls("Agent", prompt="second").says("done")
    model.sends("general", agents[0], prompt="first").sends("general", agents[1], prompt="second")
    async with Session(place, model=model, settings={}, mode="bypassPermissions", tools=[meet, alone]) as session:
        await session.ask("go")
    texts = [block["content"][0]["text"] for block in model.requests[1].messages[-1].content]
    assert [text.splitlines()[0] for text in texts] == ["done 0", "done 1"]
    assert [len(names) for names in overlaps] == [1] * 4
