"""`isolation: worktree`: a subagent works in a copy of the project, never in the project, and hands its changes over."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.needs import skip_untested
from tests.unit.faces.batch.repositories import git, make_repository
from tests.unit.tools.subagents.conftest import agent_file, told

from wieldy import AgentType, Script, Session
from wieldy.core.events import ToolEnded
from wieldy.core.workspace import Workspace
from wieldy.files.working_copies import (
    IsolationError,
    copies_folder,
    finish_working_tree,
    make_working_tree,
    remove_old_copies,
)
from wieldy.shell.sandbox.sandbox import choose_wrapper

pytestmark = pytest.mark.asyncio(loop_scope="function")


@pytest.fixture
def repository(project: Path) -> Path:
    git(project, "init", "-q")
    (project / ".gitignore").write_text("*.log\n")
    git(project, "add", "-A")
    git(project, "-c", "user.name=t", "-c", "user.email=t@e.org", "commit", "-qm", "first")
    agent_file(project, "worker", "isolation: worktree\n")
    return project


def write(path: str, content: str = "new\n") -> list[dict[str, Any]]:
    return [{"call": "Write", "input": {"file_path": path, "content": content}}]


def bash(command: str) -> list[dict[str, Any]]:
    return [{"call": "Bash", "input": {"command": command}}]


def sending(agent: Script, kind: str = "worker") -> Script:
    return Script().calls("Agent", prompt="do it", agent_type=kind).says("done").sends(kind, agent)


async def run(
    project: Path, agent: Script, kind: str = "worker", mode: str = "bypassPermissions", **options: Any
) -> tuple[str, dict[str, Any]]:
    """What the parent is told, and the data of the call."""
    model = sending(agent, kind)
    async with Session(project, model=model, settings=options.pop("settings", {}), mode=mode, **options) as session:
        events = [event async for event in session.run("go")]
    [end] = [event for event in events if isinstance(event, ToolEnded) and event.name == "Agent"]
    return told(model)[0], dict(end.result.data or {})


def copies() -> Path:
    return copies_folder(Workspace(".", session_dir="."))


def state_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".git/" not in str(path)
    }


async def test_its_changes_are_in_a_copy_and_a_patch_takes_them_over(repository):
    before = state_of(repository)
    agent = Script([write("sub/new.txt"), bash("echo more >> a.txt && rm b.txt && pwd"), [{"text": "I did it"}]])
    text, data = await run(repository, agent)
    assert state_of(repository) == before
    assert text.startswith("I did it")
    assert "Its changes to 3 files are NOT in your tree" in text
    patch = data["worktree"]["patch"]
    assert f"apply {patch}" in text
    assert data["worktree"]["files"] == 3
    copy = Path(data["worktree"]["path"])
    assert (copy / "sub" / "new.txt").read_text() == "new\n"
    subprocess.run(["git", "-C", repository, "apply", patch], check=True)
    assert (repository / "sub" / "new.txt").read_text() == "new\n"
    assert (repository / "a.txt").read_text() == "alpha\nmore\n"
    assert not (repository / "b.txt").exists()


async def test_an_unchanged_copy_is_removed_and_the_report_says_so(repository):
    text, data = await run(
        repository, Script([bash("cat a.txt; ls; git log --oneline; echo x > build.log"), [{"text": "ok"}]])
    )
    assert "changed nothing there" in text
    assert data["worktree"]["path"] is None
    assert os.listdir(copies()) == []


async def test_uncommitted_work_is_in_the_copy_and_the_patch_is_only_what_the_agent_did(repository):
    (repository / "a.txt").write_text("changed\n")
    (repository / "untracked ü.txt").write_text("mine\n")
    (repository / "b.txt").unlink()
    (repository / "secret.log").write_text("ignored\n")
    agent = Script([bash("cat a.txt 'untracked ü.txt'; ls"), write("c.txt"), [{"text": "ok"}]])
    text, data = await run(repository, agent)
    output = told(agent, 1)[0]
    assert "changed\nmine" in output
    assert "b.txt" not in output
    assert "secret.log" not in output
    assert "uncommitted files, without ignored files" in text
    patch = Path(data["worktree"]["patch"]).read_text()
    assert patch.count("diff --git") == 1
    assert "c.txt" in patch
    subprocess.run(["git", "-C", repository, "apply", data["worktree"]["patch"]], check=True)


@pytest.mark.parametrize(
    "step",
    [
        write("{live}/a.txt"),
        [{"call": "Edit", "input": {"file_path": "{live}/a.txt", "old_string": "alpha", "new_string": "x"}}],
        bash("echo x > {live}/a.txt"),
        bash("cd {live} && echo x > a.txt"),
        bash("cp b.txt {live}/a.txt"),
        bash("rm -rf {live}/b.txt"),
        bash("python3 -c \"open('{live}/a.txt', 'w')\""),
        bash("git -C {live} checkout -q -b other"),
        write("link/a.txt"),
    ],
)
async def test_the_original_is_out_of_reach_even_where_everything_is_allowed(repository, step):
    (repository / "link").symlink_to(repository)
    before, branch = state_of(repository), git(repository, "branch")
    step = [
        {**call, "input": {k: v.replace("{live}", str(repository)) for k, v in call["input"].items()}} for call in step
    ]
    agent = Script([step, [{"text": "could not"}]])
    text, _ = await run(repository, agent)
    assert "It was not permitted" in text, text
    assert "works in its copy" in text
    assert state_of(repository) == before
    assert git(repository, "branch") == branch


@pytest.mark.parametrize("sandbox", [False, True])
async def test_a_program_that_finds_the_original_by_itself_cannot_write_there(repository, sandbox):
    if choose_wrapper(None, "bubblewrap").mechanism != "bubblewrap":
        skip_untested("commands kept from the original: bubblewrap does not work")
    path = "".join(f"\\x{byte:02x}" for byte in os.fsencode(repository / "a.txt"))
    agent = Script([bash(f"printf '{path}' > where; echo x > \"$(cat where)\"; echo code $?"), [{"text": "tried"}]])
    _, data = await run(repository, agent, settings={"sandbox": {"enabled": sandbox}})
    assert (repository / "a.txt").read_text() == "alpha\n"
    # In a sandbox the temporary folder, in which this project is, is another one.
    assert "code 1" in told(agent)[0]
    assert data["worktree"]["files"] == 1


async def test_copies_of_a_session_with_a_state_of_its_own_are_there(repository, tmp_path):
    _, data = await run(repository, Script([write("x.txt"), [{"text": "ok"}]]), state_dir=tmp_path / "own")
    assert data["worktree"]["path"].startswith(f"{tmp_path}/own/copies/")


async def test_rules_hold_in_the_copy_and_in_the_original(repository):
    (repository / "keys.txt").write_text("secret\n")
    settings = {"permissions": {"deny": ["Read(keys.txt)", "Edit(a.txt)"]}}
    agent = Script(
        [
            [{"call": "Read", "input": {"file_path": "keys.txt"}}],
            [{"call": "Read", "input": {"file_path": str(repository / "keys.txt")}}],
            write("a.txt"),
            [{"text": "no"}],
        ]
    )
    text, data = await run(repository, agent, settings=settings)
    assert text.count("Permission denied") == 3
    assert "secret" not in "".join(told(agent, 1) + told(agent, 2))
    assert data["worktree"]["path"] is None


async def test_edits_in_the_copy_are_accepted_as_edits_in_the_project(repository):
    text, data = await run(repository, Script([write("n.txt"), [{"text": "ok"}]]), mode="acceptEdits")
    assert "It was not permitted" not in text
    assert data["worktree"]["files"] == 1


async def test_several_work_side_by_side_without_seeing_each_other(repository):
    async def scripted(name: str) -> Script:
        return Script([bash(f"echo {name} > own.txt; sleep 0.3; cat own.txt; ls"), [{"text": name}]])

    model = Script()
    calls = [{"call": "Agent", "input": {"prompt": f"task {name}", "agent_type": "worker"}} for name in "abc"]
    model = Script([calls, [{"text": "done"}]])
    agents = {name: await scripted(name) for name in "abc"}
    for name, agent in agents.items():
        model.sends("worker", agent, prompt=f"task {name}")
    async with Session(repository, model=model, settings={}, mode="bypassPermissions") as session:
        await session.ask("go")
    for name, agent in agents.items():
        output = told(agent)[0]
        assert output.startswith(f"{name}\n"), output
    assert not (repository / "own.txt").exists()
    assert len(os.listdir(copies())) == 3


async def test_it_goes_on_in_its_copy_and_undo_of_the_session_leaves_that_alone(repository):
    first = Script([write("one.txt"), [{"text": "first"}]])
    model = (
        Script().calls("Agent", prompt="first", agent_type="worker").says("x").sends("worker", first, prompt="first")
    )
    async with Session(repository, model=model, settings={}, mode="bypassPermissions") as session:
        await session.ask("go")
        handle = session.box.workspace.services.subagent_registry.all()[0]
        second = Script([bash("ls"), write("two.txt"), [{"text": "second"}]])
        model.calls("Agent", prompt="second", agent_id=handle.id).says("y").sends("worker", second, prompt="second")
        await session.ask("again")
    assert "one.txt" in told(second, 1)[0]
    assert "Its changes to 2 files" in told(model)[0]


async def test_a_type_given_in_code_and_a_file_of_claude_code_are_isolated_too(project):
    agent_file(project, "theirs", "isolation: worktree\n", place=".claude/agents")
    mine = AgentType("mine", "Work.", isolation="worktree")
    for kind in ("theirs", "mine"):
        _, data = await run(project, Script([write("x.txt"), [{"text": "ok"}]]), kind, agents=[mine])
        assert data["worktree"]["files"] == 1
    assert not (project / "x.txt").exists()


async def test_the_model_can_ask_for_a_copy_for_any_agent(project):
    agent = Script([write("x.txt"), [{"text": "ok"}]])
    model = Script().calls("Agent", prompt="do it", isolation="worktree").says("done").sends("general", agent)
    async with Session(project, model=model, settings={}, mode="bypassPermissions") as session:
        await session.ask("go")
    assert "NOT in your tree" in told(model)[0]
    assert not (project / "x.txt").exists()


async def test_an_agent_that_had_a_copy_never_goes_on_in_the_project(project):
    """Also where the session is another one, which knows the agent by its transcript only."""
    first = Script([write("one.txt"), [{"text": "first"}]])
    model = Script().calls("Agent", prompt="first", isolation="worktree").says("x").sends("general", first)
    options: dict[str, Any] = {"settings": {}, "mode": "bypassPermissions"}
    async with Session(project, model=model, **options) as session:
        await session.ask("go")
        id, agent = session.id, session.box.workspace.services.subagent_registry.all()[0].id
    second = Script([bash("ls; pwd"), write("two.txt"), [{"text": "second"}]])
    model = Script().calls("Agent", prompt="second", agent_id=agent).says("y").sends("general", second)
    async with Session(project, model=model, resume=id, **options) as session:
        await session.ask("again")
    assert "one.txt" in told(second, 1)[0], told(second, 1)
    assert "Its changes to 2 files" in told(model)[0]
    assert sorted(os.listdir(project)) == ["a.txt", "b.txt"]


async def test_an_agent_whose_question_waited_for_an_answer_goes_on_in_its_copy(project):
    agent = Script([write("one.txt"), bash("touch two.txt; ls")])
    model = Script().calls("Agent", prompt="go", isolation="worktree").says("x").sends("general", agent)
    async with Session(project, model=model, settings={}, mode="acceptEdits", ask="defer") as session:
        await session.ask("go")
        assert session.pending
        rest = Script([[{"text": "done"}]])
        model.agents.clear()
        model.sends("general", rest)
        await session.answer({question.id: True for question in session.pending})
    assert "one.txt\ntwo.txt" in told(rest)[0]
    assert "Its changes to 2 files" in told(model)[0]
    assert sorted(os.listdir(project)) == ["a.txt", "b.txt"]


async def test_only_one_goes_on_in_a_copy_at_a_time(repository):
    model = Script().calls("Agent", prompt="first", agent_type="worker").says("x")
    model.sends("worker", Script([write("one.txt"), [{"text": "first"}]]), prompt="first")
    model.sends("worker", Script([write("two.txt"), [{"text": "again"}]]), prompt="more")
    async with Session(repository, model=model, settings={}, mode="bypassPermissions") as session:
        await session.ask("go")
        (started,) = session.box.workspace.services.subagent_registry.all()
        more = {"agent_id": started.id, "agent_type": "worker", "prompt": "more"}
        model.calls("Agent", **more).calls("Agent", **more).says("done")
        await session.ask("go on")
    one, other = sorted(told(model), key=len)
    assert "is still at work" in one
    assert other.startswith("again")


async def test_one_too_many_leaves_no_copy(repository):
    model = Script().calls("Agent", prompt="1", agent_type="worker").calls("Agent", prompt="2", agent_type="worker")
    model.says("done").sends("worker", Script([write("one.txt"), [{"text": "I did it"}]]))
    settings = {"agents": {"maxRunning": 1}}
    async with Session(repository, model=model, settings=settings, mode="bypassPermissions") as session:
        await session.ask("go")
    assert sum("which is the limit" in text for text in told(model)) == 1
    assert len(os.listdir(copies())) == 1


async def test_the_changes_are_reported_where_the_model_cannot_be_closed(repository):
    class Unclosable(Script):
        async def aclose(self) -> None:
            raise ConnectionResetError("gone")

    class Model(Script):
        def delegated(self, agent_type: str, prompt: str) -> Script:
            return Unclosable([write("one.txt"), [{"text": "I did it"}]])

    model = Model().calls("Agent", prompt="do it", agent_type="worker").says("done")
    async with Session(repository, model=model, settings={}, mode="bypassPermissions") as session:
        await session.ask("go")
        assert session.conversation.agents == {}, "its end is recorded"
    assert told(model)[0].startswith("I did it")
    assert "Its changes to 1 file" in told(model)[0]


async def test_a_folder_without_git_is_copied_whole(project):
    agent_file(project, "worker", "isolation: worktree\n")
    (project / "data.log").write_text("kept\n")
    text, data = await run(project, Script([bash("cat data.log; git status; echo x >> a.txt"), [{"text": "ok"}]]))
    assert "all of its files" in text
    assert (project / "a.txt").read_text() == "alpha\n"
    subprocess.run(["git", "-C", project, "apply", data["worktree"]["patch"]], check=True)
    assert (project / "a.txt").read_text() == "alpha\nx\n"


async def test_a_folder_inside_a_repository_is_the_same_folder_in_the_copy(repository):
    inner = repository / "packages" / "one"
    inner.mkdir(parents=True)
    (inner / "m.py").write_text("x\n")
    git(repository, "add", "-A")
    git(repository, "-c", "user.name=t", "-c", "user.email=t@e.org", "commit", "-qm", "second")
    agent_file(inner, "worker", "isolation: worktree\n")
    agent = Script([bash("pwd; echo y > m.py"), write("../../a.txt"), [{"text": "ok"}]])
    _, data = await run(inner, agent)
    assert data["worktree"]["path"].endswith("/project/packages/one")
    assert "packages/one/m.py" in Path(data["worktree"]["patch"]).read_text()


async def test_without_a_copy_the_agent_does_not_start(repository, tmp_path):
    module = make_repository(tmp_path / "module")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(module), "sub")
    agent = Script([write("x.txt"), [{"text": "ok"}]])
    text, _ = await run(repository, agent)
    assert "The agent was not started" in text
    assert "the repository has submodules (sub)" in text
    assert not agent.requests
    assert not (repository / "x.txt").exists()
    assert not os.path.exists(copies()) or os.listdir(copies()) == []


async def test_a_copy_that_cannot_be_written_is_refused(repository, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    text, _ = await run(repository, Script([write("x.txt"), [{"text": "ok"}]]))
    assert "The agent was not started" in text
    assert not (repository / "x.txt").exists()


async def test_a_nested_agent_works_in_the_copy_of_its_parent(repository):
    inner = Script([write("inner.txt"), [{"text": "inner done"}]])
    outer = Script().calls("Agent", prompt="inner", agent_type="general").says("outer done")
    outer.sends("general", inner, prompt="inner")
    text, data = await run(repository, outer, settings={"agents": {"maxDepth": 2}})
    assert "outer done" in text
    assert "inner.txt" in Path(data["worktree"]["patch"]).read_text()
    assert not (repository / "inner.txt").exists()


async def test_an_unknown_isolation_is_an_error_of_the_file_and_of_the_code(project):
    agent_file(project, "worker", "isolation: container\n")
    with pytest.raises(ValueError, match="has no isolation 'container'"):
        Session(project, model=Script(), settings={}, agents=[AgentType("x", "y", isolation="container")])
    async with Session(project, model=Script().says("x"), settings={}) as session:
        types = session.box.workspace.services.agent_types
        types.refresh()
        assert "worker" not in types.definitions
        assert any("`isolation` must be `worktree`" in problem for problem in types.problems)


async def test_copies_that_nobody_used_for_long_are_removed(home):
    folder = copies()
    for name in ("old", "new"):
        (folder / name / "tree").mkdir(parents=True)
    long_ago = time.time() - 40 * 86_400
    os.utime(folder / "old", (long_ago, long_ago))
    await asyncio.to_thread(remove_old_copies, folder)
    assert os.listdir(folder) == ["new"]


async def test_modes_links_and_binary_changes_survive_the_way_there_and_back(repository, tmp_path):
    (repository / "run.sh").write_text("#!/bin/sh\n")
    (repository / "run.sh").chmod(0o755)
    (repository / "link").symlink_to("a.txt")
    tree = make_working_tree(tmp_path / "scratch", str(repository), (str(repository),))
    copy = Path(tree.root)
    assert os.access(copy / "run.sh", os.X_OK)
    assert os.readlink(copy / "link") == "a.txt"
    (copy / "blob").write_bytes(bytes(range(256)))
    changes = finish_working_tree(tree, tmp_path / "patches")
    assert changes.files == 1
    subprocess.run(["git", "-C", repository, "apply", changes.patch], check=True)
    assert (repository / "blob").read_bytes() == bytes(range(256))


async def test_a_repository_inside_the_repository_is_refused(repository, tmp_path):
    make_repository(repository / "nested")
    with pytest.raises(IsolationError, match="a repository inside the repository"):
        make_working_tree(tmp_path / "scratch", str(repository), (str(repository),))
    assert not (tmp_path / "scratch").exists()


async def test_variables_that_lead_git_to_the_original_do_not_reach_the_copy(repository):
    env = {**os.environ, "GIT_DIR": str(repository / ".git"), "GIT_WORK_TREE": str(repository)}  # as inside a git hook
    agent = Script([bash("git rev-parse --git-dir --show-toplevel; git branch made"), [{"text": "ok"}]])
    await run(repository, agent, env=env)
    assert str(repository) not in told(agent)[0]
    assert subprocess.run(["git", "-C", repository, "branch", "--list", "made"], capture_output=True).stdout == b""


async def test_a_copy_with_work_in_it_is_kept_where_the_agent_cannot_go_on_in_it(repository, tmp_path):
    scratch = tmp_path / "scratch"
    tree = make_working_tree(scratch, str(repository), (str(repository),))
    (Path(tree.root) / "work.txt").write_text("hours\n")
    (scratch / "note").unlink()
    (scratch / "note").mkdir()  # it cannot be read
    with pytest.raises(IsolationError, match="Is a directory"):
        make_working_tree(scratch, str(repository), (str(repository),))
    assert (Path(tree.root) / "work.txt").read_text() == "hours\n"


async def test_the_copy_of_a_project_that_has_become_part_of_a_repository_is_not_taken_for_another(project, tmp_path):
    inner = project / "inner"
    inner.mkdir()
    (inner / "a.txt").write_text("a\n")
    scratch = tmp_path / "scratch"
    tree = make_working_tree(scratch, str(inner), (str(inner),))
    (Path(tree.root) / "work.txt").write_text("hours\n")
    git(project, "init", "-q")
    git(project, "add", "-A")
    git(project, "-c", "user.name=t", "-c", "user.email=t@e.org", "commit", "-qm", "first")
    with pytest.raises(IsolationError, match="another folder"):
        make_working_tree(scratch, str(inner), (str(inner),))
    assert (Path(tree.root) / "work.txt").read_text() == "hours\n"
