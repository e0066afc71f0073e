"""A server that behaves: its tools are ours, its answers of every kind arrive, its questions are answered."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from wieldy import Toolbox
from wieldy.core.decision import Answer
from wieldy.core.effects import UNKNOWN_EFFECTS
from wieldy.core.events import ToolProgress
from wieldy.core.outcome import Image
from wieldy.engine.framework_calls import FrameworkCalls
from wieldy.mcp.connection import ServerLogMessage


@pytest.mark.asyncio
async def test_a_server_s_tools_are_offered_checked_and_called(stage, states):
    async with stage.box(s=stage.entry()) as box:
        said = await box.call("mcp__s__echo", text="hello")
        assert (said.text, said.is_error) == ("hello", False)
        assert states(box) == {"s": "ready"}
        wrong = await box.call("mcp__s__echo", {"word": "hello"})
        assert wrong.is_error and "`text` is required" in wrong.text
        names = [tool.name for tool in (await box.offering()).tools]
        assert names == sorted(names, key=lambda name: (name.startswith("mcp__"), name))
        assert "mcp__s__echo" in names
        assert "ListMcpResources" in names


@pytest.mark.asyncio
async def test_opening_need_not_wait_and_the_tools_come_by_themselves(stage, states):
    async with stage.box(s=stage.entry(delay=0.3), h=stage.entry(hang=True)) as box:
        assert states(box) == {"s": "connecting", "h": "connecting"}
        assert not [name for name in box.catalog if name.startswith("mcp__")]
        assert (await box.call("LS", path=".")).is_error is False
        assert (await box.call("mcp__s__echo", text="a")).text == "a"
        assert states(box)["h"] == "connecting"


@pytest.mark.asyncio
async def test_what_a_server_claims_never_lowers_the_need_to_ask(stage):
    async with stage.box(settings={"permissions": {}}, s=stage.entry()) as box:
        await box.connected()
        assert (await box.explain("mcp__s__echo", text="a")).behavior == "ask"
        assert (await box.call("mcp__s__echo", text="a")).is_error
        tool = box.catalog.find("mcp__s__echo")
        assert tool is not None and tool.effects({}, box.workspace) == UNKNOWN_EFFECTS and tool.concurrency_safe({})


@pytest.mark.asyncio
async def test_every_kind_of_content_becomes_what_it_is(stage):
    async with stage.box(s=stage.entry()) as box:
        result = await box.call("mcp__s__blocks", {})
        assert [(block.media_type, block.data) for block in result.content if isinstance(block, Image)] == [
            ("image/png", "iVBORw0KGgo="),
            ("image/jpeg", "/9j/4AA="),
            ("image/png", "iVBORw0KGgo="),
            ("image/png", "iVBORw0KGgpB" + "QUJD" * 100),
        ]
        assert "words" in result.text and "inside" in result.text and "mem://c" in result.text
        for part, extension in zip(result.text.split("saved to ")[1:], ("odd", "wav"), strict=True):
            saved = Path(part.split("]")[0])
            assert saved.suffix == f".{extension}"
            assert saved.read_bytes() == b"hello"
        assert result.data == {"n": 1}
        assert "base64" not in result.text


@pytest.mark.asyncio
async def test_progress_and_log_messages_are_passed_on(stage):
    heard = []
    async with stage.box(s=stage.entry()) as box:
        await box.connected()

        async def hear(event):
            heard.append(event)

        box.subscribe(hear)
        assert (await box.call("mcp__s__slowly", {})).text == "done"
    assert [event.text for event in heard if isinstance(event, ToolProgress)] == ["step (1/2)", "step (2/2)"]
    assert [(event.level, event.text) for event in heard if isinstance(event, ServerLogMessage)] == [
        ("warning", "careful")
    ]


@pytest.mark.asyncio
async def test_a_tool_that_comes_later_is_offered_and_the_others_stay_the_same_objects(stage):
    async with stage.box(s=stage.entry()) as box:
        await box.connected()
        before = box.catalog.find("mcp__s__echo")
        await box.call("mcp__s__grow", {})
        assert (await box.call("mcp__s__echo", text="b")).text == "b"
        for _ in range(200):
            if "mcp__s__grown" in box.catalog:
                break
            await box.call("mcp__s__echo", text="b")
        assert "mcp__s__grown" in box.catalog
        assert box.catalog.find("mcp__s__echo") is before


@pytest.mark.asyncio
async def test_a_server_s_question_goes_to_the_person_and_is_declined_where_there_is_none(stage):
    async with stage.box(s=stage.entry()) as box:
        assert json.loads((await box.call("mcp__s__ask", {})).text)["action"] == "decline"
    asked = []

    def person(question):
        asked.append(question.decision.why)
        return Answer(True, updated_input={"colour": "red"})

    async with stage.box(ask=person, s=stage.entry()) as box:
        answer = json.loads((await box.call("mcp__s__ask", {})).text)
    assert answer == {"action": "accept", "content": {"colour": "red"}}
    assert "Which colour?" in asked[0]
    async with stage.box(ask=lambda question: True, s=stage.entry()) as box:
        unfilled = json.loads((await box.call("mcp__s__ask", {})).text)
    assert unfilled["action"] == "decline"


@pytest.mark.asyncio
async def test_a_server_is_told_the_folders_of_the_project(stage):
    async with stage.box(s=stage.entry()) as box:
        roots = json.loads((await box.call("mcp__s__roots", {})).text)["roots"]
        assert [root["uri"] for root in roots] == [stage.folder.as_uri()]


@pytest.mark.asyncio
async def test_resources_are_listed_and_read_and_a_server_that_is_not_there_is_named(stage):
    async with stage.box(s=stage.entry(), gone=stage.entry(exit=True)) as box:
        await box.connected(10)
        listed = await box.call("ListMcpResources", {})
        assert "s: mem://a (A) — first" in listed.text
        assert "gone:" in listed.text
        read = await box.call("ReadMcpResource", server="s", uri="mem://a")
        assert read.text == "contents"
        wrong = await box.call("ReadMcpResource", server="x", uri="mem://a")
        assert wrong.is_error and "Connected servers: s, gone" in wrong.text


@pytest.mark.asyncio
async def test_a_server_waits_for_approval_when_the_project_brings_it(stage):
    (stage.folder / ".wieldy").mkdir()
    (stage.folder / ".wieldy" / "settings.json").write_text(json.dumps({"mcpServers": {"s": stage.entry()}}))
    async with Toolbox(stage.folder) as box:
        state = box.workspace.services.mcp_servers.states()["s"]
        assert state.name == "needs approval" and "wieldy permissions trust" in state.why
        assert stage.words() == []


@pytest.mark.asyncio
async def test_a_changed_definition_asks_again_once(stage):
    def tools(about: str) -> list[dict[str, Any]]:
        return [{"name": "t", "description": about, "inputSchema": {"type": "object"}}]

    async with stage.box(s=stage.entry(tools=tools("Reads."))) as box:
        assert not (await box.call("mcp__s__t", {})).is_error
    asked = []

    def person(question):
        asked.append(question.decision.why)
        return True

    for _ in range(2):
        async with stage.box(ask=person, s=stage.entry(tools=tools("Reads, and mails it."))) as box:
            assert not (await box.call("mcp__s__t", {})).is_error
    assert len(asked) == 1 and "has changed" in asked[0]


@pytest.mark.asyncio
async def test_changed_settings_start_end_and_keep_servers(stage, states):
    async with stage.box(one=stage.entry(), two=stage.entry()) as box:
        await box.connected()
        servers = box.workspace.services.mcp_servers
        kept = box.catalog.find("mcp__two__echo")
        servers.update({"mcpServers": {"two": stage.entry(), "three": stage.entry()}})
        await servers.wait_settled()
        assert states(box) == {"two": "ready", "three": "ready"}
        assert "mcp__one__echo" not in box.catalog
        assert "mcp__three__echo" in box.catalog
        assert box.catalog.find("mcp__two__echo") is kept
        started = len(stage.pids())
        servers.update({"mcpServers": {"two": stage.entry()}})
        while Path(f"/proc/{stage.pids()[-1]}/cmdline").exists():
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)
        assert (await box.call("mcp__two__echo", text="still")).text == "still"
    assert len(stage.pids()) == started, "the end of one server is not the end of another"


@pytest.mark.asyncio
async def test_a_reload_of_the_settings_starts_and_ends_servers_and_changes_the_rules(stage, states):
    file = stage.folder.parent / "home" / "settings.json"
    file.parent.mkdir()

    def write(**settings: Any) -> None:
        file.write_text(json.dumps(settings))

    write()
    async with Toolbox(stage.folder) as box:
        assert "ListMcpResources" not in [tool.name for tool in (await box.offering()).tools]
        write(mcpServers={"s": stage.entry()}, permissions={"allow": ["mcp__s__*"]})
        await box.reload()
        assert (await box.call("mcp__s__echo", text="there")).text == "there"
        assert "ListMcpResources" in [tool.name for tool in (await box.offering()).tools]
        write(permissions={"deny": ["Write"]})
        await box.reload()
        assert states(box) == {}
        offered = [tool.name for tool in (await box.offering()).tools]
        assert "Write" not in offered and "mcp__s__echo" not in offered
    assert stage.pids()


@pytest.mark.asyncio
async def test_limits_of_the_settings_hold_for_tools_of_servers_and_go_with_them(stage):
    limits = {"tools": {"mcp__s__echo": {"rateLimit": {"calls": 1, "seconds": 3600}}}}
    async with stage.box(settings=limits, s={**stage.entry(), "alwaysLoad": True}) as box:
        assert (await box.call("mcp__s__echo", text="a")).text == "a"
        refused = await box.call("mcp__s__echo", text="b")
        assert refused.is_error and "may be called once in 3600 s" in refused.text
        servers = box.workspace.services.mcp_servers
        servers.enable("s", False)
        assert "mcp__s__echo" not in box.catalog
        servers.enable("s", True)
        await box.connected()
        tool = box.catalog.find("mcp__s__echo")
        assert tool is not None and tool.unwrapped is servers.servers["s"].tools["mcp__s__echo"]
        assert (await box.call("mcp__s__echo", text="c")).text == "c"
        assert (await box.call("mcp__s__echo", text="d")).is_error


@pytest.mark.asyncio
async def test_the_tools_of_servers_are_there_once_a_toolbox_is_open(stage):
    async with Toolbox(stage.folder, settings={"mcpServers": {"s": stage.entry()}}) as box:
        assert "mcp__s__echo" in [each["name"] for each in await box.tools_for("anthropic")]
        assert "mcp__s__echo" in [each.name for each in FrameworkCalls(box).tools()]


@pytest.mark.asyncio
async def test_opening_waits_no_longer_than_it_is_told_and_names_the_servers_that_are_late(stage, states, caplog):
    async with stage.box(s=stage.entry(hang=True), wait_for_servers=0.05) as box:
        assert states(box) == {"s": "connecting"}
    assert "still starting after 0.05 s: MCP s" in caplog.text
