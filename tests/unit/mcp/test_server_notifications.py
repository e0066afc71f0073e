"""What an MCP client is told without asking, the prompts it is offered, and the questions that tools put to its user."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import MCPError
from tests.unit.mcp.serving import both_eras, connected, text

from wieldy import ClosedError, Toolbox, tool
from wieldy.core.events import Notice
from wieldy.core.tool import ToolContext
from wieldy.faces.mcp_server.server import ClientSession

QUESTIONS = {
    "questions": [
        {"question": "Which colour?", "options": ["red", "green"]},
        {"question": "Which sizes?", "options": ["S", "M", "L"], "multi_select": True},
        {"question": "Whose?"},
    ]
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "state"))
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def skill(root: Path, name: str, body: str, head: str = "") -> None:
    folder = root / ".wieldy" / "skills" / name
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: About {name}.\n{head}---\n{body}\n")


def deny(root: Path, *rules: str) -> None:
    file = root / ".wieldy" / "settings.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"permissions": {"deny": list(rules)}}))


class Heard:
    """What a client was told."""

    def __init__(self) -> None:
        self.changes = 0
        self.lines: list[tuple[str, Any]] = []
        self._news = asyncio.Event()

    async def message(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self.change()

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.lines.append((params.level, params.data))
        self._news.set()

    def change(self) -> None:
        self.changes += 1
        self._news.set()

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not reached():
                self._news.clear()
                await self._news.wait()


@pytest.mark.asyncio
async def test_settings_that_take_a_tool_away_count_at_once_and_the_client_is_told(root: Path):
    heard = Heard()
    async with connected(root, "legacy", files=True, message_handler=heard.message) as (client, _):
        assert client.server_capabilities.tools and client.server_capabilities.tools.list_changed
        assert "LS" in {one.name for one in (await client.list_tools()).tools}
        deny(root, "LS")
        result = await client.call_tool("LS", {"path": "."})
        assert result.is_error and "denied" in text(result)
        await heard.until(lambda: heard.changes == 1)
        assert "LS" not in {one.name for one in (await client.list_tools()).tools}


@pytest.mark.asyncio
async def test_a_client_of_the_new_revision_is_told_of_changes_it_subscribed_to(root: Path):
    heard = Heard()
    async with connected(root, "2026-07-28", files=True) as (client, _):
        await client.list_tools()
        async with client.listen(tools_list_changed=True) as news:
            deny(root, "LS")
            await client.call_tool("Think", {"thought": "x"})
            async with asyncio.timeout(20):
                await anext(aiter(news))
            heard.change()
    assert heard.changes == 1


@pytest.mark.asyncio
async def test_settings_that_change_no_tool_are_no_news(root: Path):
    heard = Heard()
    async with connected(root, "legacy", files=True, message_handler=heard.message) as (client, session):
        await client.list_tools()
        deny(root, "Bash(rm:*)")
        await client.call_tool("Think", {"thought": "x"})
        session.box.workspace.emit(Notice(text="the end"))
        deny(root, "LS")
        await client.call_tool("Think", {"thought": "x"})
        await heard.until(lambda: heard.changes > 0)
    assert heard.changes == 1


@tool(read_only=True)
async def remark(ctx: ToolContext, words: str) -> str:
    """Say something that belongs to no call."""
    ctx.workspace.emit(Notice(text=words))
    await asyncio.sleep(0.05)
    return "said"


@pytest.mark.asyncio
async def test_what_a_person_should_know_is_logged_to_the_client_from_the_level_it_wants(root: Path):
    heard = Heard()
    async with connected(root, "legacy", tools=(remark,), logging_callback=heard.log) as (client, _):
        await client.call_tool("remark", {"words": "one"})
        await client.session.send_request(
            types.SetLevelRequest(params=types.SetLevelRequestParams(level="error")), types.EmptyResult
        )
        await client.call_tool("remark", {"words": "two"})
        await client.session.send_request(
            types.SetLevelRequest(params=types.SetLevelRequestParams(level="debug")), types.EmptyResult
        )
        await client.call_tool("remark", {"words": "three \udcff"})
        await heard.until(lambda: len(heard.lines) == 2)
    assert heard.lines == [("warning", "one"), ("warning", "three \ufffd")]


@pytest.mark.asyncio
async def test_on_the_new_revision_only_a_request_that_wants_the_log_gets_it(root: Path):
    heard = Heard()
    async with connected(root, "2026-07-28", tools=(remark,), logging_callback=heard.log) as (client, session):
        session.box.workspace.emit(Notice(text="nobody asked"))
        await client.call_tool("remark", {"words": "nobody asked"})
        meta: Any = {types.LOG_LEVEL_META_KEY: "info"}
        await client.call_tool("remark", {"words": "wanted"}, meta=meta)
        await heard.until(lambda: bool(heard.lines))
    assert heard.lines == [("warning", "wanted")]


@both_eras
@pytest.mark.asyncio
async def test_skills_are_prompts_that_a_person_calls_for(root: Path, era: str):
    skill(root, "review", "Look at $ARGUMENTS with care.")
    skill(root, "secret", "For people.", "disable-model-invocation: true\n")
    async with connected(root, era) as (client, _):
        listed = (await client.list_prompts()).prompts
        assert [(one.name, one.description) for one in listed] == [
            ("review", "About review."),
            ("secret", "About secret."),
        ]
        got = await client.get_prompt("review", {"arguments": "a.py"})
        [message] = got.messages
        assert message.role == "user" and isinstance(message.content, types.TextContent)
        assert "Look at a.py with care." in message.content.text
        assert (await client.get_prompt("secret")).messages
        with pytest.raises(MCPError, match="no prompt `other`"):
            await client.get_prompt("other")


@both_eras
@pytest.mark.asyncio
async def test_a_skill_that_may_not_be_read_is_not_told(root: Path, era: str):
    skill(root, "review", "Look.")
    settings = {"permissions": {"deny": [f"Read(/{root}/.wieldy/skills/**)"]}}
    async with connected(root, era, settings=settings) as (client, _):
        with pytest.raises(MCPError, match="may not be read"):
            await client.get_prompt("review")


@both_eras
@pytest.mark.asyncio
async def test_names_of_kept_results_are_completed(root: Path, era: str):
    (root / "long.txt").write_text("".join(f"line {n}\n" for n in range(20_000)))
    async with connected(root, era) as (client, session):
        await client.call_tool("Bash", {"command": "cat long.txt"})
        kept = sorted(os.listdir(session.spilled.folder))
        template = types.ResourceTemplateReference(uri="wieldy://results/{name}")
        found = await client.complete(template, {"name": "name", "value": kept[0][:2]})
        other = await client.complete(types.PromptReference(name="x"), {"name": "arguments", "value": ""})
    assert kept[0] in found.completion.values
    assert other.completion.values == []


@both_eras
@pytest.mark.asyncio
async def test_a_tool_s_questions_are_put_to_the_client_s_user(root: Path, era: str):
    seen: list[Any] = []

    async def elicited(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        seen.append(params.requested_schema["properties"])
        said: dict[str, Any] = {"choice_1": "green", "choice_2": ["S", "L"], "words_2": "or so", "words_3": "mine"}
        return types.ElicitResult(action="accept", content=said)

    async with connected(root, era, elicitation_callback=elicited) as (client, _):
        assert "AskUser" in {one.name for one in (await client.list_tools()).tools}
        result = await client.call_tool("AskUser", QUESTIONS)
    assert not result.is_error, text(result)
    assert result.structured_content == {
        "answers": {"Which colour?": "green", "Which sizes?": "S; L; or so", "Whose?": "mine"}
    }
    assert seen[0]["choice_1"] == {"type": "string", "title": "Which colour?", "enum": ["red", "green"]}
    assert seen[0]["choice_2"]["type"] == "array"
    assert len(seen) == 1


@both_eras
@pytest.mark.asyncio
async def test_a_user_who_does_not_want_to_answer_is_not_taken_to_have_answered(root: Path, era: str):
    async def elicited(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="decline")

    async with connected(root, era, elicitation_callback=elicited) as (client, _):
        result = await client.call_tool("AskUser", QUESTIONS)
    assert result.is_error and "does not want to answer" in text(result)


@both_eras
@pytest.mark.asyncio
async def test_where_nobody_can_be_asked_there_is_no_tool_that_asks(root: Path, era: str):
    async with connected(root, era) as (client, _):
        assert "AskUser" not in {one.name for one in (await client.list_tools()).tools}
        result = await client.call_tool("AskUser", QUESTIONS)
    assert result.is_error and "no person is there to answer" in text(result)


class UnlistableToolbox(Toolbox):
    asked: asyncio.Event

    async def offer(self, *args: Any, **options: Any) -> Any:
        self.asked.set()
        raise RuntimeError("the tools cannot be listed")


@pytest.mark.asyncio
async def test_a_notification_that_fails_ends_neither_the_others_nor_the_close(root: Path):
    session = ClientSession(lambda ask, host: UnlistableToolbox(root, ask=ask, settings={}, host=host))
    asked = UnlistableToolbox.asked = asyncio.Event()
    await session.open()
    session.notifier.set_listed_tools([])
    for _ in range(2):
        session.notifier.check_tools()
        await asyncio.wait_for(asked.wait(), 10)
        asked.clear()
    await session.aclose()
    with pytest.raises(ClosedError):
        await session.box.call("LS", path=".")
