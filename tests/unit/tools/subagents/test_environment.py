"""Subagents and the rest of the house: models, scripts, recordings, shells, screens, and what is loaded when."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.tools.subagents.conftest import told

from wieldy import Script, Session, Toolbox
from wieldy.agent.models import SubagentModels
from wieldy.core.errors import SessionError
from wieldy.core.events import (
    AgentEvent,
    AnyEvent,
    Event,
    ModelAnswered,
    Notice,
    ToolFailed,
    ToolStarted,
    ToolSucceeded,
)
from wieldy.core.outcome import Done, Refused, Text, ToolResult
from wieldy.core.provider import Usage
from wieldy.faces.headless.stream_json import StreamJsonWriter
from wieldy.faces.terminal.text import row_text
from wieldy.faces.terminal.view_model import ViewModel, rows
from wieldy.models.catalog import MODEL_ALIASES
from wieldy.testing import record
from wieldy.tools.subagents import AgentDefinition

CLAUDE = f"anthropic/{MODEL_ALIASES['sonnet']}"


def kind(model: str | None, origin: Any = "user") -> AgentDefinition:
    return AgentDefinition("kind", "d", "p", origin, model=model)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("own", "asked", "origin", "expected"),
    [
        (CLAUDE, None, "user", None),
        (CLAUDE, "haiku", "project", MODEL_ALIASES["haiku"]),
        (CLAUDE, "sonnet", "project", None),
        (CLAUDE, "claude-opus-4-1", "project", "claude-opus-4-1"),
        (CLAUDE, "openai/gpt-5", "user", "gpt-5"),
        (CLAUDE, "openai/gpt-5", "project", None),
        (CLAUDE, "script:/tmp/x.json", "project", None),
        ("openai/gpt-5", "haiku", "user", None),
        ("openai/gpt-5", "gpt-5-mini", "user", "gpt-5-mini"),
        (None, "openai/gpt-5", "user", None),
    ],
)
async def test_a_file_chooses_among_the_models_it_may_choose_from(project, monkeypatch, own, asked, origin, expected):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    async with Toolbox(project, settings={}) as box:
        found = SubagentModels((own, None), box).pick(kind(asked, origin))
        assert (found.model if found is not None else None) == expected
        if found is not None:
            await found.aclose()


@pytest.mark.asyncio
async def test_a_model_that_cannot_be_had_is_told_of_and_the_sessions_own_is_used(project, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    heard: list[Event] = []
    async with Toolbox(project, settings={}) as box:
        box.subscribe(heard.append)
        assert SubagentModels((CLAUDE, None), box).pick(kind("openai/gpt-5")) is None
    (notice,) = heard
    assert isinstance(notice, Notice)
    assert "asks for the model openai/gpt-5, which is not available: no key for openai" in notice.text


def test_a_script_file_has_parts_for_agents_and_says_what_is_wrong_with_them(tmp_path):
    path = tmp_path / "s.json"
    parts = [{"type": "explore", "prompt": "b", "turns": [[{"text": "x"}]]}, {"turns": [[{"text": "any"}]]}]
    path.write_text(json.dumps({"turns": [], "agents": parts}))
    script = Script.load(path)
    assert script.delegated("explore", "abc").turns == [[{"text": "x"}]]
    assert script.delegated("explore", "ac").turns == [[{"text": "any"}]]
    assert script.delegated("general", "abc").turns == [[{"text": "any"}]]
    for wrong in ([{"type": "explore"}], [{"turns": [[{"nothing": 1}]]}], ["x"], [{"turns": 5}]):
        path.write_text(json.dumps({"turns": [], "agents": wrong}))
        with pytest.raises(SessionError, match="is not a script"):
            Script.load(path)


@pytest.mark.asyncio
async def test_a_recorded_session_happens_again_with_its_agents(opened, project):
    inner = Script().calls("LS").says("three files")
    outer = Script().calls("Agent", prompt="look around", agent_type="explore").says("they say three")
    model = Script().calls("Agent", prompt="have somebody look around").says("done")
    model.sends("explore", inner).sends("general", outer)
    async with opened(model) as first:
        await first.ask("go")
    path = project.parent / "again.json"
    path.write_text(json.dumps(record(first.box.workspace.session_dir)))
    again = Script.load(path)
    async with opened(again) as second:
        assert await second.ask("go") == "done"
    assert told(again)[0].startswith("they say three")


@pytest.mark.asyncio
async def test_a_background_shell_of_an_agent_is_the_sessions_and_goes_on(opened):
    agent = Script().calls("Bash", command="echo begun; sleep 30", run_in_background=True).says("started")
    model = Script().calls("Agent", prompt="p").then().calls("BashOutput", shell_id="bash_1", wait=5).then()
    model.calls("KillShell", shell_id="bash_1").says("done").sends("general", agent)
    async with opened(model, mode="bypassPermissions") as session:
        await session.ask("go")
    assert "begun" in told(model, 2)[0]
    assert "were ended" in told(model)[0]


def result(call_id: str, text: str, outcome: Any = None) -> ToolResult:
    return ToolResult(call_id, "Read", (Text(text),), None, outcome is not None, outcome or Done((Text(text),)))


def answered(*ids: str) -> ModelAnswered:
    calls = tuple({"type": "tool_use", "id": id, "name": "Agent", "input": {}} for id in ids)
    return ModelAnswered(content=calls, stop_reason="tool_use", usage=Usage(), seconds=0)


def inside(call_id: str, agent_id: str, event: AnyEvent) -> AgentEvent:
    return AgentEvent(call_id=call_id, agent_id=agent_id, agent_type="explore", event=event)


@pytest.mark.asyncio
async def test_lines_of_agents_follow_the_message_that_sent_them_at_any_depth(opened):
    written: list[dict[str, Any]] = []
    async with opened(Script()) as session:
        writer = StreamJsonWriter(session, lambda line: written.append(json.loads(line)))
        ended = ToolSucceeded(call_id="c2", name="Read", result=result("c2", "x"), seconds=0)
        writer.write_event(inside("b1", "grandchild", answered("c2")))
        writer.write_event(inside("b1", "grandchild", ended))
        writer.write_event(inside("a1", "child", answered("b1")))
        assert written == [], "the message that sends the first is still being written"
        writer.write_event(answered("a1"))
    assert [(line["type"], line["parent_tool_use_id"]) for line in written] == [
        ("assistant", None), ("assistant", "a1"), ("assistant", "b1"), ("user", "b1"),
    ]  # fmt: skip


def test_a_terminal_shows_the_tools_of_an_agent_and_what_was_denied_to_it():
    view = ViewModel(lambda name: None, "/project")
    view.running = True
    view.apply(ToolStarted(call_id="a", name="Agent", input={"agent_type": "explore", "description": "look"}))
    view.apply(inside("a", "1", ToolStarted(call_id="b", name="Read", input={"file_path": "/project/x.py"})))
    live = [row_text(row) for row in view.live_rows(80, 0.0, 20)]
    assert live == ["● Agent explore: look", "  ↳ explore · 1 call · Read x.py"]
    refused = ToolFailed(
        call_id="b", name="Read", result=result("b", "not so", Refused("permission", "not so")), seconds=0
    )
    view.apply(inside("a", "1", refused))
    assert [row_text(row) for row in rows(view.blocks[-1], 80)] == ["  ↳ explore: ⊘ Read: not so"]
    count = len(view.blocks)
    view.apply(inside("a", "1", answered()))
    assert len(view.blocks) == count


@pytest.mark.asyncio
async def test_the_question_at_a_terminal_names_the_agent(opened, capsys):
    from wieldy.faces.terminal.calls import CallFormatter
    from wieldy.faces.terminal.questions import ask_permission

    async def no(prompt: str) -> str:
        return "n" if prompt.strip() == ">" else ""

    agent = Script().calls("Write", file_path="new.txt", content="x").says("x")
    model = Script().calls("Agent", prompt="p").says("done").sends("general", agent)
    names = CallFormatter(lambda name: None, "/")
    async with opened(model, ask=lambda question: ask_permission(question, no, names)) as session:
        await session.ask("go")
    assert "\nThe general agent agent_" in capsys.readouterr().err


def test_nothing_of_sending_is_loaded_before_an_agent_is_sent(tmp_path: Path):
    code = (
        "import asyncio, sys\nfrom wieldy import Session\nfrom wieldy.testing import Script\n"
        "async def main():\n    async with Session('.', model=Script().calls('LS').says('x'), settings={}) as session:\n"
        "        await session.ask('go')\nasyncio.run(main())\n"
        "print([name for name in sys.modules if 'delegate' in name])"
    )
    env = {"HOME": str(tmp_path), "WIELDY_HOME": str(tmp_path / "state"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=env, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.asyncio
async def test_an_agent_of_a_session_without_a_transcript_leaves_none_and_can_be_gone_on_with(project, home):
    agent = Script().says("first")
    again = Script().says("second")
    model = Script().calls("Agent", prompt="one").sends("general", again, prompt="two").sends("general", agent)
    async with Session(project, model=model, settings={}, persist=False) as session:
        model.says("done")
        await session.ask("go")
        agent_id = session.messages[2]["content"][0]["content"][0]["text"].split("agent_")[1][:8]
        model.calls("Agent", prompt="two", agent_id=f"agent_{agent_id}").says("done")
        await session.ask("more")
    assert told(model)[0].startswith("second")
    assert not list(home.rglob("transcript.jsonl"))


@pytest.mark.asyncio
async def test_before_the_first_prompt_a_call_of_agent_says_what_to_do(opened):
    async with opened(Script()) as session:
        result = await session.box.call("Agent", description="look", prompt="look", agent_type="general")
        assert result.is_error
        assert "Send a prompt first" in result.text
