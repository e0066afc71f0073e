"""A changed settings file reaches what is running; broken ones change nothing and are told of."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from wieldy import Session, Toolbox, tool
from wieldy.core.events import Notice, ToolEnded
from wieldy.core.tool import Tool
from wieldy.testing import Script


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project whose hooks the user trusts."""
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WIELDY_TRUST", "1")
    (tmp_path / "project" / ".wieldy").mkdir(parents=True)
    yield tmp_path / "project"


def put(project: Path, settings: Any) -> None:
    text = settings if isinstance(settings, str) else json.dumps(settings)
    (project / ".wieldy" / "settings.json").write_text(text)


def hook(command: str, event: str = "PreToolUse") -> dict[str, Any]:
    return {"hooks": {event: [{"matcher": "*", "hooks": [{"type": "command", "command": command}]}]}}


def counted() -> Tool:
    @tool(read_only=True)
    async def count() -> str:
        """Count."""
        return "counted"

    return count


@pytest.mark.asyncio
async def test_a_rule_written_to_a_file_holds_for_the_next_call(project: Path) -> None:
    async with Toolbox(root=project, tools=[counted()]) as box:
        assert not (await box.call("count")).is_error
        put(project, {"permissions": {"deny": ["count"]}})
        assert (await box.call("count")).is_error
        (project / ".wieldy" / "settings.json").unlink()
        assert not (await box.call("count")).is_error


@pytest.mark.asyncio
async def test_hooks_come_and_go_with_the_settings(project: Path) -> None:
    async with Toolbox(root=project, tools=[counted()]) as box:
        assert not (await box.call("count")).is_error
        put(project, hook("echo not now >&2; exit 2"))
        refused = await box.call("count")
        assert refused.is_error
        assert "not now" in refused.text
        put(project, {})
        assert not (await box.call("count")).is_error


@pytest.mark.asyncio
async def test_limits_come_and_go_with_the_settings(project: Path) -> None:
    async with Toolbox(root=project, tools=[counted()]) as box:
        put(project, {"tools": {"count": {"rateLimit": {"calls": 1, "seconds": 3600}}}})
        assert not (await box.call("count")).is_error
        assert "called once in" in (await box.call("count")).text
        put(project, {"tools": {"count": {"rateLimit": {"calls": 1, "seconds": 3600}}}, "env": {"A": "1"}})
        assert (await box.call("count")).is_error, "what was counted still counts"
        put(project, {"tools": {"count": {"level": "safe"}}})
        assert not (await box.call("count")).is_error
        put(project, {"tools": {"count": {"level": "forbidden"}}})
        assert (await box.call("count")).is_error


@pytest.mark.asyncio
async def test_folders_may_be_added_to_the_workspace(project: Path, tmp_path: Path) -> None:
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "note").write_text("hello")
    async with Toolbox(root=project) as box:
        assert (await box.call("Read", file_path=str(tmp_path / "beside" / "note"))).is_error
        put(project, {"permissions": {"additionalDirectories": ["../beside"]}})
        assert "hello" in (await box.call("Read", file_path=str(tmp_path / "beside" / "note"))).text
        put(project, {})
        assert (await box.call("Read", file_path=str(tmp_path / "beside" / "note"))).is_error


@pytest.mark.asyncio
async def test_broken_settings_leave_all_as_it_was_and_are_told_of_once(project: Path) -> None:
    put(project, {"permissions": {"deny": ["Read(*.key)"]}})
    (project / "a.key").write_text("secret")
    async with Toolbox(root=project, tools=[counted()]) as box:
        put(project, '{"permissions": {')
        async with box.stream() as events:
            assert (await box.call("Read", file_path="a.key")).is_error
            assert not (await box.call("count")).is_error
            notices: list[str] = []
            done = 0
            async for event in events:
                notices += [event.text] if isinstance(event, Notice) else []
                done += isinstance(event, ToolEnded)
                if done == 2:
                    break
        assert len(notices) == 1
        assert "settings.json:1:" in notices[0]
        assert "stay as they were" in notices[0]
        put(project, {})
        assert not (await box.call("Read", file_path="a.key")).is_error


