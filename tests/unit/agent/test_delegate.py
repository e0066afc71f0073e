"""Subagents that a program defines, and tasks that it delegates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wieldy import AgentType, Script, Session, SessionError

pytestmark = pytest.mark.asyncio


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    root = tmp_path / "project"
    root.mkdir()
    (root / "a.txt").write_text("hello\n")
    return root


READ = {"call": "Read", "input": {"file_path": "a.txt"}}


async def test_a_task_is_delegated_beside_the_conversation(project):
    agent = Script([[READ], [{"text": "It says hello."}]])
    model = Script([[{"text": "fine"}]], agents=[("explore", "", agent)])
    async with Session(project, model=model, settings={}) as session:
        assert await session.delegate("explore", "What does a.txt say?") == "It says hello."
        assert session.messages == []
        assert await session.ask("hi") == "fine"
        assert len(session.messages) == 2
    assert "What does a.txt say?" in str(agent.requests[0].messages[0].content)


async def test_an_agent_of_the_program_has_its_prompt_and_its_tools(project):
    agent = Script([[READ, {"call": "Bash", "input": {"command": "ls"}}], [{"text": "Looks good."}]])
    call = {"call": "Agent", "input": {"agent_type": "reviewer", "prompt": "review", "description": "x"}}
    model = Script([[call], [{"text": "done"}]], agents=[("reviewer", "", agent), ("reviewer", "", agent)])
    reviewer = AgentType("reviewer", "Review like a pirate.\nSay arr.", tools=["Read"])
    async with Session(project, model=model, settings={}, agents=[reviewer]) as session:
        await session.ask("go")
        assert "reviewer: Review like a pirate." in "\n".join(session.system_prompt)
        assert "Looks good." in str(session.messages[2])
    request = agent.requests[0]
    assert request.system[0].startswith("Review like a pirate.\nSay arr.")
    assert [tool.name for tool in request.tools] == ["Read"]
    assert "No such tool" in str(agent.requests[1].messages[-1].content)


async def test_an_agent_of_the_program_wins_over_a_file_of_the_same_name(project):
    folder = project / ".wieldy" / "agents"
    folder.mkdir(parents=True)
    (folder / "reviewer.md").write_text("---\nname: reviewer\ndescription: From a file.\n---\nFrom a file.\n")
    agent = Script([[{"text": "ok"}]])
    model = Script([], agents=[("reviewer", "", agent)])
    async with Session(project, model=model, settings={}, agents=[AgentType("reviewer", "From code.")]) as session:
        await session.delegate("reviewer", "go")
    assert agent.requests[0].system[0].startswith("From code.")


async def test_what_cannot_be_delegated_is_an_error(project):
    async with Session(project, model=Script([]), settings={}) as session:
        with pytest.raises(SessionError, match="There is no agent `exploer`"):
            await session.delegate("exploer", "look")
        with pytest.raises(SessionError, match="prompt"):
            await session.delegate("explore", " ")
    async with Session(project, model=Script([]), settings={}, builtins=("Read",)) as session:
        with pytest.raises(SessionError, match="No such tool"):
            await session.delegate("explore", "look")


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (AgentType("", "x"), "no name"),
        (AgentType("two words", "x"), "no name"),
        (AgentType("reviewer", " "), "no prompt"),
        (AgentType("reviewer", "x", tools=["Raed"]), "did you mean `Read`"),
        (AgentType("reviewer", "x", tools="Read"), "list of names"),
        (AgentType("reviewer", "x", mode="plann"), "did you mean `plan`"),
        (AgentType("reviewer", "x", max_turns=0), "max_turns"),
        ("reviewer", "AgentType"),
    ],
)
async def test_an_agent_that_cannot_be_used_is_refused_where_it_is_given(project, agent: Any, words: str):
    with pytest.raises((TypeError, ValueError), match=words):
        Session(project, model=Script([]), settings={}, agents=[agent])


async def test_the_cost_and_tokens_of_a_delegated_task_count(project):
    usage = {"usage": {"input_tokens": 1_000, "output_tokens": 10}}
    agent = Script([[{"text": "seen"}, usage]])
    async with Session(project, model=Script([], agents=[("explore", "", agent)]), settings={}) as session:
        await session.delegate("explore", "look")
        assert session.conversation.usage["input_tokens"] == 1_000
