"""Kinds of subagent from files: what is read, what is refused, and whose word counts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.unit.tools.subagents.conftest import agent_file

from wieldy.core.events import Event, Notice
from wieldy.core.workspace import Workspace
from wieldy.tools.agent import reads_only
from wieldy.tools.skills import FrontMatterError
from wieldy.tools.subagents import (
    ARCHITECT,
    BUILT_IN,
    MAX_LISTING_CHARS,
    AgentDefinition,
    AgentTypes,
    parse_definition,
)


def read(head: str, body: str = "You work.") -> AgentDefinition:
    return parse_definition(f"---\nname: worker\ndescription: works\n{head}\n---\n{body}", "/x/worker.md", "project")


@pytest.fixture
def workspace(project: Path) -> Workspace:
    told: list[Event] = []
    workspace = Workspace(project, session_dir=project / ".s", emit=told.append)
    workspace.told = told  # type: ignore[attr-defined]
    return workspace


@pytest.mark.parametrize(
    ("head", "meant"),
    [
        ("disalowedTools: Bash", "disallowedTools"),
        ("disallowed-tools: Bash", "disallowedTools"),
        ("allowed-tools: Read", "tools"),
        ("Tools: Read", "tools"),
        ("permission_mode: plan", "permissionMode"),
        ("maxturns: 3", "maxTurns"),
        ("isolate: worktree", "isolation"),
    ],
)
def test_a_restriction_with_a_misspelled_name_is_an_error(head: str, meant: str) -> None:
    with pytest.raises(FrontMatterError, match=f"did you mean `{meant}`"):
        read(head)


def test_every_field_is_read() -> None:
    found = read(
        "tools: Read, Grep,Task\ndisallowedTools: [Bash, mcp__*]\nmodel: haiku\npermissionMode: plan\nmaxTurns: 7\n"
        "background: true\ncolor: red"
    )
    assert found.tools == ("Read", "Grep", "Agent")
    assert found.disallowed_tools == ("Bash", "mcp__*")
    assert (found.model, found.mode, found.max_turns, found.background) == ("haiku", "plan", 7, True)
    assert found.prompt == "You work."


@pytest.mark.parametrize("head", ["", "tools: '*'", "model: inherit\npermissionMode: auto"])
def test_what_is_not_said_is_the_parents(head: str) -> None:
    found = read(head)
    assert (found.tools, found.model, found.mode, found.max_turns) == (None, None, None, None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("no head at all", "`name` is missing"),
        ("---\nname: a b\ndescription: d\n---\nx", "no name"),
        ("---\nname: a\n---\nx", "`description` is missing"),
        ("---\nname: a\ndescription: d\n---\n \n", "no text below"),
        ("---\nname: a\ndescription: d\npermissionMode: yolo\n---\nx", "`permissionMode` must be one of"),
        ("---\nname: a\ndescription: d\nmaxTurns: many\n---\nx", "`maxTurns` must be"),
        ("---\nname: a\ndescription: d\npermissionMode: [plan]\n---\nx", "`permissionMode` must be"),
        ("---\nname: a\ndescription: d\nisolation: {a: worktree}\n---\nx", "`isolation` must be"),
        ("---\nname: a\ndescription: d\nmaxTurns: 0\n---\nx", "`maxTurns` must be"),
        ("---\nname: a\ndescription: d\ntools: Bash(git log:*)\n---\nx", "names of tools, not `Bash(git log:*)`"),
        ("---\nname: a\ndescription: d\nx", "never closed"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(text: str, why: str) -> None:
    with pytest.raises(FrontMatterError) as caught:
        parse_definition(text, "/x/a.md", "user")
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("tools: Read, Grep", True),
        ("tools: Read, Bash", False),
        ("tools: Read, mcp__*", False),
        ("permissionMode: plan", True),
        ("", False),
    ],
)
def test_one_that_can_change_nothing_is_known_by_its_tools_or_mode(head: str, expected: bool) -> None:
    assert reads_only(read(head)) is expected


def test_the_built_in_ones_are_what_they_say() -> None:
    assert list(BUILT_IN) == ["explore", "general"]
    assert reads_only(BUILT_IN["explore"])
    assert reads_only(ARCHITECT)
    assert not reads_only(BUILT_IN["general"])


def test_the_projects_word_counts_before_the_users_and_both_before_a_built_in(workspace, home, project) -> None:
    person, state = home / "person", home / "state"
    agent_file(person, "both", body="claude's user", place=".claude/agents")
    agent_file(state, "both", body="ours, user", place="agents")
    assert AgentTypes(workspace).refresh()["both"].prompt == "ours, user"
    agent_file(project, "both", body="claude's project", place=".claude/agents")
    assert AgentTypes(workspace).refresh()["both"].prompt == "claude's project"
    agent_file(project, "both", body="ours, project")
    found = AgentTypes(workspace).refresh()["both"]
    assert (found.prompt, found.origin) == ("ours, project", "project")
    agent_file(project, "explore", body="mine")
    assert AgentTypes(workspace).refresh()["explore"].prompt == "mine"


def test_a_broken_file_is_told_of_once_and_harms_no_other(workspace, project) -> None:
    agent_file(project, "good")
    bad = agent_file(project, "bad", head="permissionMode: yolo\n")
    (project / ".wieldy" / "agents" / "binary.md").write_bytes(b"\xff\xfe\x00")
    (project / ".wieldy" / "agents" / "notes.txt").write_text("not one")
    types = AgentTypes(workspace)
    assert set(types.refresh()) == {"explore", "general", "good"}
    for _ in range(2):
        types.report_problems()
    texts = [event.text for event in workspace.told if isinstance(event, Notice)]
    assert len(texts) == 2
    assert any(text.startswith(f"An agent is left out: {bad}: line 2:") for text in texts)
    assert all("\n" not in text for text in texts)


def test_a_link_out_of_the_project_is_not_followed(workspace, project, home) -> None:
    outside = agent_file(home / "elsewhere", "spy")
    folder = project / ".wieldy" / "agents"
    folder.mkdir(parents=True)
    (folder / "spy.md").symlink_to(outside)
    assert "spy" not in AgentTypes(workspace).refresh()


def test_however_many_there_are_the_prompt_stays_short(workspace, project) -> None:
    for number in range(100):
        agent_file(project, f"agent{number}", head=f"x: {'y' * 10}\n")
        path = project / ".wieldy" / "agents" / f"agent{number}.md"
        path.write_text(path.read_text().replace("Does", "Does very much " * 40))
    types = AgentTypes(workspace)
    assert len(types.refresh()) == 102
    assert len(types.prompt_section()) < MAX_LISTING_CHARS + 200
    assert types.prompt_section().count("- agent") == 100


@pytest.mark.asyncio
async def test_another_look_sees_kinds_come_and_go(workspace: Workspace) -> None:
    types = AgentTypes(workspace)
    await types.refresh_in_thread()
    assert (types.prompt_section(), types.definitions.get("mine")) == ("", None)
    folder = Path(workspace.root, ".claude/agents")
    folder.mkdir(parents=True)
    (folder / "mine.md").write_text("---\nname: mine\ndescription: does things\n---\nDo it.\n")
    await types.refresh_in_thread()
    assert types.definitions["mine"].prompt == "Do it."
    assert "- mine: does things" in types.prompt_section()
    shutil.rmtree(folder)
    await types.refresh_in_thread()
    assert types.prompt_section() == ""
    assert "general" in types.definitions
    assert "mine" not in types.definitions
