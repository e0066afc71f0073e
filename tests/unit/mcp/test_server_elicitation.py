"""Permission questions that go through an MCP client to its user, the folders it names, and the hooks that have a say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import MCPError
from tests.unit.mcp.serving import both_eras, connected, text

from wieldy.policy.settings.store import set_value, user_file

Elicited = Callable[[Any, types.ElicitRequestParams], Any]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "state"))
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def answering(decision: str | None, action: str = "accept", words: str = "") -> tuple[list[str], Elicited]:
    seen: list[str] = []

    async def elicited(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        seen.append(params.message)
        choices = params.requested_schema["properties"]["decision"]["enum"]
        chosen = next((choice for choice in choices if decision and choice.startswith(decision)), decision)
        return types.ElicitResult(action=action, content={"decision": chosen, "words": words} if chosen else None)  # type: ignore[arg-type]

    return seen, elicited


@both_eras
@pytest.mark.asyncio
async def test_a_client_that_cannot_ask_gets_a_no_with_the_rule_that_would_help(root: Path, era: str):
    (root / "a.txt").write_text("one\n")
    async with connected(root, era) as (client, _):
        result = await client.call_tool("Bash", {"command": "rm a.txt"})
    assert result.is_error
    assert "cannot ask its user" in text(result)
    assert "Bash(rm" in text(result)
    assert (root / "a.txt").exists()


@both_eras
@pytest.mark.asyncio
async def test_allowed_once_means_once(root: Path, era: str):
    seen, elicited = answering("Allow once")
    async with connected(root, era, elicitation_callback=elicited) as (client, _):
        for name in ("one", "one"):
            result = await client.call_tool("Write", {"file_path": "a.txt", "content": name})
            assert not result.is_error, text(result)
            (root / "a.txt").unlink()
    assert len(seen) == 2
    assert "a.txt" in seen[0] and "one" in seen[0]


@both_eras
@pytest.mark.asyncio
async def test_always_allowed_is_not_asked_again(root: Path, era: str):
    seen, elicited = answering("Always allow")
    (root / "a.txt").write_text("")
    async with connected(root, era, elicitation_callback=elicited) as (client, _):
        for _ in range(2):
            result = await client.call_tool("Bash", {"command": "touch b.txt"})
            assert not result.is_error, text(result)
    assert len(seen) == 1


@both_eras
@pytest.mark.parametrize(
    ("decision", "action", "said"),
    [
        ("Deny", "accept", "use git mv"),
        (None, "decline", "declined"),
        (None, "cancel", "dismissed"),
        (None, "accept", "declined"),
        ("allow", "accept", "declined"),
    ],
)
@pytest.mark.asyncio
async def test_anything_but_a_plain_yes_is_a_no(root: Path, era: str, decision: str | None, action: str, said: str):
    words = "use git mv" if decision == "Deny" else ""
    _, elicited = answering(decision, action, words)
    async with connected(root, era, elicitation_callback=elicited) as (client, _):
        result = await client.call_tool("Write", {"file_path": "a.txt", "content": "x"})
    assert result.is_error
    assert said in text(result)
    assert not (root / "a.txt").exists()


@pytest.mark.asyncio
async def test_a_client_that_fails_to_ask_gets_a_no(root: Path):
    async def elicited(context: Any, params: types.ElicitRequestParams) -> types.ErrorData:
        return types.ErrorData(code=-32603, message="the window is gone")

    async with connected(root, "legacy", elicitation_callback=elicited) as (client, _):
        result = await client.call_tool("Write", {"file_path": "a.txt", "content": "x"})
    assert result.is_error
    assert "denied" in text(result)
    assert "the window is gone" in text(result)
    assert not (root / "a.txt").exists()


@both_eras
@pytest.mark.asyncio
async def test_hooks_are_heard_and_their_no_counts(root: Path, era: str):
    no = 'printf \'{"decision": "block", "reason": "not on a Sunday"}\''
    hooks = {"PreToolUse": [{"matcher": "Read", "hooks": [{"type": "command", "command": no}]}]}
    (root / "a.txt").write_text("x")
    async with connected(root, era, settings={"hooks": hooks}) as (client, _):
        result = await client.call_tool("Read", {"file_path": "a.txt"})
    assert result.is_error
    assert "not on a Sunday" in text(result)


@both_eras
@pytest.mark.asyncio
async def test_nothing_hides_in_a_question(root: Path, era: str):
    seen, elicited = answering("Deny")
    async with connected(root, era, elicitation_callback=elicited) as (client, _):
        await client.call_tool("Bash", {"command": "touch a\u202etxt.\x1b[8m"})
    assert "<U+202E>" in seen[0]
    assert "\x1b" not in seen[0]


@both_eras
@pytest.mark.asyncio
async def test_roots_of_the_client_are_folders_to_work_in(root: Path, era: str, tmp_path: Path):
    other, third = tmp_path / "an other", tmp_path / "third"
    for folder in (other, third):
        folder.mkdir()
        (folder / "a.txt").write_text("from there\n")
    asked = 0

    async def roots(context: Any) -> types.ListRootsResult:
        nonlocal asked
        asked += 1
        uris = (other.as_uri(), "file:///", (tmp_path / "gone").as_uri(), root.as_uri())
        return types.ListRootsResult(roots=[types.Root(uri=uri) for uri in uris])  # type: ignore[arg-type]

    async with connected(root, era, list_roots_callback=roots) as (client, session):
        inside = await client.call_tool("Read", {"file_path": str(other / "a.txt")})
        outside = await client.call_tool("Read", {"file_path": str(third / "a.txt")})
        assert session.box.workspace.roots == (str(root), str(other))
    assert "from there" in text(inside)
    assert outside.is_error and "denied" in text(outside)
    assert asked == 1


@both_eras
@pytest.mark.asyncio
async def test_roots_of_the_client_do_not_widen_what_the_settings_deny(root: Path, era: str, tmp_path: Path):
    (other := tmp_path / "other").mkdir()
    (other / "a.txt").write_text("from there\n")

    async def roots(context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=other.as_uri())])  # type: ignore[arg-type]

    settings = {"permissions": {"outside": "deny"}}
    async with connected(root, era, settings=settings, list_roots_callback=roots) as (client, session):
        for tool, input in (("Read", {"file_path": str(other / "a.txt")}), ("Bash", {"command": f"cat {other}/a.txt"})):
            result = await client.call_tool(tool, input)
            assert result.is_error and "outside the allowed folders" in text(result)
        assert session.box.workspace.roots == (str(root),)


@pytest.mark.asyncio
async def test_roots_are_taken_back_when_the_settings_begin_to_deny_what_is_outside(root: Path, tmp_path: Path):
    (other := tmp_path / "other").mkdir()
    (other / "a.txt").write_text("from there\n")

    async def roots(context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=other.as_uri())])  # type: ignore[arg-type]

    async with connected(root, "legacy", list_roots_callback=roots, files=True) as (client, _):
        assert not (await client.call_tool("Read", {"file_path": str(other / "a.txt")})).is_error
        set_value(user_file(), "permissions.outside", "deny")
        assert (await client.call_tool("Read", {"file_path": str(other / "a.txt")})).is_error


@pytest.mark.asyncio
async def test_changed_roots_are_asked_for_again(root: Path, tmp_path: Path):
    now = [tmp_path / "one", tmp_path / "two"]
    for folder in now:
        folder.mkdir()

    async def roots(context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=now[0].as_uri())])  # type: ignore[arg-type]

    async with connected(root, "legacy", list_roots_callback=roots) as (client, session):
        await client.call_tool("Think", {"thought": "x"})
        assert session.box.workspace.extra_roots == (str(tmp_path / "one"),)
        del now[0]
        await client.session.send_notification(types.RootsListChangedNotification())
        for _ in range(100):
            await client.call_tool("Think", {"thought": "x"})
            if session.box.workspace.extra_roots == (str(tmp_path / "two"),):
                break
        assert session.box.workspace.extra_roots == (str(tmp_path / "two"),)


@pytest.mark.asyncio
async def test_an_answer_is_good_for_the_question_it_answers_and_once(root: Path):
    _, elicited = answering("Allow once")
    async with connected(root, "2026-07-28", elicitation_callback=elicited) as (client, _):

        async def call(content: str, token: str | None = None, yes: bool = False) -> Any:
            said = types.ElicitResult(action="accept", content={"decision": "Allow once"})
            return await client.session.call_tool(
                "Write",
                {"file_path": "a.txt", "content": content},
                input_responses={"permission": said} if yes else None,
                request_state=token,
                allow_input_required=True,
            )

        asked = await call("harmless")
        assert isinstance(asked, types.InputRequiredResult)
        with pytest.raises(MCPError, match="not handed out for this very call"):
            await call("harmful", asked.request_state, yes=True)
        with pytest.raises(MCPError, match="used already"):
            await call("harmless", asked.request_state, yes=True)
        without_token = await call("harmful", None, yes=True)
        assert isinstance(without_token, types.InputRequiredResult)
        asked = await call("harmless")
        done = await call("harmless", asked.request_state, yes=True)
        assert isinstance(done, types.CallToolResult) and not done.is_error
        (root / "a.txt").unlink()
        with pytest.raises(MCPError, match="used already"):
            await call("harmless", asked.request_state, yes=True)
    assert not (root / "a.txt").exists()