@pytest.mark.asyncio
async def test_a_call_under_way_keeps_what_it_was_judged_under(project: Path) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def wait() -> str:
        """Wait."""
        begun.set()
        await go.wait()
        return "waited"

    async with Toolbox(root=project, tools=[wait, counted()]) as box:
        under_way = asyncio.ensure_future(box.call("wait"))
        await begun.wait()
        put(project, {**hook("touch fired", "PostToolUse"), "permissions": {"deny": ["wait"]}})
        assert not (await box.call("count")).is_error
        assert (project / "fired").exists()
        (project / "fired").unlink()
        go.set()
        assert (await under_way).text == "waited"
        assert not (project / "fired").exists()


@pytest.mark.asyncio
async def test_settings_given_in_code_are_not_looked_for_in_files(project: Path) -> None:
    async with Toolbox(root=project, tools=[counted()], settings={}) as box:
        put(project, {"permissions": {"deny": ["count"]}})
        assert not (await box.call("count")).is_error


@pytest.mark.asyncio
async def test_a_running_session_follows_its_settings_between_two_turns(project: Path) -> None:
    model = Script().calls("change").then().calls("count").says("done")

    @tool(read_only=True)
    async def change() -> str:
        """Change the settings."""
        put(project, hook("echo from now on >&2; exit 2"))
        return "changed"

    async with Session(root=project, model=model, tools=[change, counted()]) as session:
        async for _ in session.run("go"):
            pass
        said = json.dumps(session.messages)
    assert "changed" in said
    assert "from now on" in said
    assert "counted" not in said


@pytest.mark.asyncio
async def test_a_file_named_on_the_command_line_is_followed_like_the_others(project: Path, tmp_path: Path) -> None:
    named = tmp_path / "named.json"
    named.write_text("{}")
    async with Toolbox(root=project, settings_file=named, tools=[counted()]) as box:
        assert not (await box.call("count")).is_error
        named.write_text('{"permissions": {"deny": ["count"]}} // a comment is no harm')
        refused = await box.call("count")
        assert refused.is_error and f"({named}:1)" in refused.text
        named.unlink()
        assert (await box.call("count")).is_error
        named.write_text("{}")
        assert not (await box.call("count")).is_error


@pytest.mark.asyncio
async def test_a_named_file_is_followed_where_no_other_counts(project: Path, tmp_path: Path) -> None:
    put(project, {"permissions": {"deny": ["count"]}})
    named = tmp_path / "named.json"
    named.write_text("{}")
    async with Toolbox(root=project, settings={}, settings_file=named, load_settings=False, tools=[counted()]) as box:
        assert not (await box.call("count")).is_error
        named.write_text('{"tools": {"count": {"level": "forbidden"}}}')
        assert (await box.call("count")).is_error


@pytest.mark.parametrize("mode", ["acceptEdits", "bypassPermissions"])
@pytest.mark.asyncio
async def test_a_named_file_cannot_be_rewritten_by_whom_it_binds(project: Path, mode: str) -> None:
    named = project / "ci.json"
    named.write_text('{"permissions": {"deny": ["count"]}}')
    async with Toolbox(root=project, settings_file=named, mode=mode, tools=[counted()]) as box:
        await box.call("Read", file_path="ci.json")
        assert (await box.call("Write", file_path="ci.json", content="{}")).is_error
        assert (await box.call("Bash", command="echo {} > ci.json")).is_error
        assert (await box.call("count")).is_error


@pytest.mark.asyncio
async def test_the_users_usual_settings_are_protected_where_a_variable_moves_them_too(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    async with Toolbox(root=project, mode="bypassPermissions") as box:
        for folder in (tmp_path / "home", tmp_path / "person" / ".config" / "wieldy"):
            decision = await box.explain("Write", file_path=str(folder / "settings.json"), content="{}")
            assert decision.behavior == "ask", folder
