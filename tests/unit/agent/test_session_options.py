"""What a program can make of a session: its prompt, its instructions, its tools, its history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wieldy import Script, Session, Tool, Toolbox, ToolDefinitionError, tool

pytestmark = pytest.mark.asyncio


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    root = tmp_path / "work" / "project"
    root.mkdir(parents=True)
    (root / "AGENTS.md").write_text("The project says: tabs.\n")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "AGENTS.md").write_text("The user says: be kind.\n")
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "CLAUDE.md").write_text("The user also says: be quick.\n")
    return root


async def prompt_of(root: Path, **options: Any) -> str:
    model = Script([[{"text": "hello"}]])
    async with Session(root, model=model, **options) as session:
        await session.ask("hi")
    return "\n".join(model.requests[0].system)


async def test_a_system_prompt_replaces_ours_and_another_is_added(project):
    text = await prompt_of(project, system_prompt="You are a pirate.", append_system="Say arr.", settings={})
    assert text.startswith("You are a pirate.")
    assert "Say arr." in text
    assert "coding agent" not in text
    text = await prompt_of(project, append_system="Say arr.", settings={})
    assert "coding agent" in text
    assert "Say arr." in text


@pytest.mark.parametrize(
    ("options", "project_says", "user_says"),
    [
        ({}, True, True),
        ({"settings": {}}, True, False),
        ({"settings": {}, "load_settings": True}, True, True),
        ({"instructions": False}, False, False),
        ({"instructions": False, "settings": {}}, False, False),
    ],
)
async def test_instruction_files_can_be_left_out(project, options, project_says, user_says):
    text = await prompt_of(project, **options)
    assert ("The project says" in text) is project_says
    assert ("The user says" in text) is user_says
    assert ("The user also says" in text) is user_says


async def test_a_subagent_has_the_instructions_of_its_session(project):
    agent = Script([[{"text": "seen"}]])
    call = {"call": "Agent", "input": {"agent_type": "explore", "prompt": "look", "description": "x"}}
    model = Script([[call], [{"text": "x"}]], agents=[("explore", "", agent)])
    async with Session(project, model=model, instructions=False, settings={}) as session:
        await session.ask("go")
    for request in (*model.requests, *agent.requests):
        assert "The project says" not in "\n".join(request.system)
    assert agent.requests


async def test_built_in_tools_are_picked_by_name(project):
    async with Toolbox(project, settings={}, builtins=("Read", "Grep")) as box:
        assert sorted(box.catalog) == ["Grep", "Read"]
        assert "No such tool" in (await box.call("Bash", command="ls")).text
    model = Script([[{"text": "hello"}]])
    async with Session(project, model=model, settings={}, builtins=["Read"]) as session:
        await session.ask("hi")
        assert session.offered == ["Read"]


@pytest.mark.parametrize("names", [("Raed",), ["Read", "Nothing"], "Read", ("read",)])
async def test_a_wrong_name_of_a_built_in_tool_is_an_error(project, names):
    with pytest.raises(ValueError, match=r"Read|built-in"):
        Toolbox(project, settings={}, builtins=names)


async def test_a_tool_can_be_replaced(project):
    @tool(name="Read", reads="file_path")
    async def mine(file_path: str) -> str:
        """Read from somewhere else."""
        return f"mine: {Path(file_path).name}"

    limits = {"tools": {"Read": {"rateLimit": {"calls": 1, "seconds": 60}}}}
    async with Toolbox(project, settings=limits) as box:
        assert "The project says" in (await box.call("Read", file_path="AGENTS.md")).text
        box.replace(mine)
        assert (await box.call("Read", file_path="AGENTS.md")).text == "mine: AGENTS.md"
        assert (await box.call("Read", file_path="AGENTS.md")).is_error  # the limit of the settings still holds
        spec = next(each for each in await box.tools_for("anthropic") if each["name"] == "Read")
        assert spec["description"] == "Read from somewhere else."


async def test_only_a_tool_that_is_there_can_be_replaced(project):
    async with Toolbox(project, settings={}) as box:
        with pytest.raises(ToolDefinitionError, match="no tool `Raed` to replace; did you mean `Read`"):
            box.replace(Tool.from_schema("Raed", "Reads.", {"type": "object"}, lambda input: ""))
        with pytest.raises(ToolDefinitionError):
            box.replace(print)  # type: ignore[arg-type]


HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "I am Ada."},
    {"role": "assistant", "content": [{"type": "text", "text": "Hello Ada."}]},
]


async def test_a_session_can_start_from_a_history_and_be_resumed_with_it(project):
    model = Script([[{"text": "You are Ada."}]])
    async with Session(project, model=model, settings={}, messages=HISTORY) as session:
        assert session.messages[0]["content"] == [{"type": "text", "text": "I am Ada."}]
        assert await session.ask("Who am I?") == "You are Ada."
        assert [message.role for message in model.requests[0].messages] == ["user", "assistant", "user"]
    async with Session(project, model=Script([[{"text": "Still Ada."}]]), settings={}, resume=session.id) as resumed:
        assert len(resumed.messages) == 4
        assert await resumed.ask("And now?") == "Still Ada."


@pytest.mark.parametrize(
    "messages", [["hi"], [{"role": "system", "content": "x"}], [{"role": "user"}], [{"role": "user", "content": [3]}]]
)
async def test_what_is_no_message_is_an_error(project, messages):
    with pytest.raises(ValueError, match="is no message"):
        Session(project, model=Script([]), settings={}, messages=messages)


async def test_commands_see_the_environment_that_was_given(project):
    import os

    env = {"PATH": os.environ["PATH"], "HOME": str(project), "WORD": "given"}
    async with Toolbox(project, settings={}, env=env, mode="bypassPermissions") as box:
        result = await box.call("Bash", command="echo $WORD $WIELDY_HOME")
    assert result.text == "given"


async def test_a_system_prompt_of_your_own_is_all_that_the_model_is_told(project):
    model = Script([[{"text": "hi"}]])
    options: dict[str, Any] = {"settings": {}, "builtins": False, "instructions": False}
    async with Session(project, model=model, system_prompt="You sell tea.", **options) as session:
        await session.ask("hello")
    assert model.requests[0].system == ("You sell tea.",)
