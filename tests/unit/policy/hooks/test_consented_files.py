"""A hook, status line or server is the program and the content that the person consented to, wherever the model has gone."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from wieldy import Toolbox, tool
from wieldy.faces.terminal.desktop import run_status_command
from wieldy.policy.settings import load_settings
from wieldy.policy.settings.consent import Trust
from wieldy.policy.settings.load import COMMAND_SECTIONS

pytestmark = pytest.mark.asyncio


@tool(read_only=True)
async def say(text: str) -> str:
    """Say it."""
    return f"said {text}"


def hooked(command: str | list[str], event: str = "PreToolUse") -> dict[str, Any]:
    program: Any = {"command": command} if isinstance(command, str) else {"command": command[0], "args": command[1:]}
    return {"hooks": {event: [{"matcher": "say", "hooks": [{"type": "command", **program}]}]}}


def script(path: Path, mark: Path | str) -> None:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(f"#!/bin/sh\npwd >> {mark}\ncat > {mark}.json\n")
    path.chmod(0o755)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("WIELDY_TRUST", raising=False)
    root = tmp_path / "project"
    (root / ".wieldy").mkdir(parents=True)
    return root


def write(project: Path, settings: Any, *, user: bool = False) -> Path:
    file = project.parent / "home" / "settings.json" if user else project / ".wieldy" / "settings.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(settings))
    return file


def consent(project: Path) -> None:
    Trust().accept(str(project), load_settings(project).pending)


@pytest_asyncio.fixture
async def open_box(project: Path) -> AsyncIterator[Callable[..., Toolbox]]:
    boxes: list[Toolbox] = []

    def open_box(root: Path = project) -> Toolbox:
        boxes.append(Toolbox(root, load_settings=True, tools=[say]))
        return boxes[-1]

    yield open_box
    for box in boxes:
        await box.aclose()


@pytest.mark.parametrize("start", [".", "vendor"])
async def test_a_relative_hook_is_the_program_of_the_projects_root_wherever_the_model_is(
    project, open_box, tmp_path, start
):
    script(project / "hook.sh", tmp_path / "own")
    script(project / "vendor" / "hook.sh", tmp_path / "other")
    write(project, hooked("./hook.sh"))
    consent(project)
    box = open_box(project / start)
    box.workspace.cwd = str(project / "vendor")
    assert (await box.call("say", text="x")).text == "said x"
    assert (tmp_path / "own").read_text() == f"{project}\n"
    assert json.loads((tmp_path / "own.json").read_text())["cwd"] == str(project / "vendor")
    assert not (tmp_path / "other").exists()


async def test_the_variable_of_the_project_is_its_root_wherever_the_model_is(project, open_box, tmp_path):
    write(project, hooked(f'echo "$WIELDY_PROJECT_DIR $CLAUDE_PROJECT_DIR" > {tmp_path}/told'))
    (project / "vendor").mkdir()
    consent(project)
    box = open_box(project)
    box.workspace.cwd = str(project / "vendor")
    await box.call("say", text="x")
    assert (tmp_path / "told").read_text() == f"{project} {project}\n"


@pytest.mark.parametrize("command", ["./hook.sh", "sh hook.sh --fast", "true; cd sub && ../hook.sh", ["./hook.sh"]])
async def test_a_script_changed_during_a_session_does_not_run_and_the_call_says_why(
    project, open_box, tmp_path, command
):
    (project / "sub").mkdir()
    script(project / "hook.sh", tmp_path / "own")
    file = write(project, hooked(command))
    consent(project)
    box = open_box()
    assert (await box.call("say", text="x")).text == "said x"
    script(project / "hook.sh", tmp_path / "changed")
    result = await box.call("say", text="x")
    assert not (tmp_path / "changed").exists()
    assert result.is_error
    for part in ("hook.sh of the project has changed", str(file), "hooks.PreToolUse", "wieldy permissions trust"):
        assert part in result.text
    consent(project)
    assert (await box.call("say", text="x")).text == "said x"
    assert (tmp_path / "changed").exists()


@pytest.mark.parametrize("user", [False, True], ids=["project", "user"])
async def test_a_module_planted_beside_the_script_of_a_hook_does_not_run(project, open_box, tmp_path, user):
    mark = tmp_path / "ran"
    (project / "tools").mkdir()
    (project / "tools/hook.py").write_text("import json\n")
    write(project, hooked(f"{sys.executable} tools/hook.py"), user=user)
    consent(project)
    box = open_box()
    assert (await box.call("say", text="a")).text == "said a"
    (project / "tools/json.py").write_text(f"open({str(mark)!r}, 'w')\n")
    result = await box.call("say", text="a")
    assert not mark.exists()
    assert "tools/json.py" in result.text and "consent" in result.text


async def test_a_script_changed_between_two_sessions_asks_again(project, open_box, tmp_path):
    script(project / "hook.sh", tmp_path / "own")
    write(project, hooked("./hook.sh"))
    consent(project)
    assert not load_settings(project).pending
    script(project / "hook.sh", tmp_path / "changed")
    (item,) = load_settings(project).pending
    assert str(project / "hook.sh") in str(item)
    await open_box().call("say", text="x")
    assert not (tmp_path / "changed").exists()


@pytest.mark.parametrize("kind", ["link", "new", "gone"])
async def test_what_a_name_leads_to_counts_not_the_name(project, open_box, tmp_path, kind):
    (project / "tools").mkdir()
    if kind != "new":
        script(project / "tools" / "real.sh", tmp_path / "own")
        (project / "hook.sh").symlink_to("tools/real.sh")
    write(project, hooked("sh hook.sh", "PostToolUse"))
    consent(project)
    box = open_box()
    if kind == "gone":
        (project / "hook.sh").unlink()
    script(project / ("hook.sh" if kind == "new" else "tools/real.sh"), tmp_path / "changed")
    await box.call("say", text="x")
    assert not (tmp_path / "changed").exists()


async def test_a_hook_of_your_own_runs_no_program_of_a_project_without_consent(project, open_box, tmp_path):
    file = write(project, hooked("./lint.sh"), user=True)
    script(project / "lint.sh", tmp_path / "own")
    result = await open_box().call("say", text="x")
    assert result.is_error
    assert "lint.sh of the project needs your consent" in result.text
    assert str(file) in result.text
    assert not (tmp_path / "own").exists()
    consent(project)
    assert (await open_box().call("say", text="x")).text == "said x"


async def test_data_of_a_project_that_a_hook_of_your_own_names_needs_no_consent(project, open_box):
    write(project, hooked("cat package.json"), user=True)
    (project / "package.json").write_text("{}")
    box = open_box()
    assert (await box.call("say", text="x")).text == "said x"
    (project / "package.json").write_text("{ }")
    assert (await box.call("say", text="x")).text == "said x"


async def test_a_status_line_is_bound_to_its_script_too(project, open_box, tmp_path):
    script(project / "line.sh", tmp_path / "own")
    write(project, {"statusLine": {"type": "command", "command": "./line.sh"}})
    consent(project)
    box = open_box()
    assert await run_status_command("./line.sh", {}, box.workspace) == ""
    assert (tmp_path / "own").read_text() == f"{project}\n"
    script(project / "line.sh", tmp_path / "changed")
    line = await run_status_command("./line.sh", {}, box.workspace)
    assert "line.sh of the project has changed" in line
    assert not (tmp_path / "changed").exists()


COMMANDS_OF = {
    "hooks": {"PreToolUse": [{"hooks": [{"command": "./x.sh"}]}]},
    "statusLine": {"type": "command", "command": "./x.sh"},
    "mcpServers": {"one": {"command": "sh", "args": ["./x.sh"]}},
}


@pytest.mark.parametrize("section", sorted(COMMAND_SECTIONS))
async def test_consent_to_every_setting_that_starts_a_program_is_bound_to_its_files(project, section):
    write(project, {section: COMMANDS_OF[section]})
    for content in ("one", "two"):
        (project / "x.sh").write_text(content)
        assert any(str(project / "x.sh") in str(item) for item in load_settings(project).pending)
        consent(project)
        assert not load_settings(project).pending


async def test_no_setting_starts_a_program_but_these():
    from wieldy.core.setting_keys import KEYS

    named = {key.name.split(".")[0] for key in KEYS if "ommand" in key.description and "object" in key.kind}
    assert named | {"mcpServers"} == set(COMMAND_SECTIONS)


async def test_a_pipe_that_nobody_writes_to_holds_nothing_up(project, open_box):
    write(project, hooked("cat < ./hook.fifo > /dev/null"))
    os.mkfifo(project / "hook.fifo")
    assert len(load_settings(project).pending) == 1


@pytest.mark.parametrize("command", ["echo said >> log", "touch log", "cat >> $CLAUDE_PROJECT_DIR/log"])
async def test_what_a_hook_writes_itself_needs_no_new_consent(project, open_box, command):
    write(project, hooked(command))
    consent(project)
    box = open_box()
    for _ in range(2):
        assert (await box.call("say", text="x")).text == "said x"
    assert (project / "log").exists()
    assert not load_settings(project).pending


async def test_a_file_that_a_hook_writes_and_runs_is_the_one_consented_to(project, open_box, tmp_path):
    (project / "run").write_text("echo one\n")
    write(project, hooked("echo true >> run; sh run"))
    consent(project)
    (project / "run").write_text(f"touch {tmp_path}/changed\n")
    await open_box().call("say", text="x")
    assert not (tmp_path / "changed").exists()
