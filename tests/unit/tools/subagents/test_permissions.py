"""A subagent is held to everything that holds for its parent, and asks in its own name."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.tools.subagents.conftest import agent_file, told

from wieldy import Script
from wieldy.core.decision import Answer, Question
from wieldy.policy.hooks.config import Hook, python_hook

WRITE = {"call": "Write", "input": {"file_path": "new.txt", "content": "x"}}


def sending(agent: Script, kind: str = "general") -> Script:
    return Script().calls("Agent", prompt="do it", agent_type=kind).says("done").sends(kind, agent)


@pytest.mark.asyncio
async def test_where_nobody_can_answer_a_question_is_a_denial_that_the_report_lists(opened, project):
    model = sending(Script([[WRITE], [{"text": "I could not"}]]))
    async with opened(model) as session:
        await session.ask("go")
    text = told(model)[0]
    assert text.startswith("I could not")
    assert "It was not permitted:\n- Permission denied for Write" in text
    assert not (project / "new.txt").exists()


@pytest.mark.asyncio
async def test_the_person_is_asked_in_the_agents_name_and_their_answer_counts(opened, project):
    asked: list[Question] = []

    def ask(question: Question) -> bool:
        asked.append(question)
        return True

    async with opened(sending(Script([[WRITE], [{"text": "x"}]])), ask=ask) as session:
        await session.ask("go")
    (question,) = asked
    assert question.plan.tool.name == "Write"
    assert question.agent.startswith("general agent agent_")
    assert (project / "new.txt").exists()


@pytest.mark.asyncio
async def test_the_innermost_agent_is_named(opened):
    asked: list[str] = []
    inner = Script([[WRITE], [{"text": "x"}]])
    outer = Script().calls("Agent", prompt="second").says("y")
    model = Script().calls("Agent", prompt="first").says("done")
    model.sends("general", inner, prompt="second").sends("general", outer, prompt="first")

    def ask(question: Question) -> str:
        asked.append(question.agent)
        return "no"

    async with opened(model, ask=ask) as session:
        await session.ask("go")
        registry = [sent.id for sent in _roster(session)]
    assert asked == [f"general agent {registry[1]}"]
    assert "It was not permitted" in told(model)[0], "a denial further down is told all the way up"


def _roster(session: Any) -> Any:

    return session.box.workspace.services.subagent_registry.all()


@pytest.mark.asyncio
async def test_what_the_person_grants_always_holds_for_the_rest_of_it(opened, project):
    asked: list[str] = []

    def ask(question: Question) -> Answer:
        asked.append(question.plan.tool.name)
        return Answer(True, remember=question.decision.suggestions)

    again = {"call": "Bash", "input": {"command": "touch made"}}
    agent = Script([[again], [again], [{"text": "x"}]])
    async with opened(sending(agent), ask=ask, load_settings=False) as session:
        await session.ask("go")
    assert asked == ["Bash"]


@pytest.mark.asyncio
@pytest.mark.parametrize("mode", ["bypassPermissions", "acceptEdits"])
async def test_a_file_that_asks_for_a_wider_mode_gets_none(opened, project, mode):
    agent_file(project, "bold", f"permissionMode: {mode}\n")
    async with opened(sending(Script([[WRITE], [{"text": "x"}]]), "bold")) as session:
        await session.ask("go")
    assert not (project / "new.txt").exists()


@pytest.mark.asyncio
@pytest.mark.parametrize("mode", ["plan", "dontAsk", "default"])
async def test_a_file_that_asks_for_a_narrower_mode_gets_it(opened, project, mode):
    agent_file(project, "shy", f"permissionMode: {mode}\n")
    asked: list[str] = []

    def ask(question: Question) -> bool:
        asked.append(question.plan.tool.name)
        return False

    async with opened(sending(Script([[WRITE], [{"text": "x"}]]), "shy"), mode="bypassPermissions", ask=ask) as session:
        await session.ask("go")
    assert not (project / "new.txt").exists()
    assert asked == (["Write"] if mode == "default" else [])


@pytest.mark.asyncio
async def test_deny_rules_hold_in_every_mode_and_take_the_tool_away(opened, project):
    agent = Script([[WRITE, {"call": "Read", "input": {"file_path": "a.txt"}}], [{"text": "x"}]])
    rules = {"permissions": {"deny": ["Write", "Read(a.txt)"]}}
    async with opened(sending(agent), mode="bypassPermissions", settings=rules) as session:
        await session.ask("go")
    assert "Write" not in [tool.name for tool in agent.requests[0].tools]
    assert all("Permission denied" in text for text in told(agent))
    assert not (project / "new.txt").exists()


@pytest.mark.asyncio
async def test_in_plan_mode_exploring_goes_on_and_nothing_else(opened, project):
    explorer = Script().calls("Read", file_path="a.txt").says("alpha")
    model = Script().calls("Agent", prompt="p", agent_type="explore").calls("Agent", prompt="p").says("done")
    model.sends("explore", explorer).sends("general", Script([[WRITE], [{"text": "x"}]]))
    async with opened(model, mode="plan") as session:
        await session.ask("go")
    assert "Agent" in [tool.name for tool in model.requests[0].tools]
    explored, worked = told(model)
    assert explored.startswith("alpha")
    assert "plan mode changes nothing" in worked


@pytest.mark.asyncio
async def test_a_mode_that_is_changed_meanwhile_holds_at_once(opened, project):
    agent = Script([[{"call": "LS", "input": {}}], [WRITE], [{"text": "x"}]])
    async with opened(sending(agent), mode="bypassPermissions") as session:
        async for event in session.run("go"):
            if getattr(getattr(event, "event", None), "kind", "") == "tool.requested":
                session.box.policy.mode = "plan"
    assert not (project / "new.txt").exists()


@pytest.mark.asyncio
async def test_commands_are_judged_from_where_the_agent_stands(opened, project):
    (project / "sub").mkdir()
    commands = ["cd sub", "touch ../b.txt", "touch c.txt"]
    agent = Script([[{"call": "Bash", "input": {"command": command}}] for command in commands])
    agent.turns.append([{"text": "x"}])
    settings = {"permissions": {"allow": ["Bash(touch:*)", "Bash(cd:*)"], "deny": ["Edit(/b.txt)"]}}
    async with opened(sending(agent), settings=settings, mode="acceptEdits") as session:
        await session.ask("go")
    assert "Permission denied" in told(agent, 2)[0]
    assert (project / "sub" / "c.txt").exists()


@pytest.mark.asyncio
async def test_rules_about_a_kind_are_about_sending_it(opened):
    model = Script().calls("Agent", prompt="p").calls("Agent", prompt="p", subagent_type="explore").says("done")
    model.sends("explore", Script().says("x"))
    async with opened(model, settings={"permissions": {"deny": ["Agent(general)"]}}) as session:
        await session.ask("go")
    general, explore = told(model)
    assert "Permission denied for Agent" in general
    assert explore.startswith("x")


class Told:
    def __init__(self, **answers: Any) -> None:
        self.moments: list[dict[str, Any]] = []
        self.answers = answers

    def hooks(self, *events: str) -> list[Hook]:
        return [python_hook(event, self.hear) for event in events]

    def hear(self, payload: dict[str, Any]) -> Any:
        self.moments.append(payload)
        answer = self.answers.get(payload["hook_event_name"])
        return answer(payload) if callable(answer) else answer


@pytest.mark.asyncio
async def test_hooks_hold_inside_and_are_told_who_it_is(opened, project):
    def refuse(payload: dict[str, Any]) -> Any:
        return {"decision": "block", "reason": "not so"} if payload["tool_name"] == "Write" else None

    hooks = Told(PreToolUse=refuse)
    agent = Script([[WRITE], [{"text": "x"}]])
    async with opened(sending(agent), mode="bypassPermissions", hooks=hooks.hooks("PreToolUse")) as session:
        await session.ask("go")
    outer, inner = hooks.moments
    assert (outer["tool_name"], "agent_id" in outer) == ("Agent", False)
    assert (inner["tool_name"], inner["agent_type"], inner["session_id"]) == ("Write", "general", session.id)
    assert "not so" in told(agent)[0]
    assert not (project / "new.txt").exists()


@pytest.mark.asyncio
async def test_start_and_stop_of_an_agent_are_moments_of_their_own(opened):
    context = {"hookSpecificOutput": {"hookEventName": "SubagentStart", "additionalContext": "it is raining"}}
    hooks = Told(
        SubagentStart=context,
        SubagentStop=lambda told: None if told["stop_hook_active"] else {"decision": "block", "reason": "not yet"},
    )
    agent = Script([[{"text": "first"}], [{"text": "second"}]])
    model = sending(agent, "explore")
    events = ("SessionStart", "UserPromptSubmit", "Stop", "SubagentStart", "SubagentStop")
    async with opened(model, hooks=hooks.hooks(*events)) as session:
        await session.ask("go")
    names = [moment["hook_event_name"] for moment in hooks.moments]
    assert names == ["SessionStart", "UserPromptSubmit", "SubagentStart", "SubagentStop", "SubagentStop", "Stop"]
    assert told(agent, 0) == ["do it", "it is raining"]
    assert told(agent, 1)[0].endswith("not yet")
    assert told(model)[0].startswith("second")
    stop = hooks.moments[3]
    assert (stop["agent_type"], stop["last_assistant_message"]) == ("explore", "first")
    assert stop["agent_transcript_path"].endswith(f"agents/{stop['agent_id']}/transcript.jsonl")
    assert stop["transcript_path"] == str(session.box.workspace.session_dir / "transcript.jsonl")
