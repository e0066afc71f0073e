"""The Claude Agent SDK in this process: a session as its transport, and the tools of a toolbox as its MCP server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.needs import import_or_skip

from wieldy import Script, Toolbox

sdk = import_or_skip("claude_agent_sdk")
from wieldy.faces.headless.claude_sdk import InProcessTransport

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.asyncio]


async def collect(prompt: str, transport: InProcessTransport, **options: Any) -> list[Any]:
    given = sdk.ClaudeAgentOptions(**options)
    return [message async for message in sdk.query(prompt=prompt, options=given, transport=transport)]


def tool_results(messages: list[Any]) -> list[Any]:
    users = [message for message in messages if isinstance(message, sdk.UserMessage)]
    return [block for message in users for block in message.content if isinstance(block, sdk.ToolResultBlock)]


async def test_a_query_runs_on_a_session_in_this_process(project):
    model = Script().calls("Read", file_path="a.txt").says("alpha")
    transport = InProcessTransport(root=project, model=model, settings={})
    messages = await collect("look", transport)
    assert "alpha" in str(tool_results(messages)[0].content)
    assert isinstance(messages[-1], sdk.ResultMessage)
    assert (messages[-1].result, messages[-1].subtype) == ("alpha", "success")
    assert len(model.requests) == 2


async def test_permission_callbacks_and_hooks_of_the_options_are_asked(project):
    asked: list[str] = []

    async def can_use_tool(name: str, input: dict[str, Any], context: Any) -> Any:
        asked.append(name)
        return sdk.PermissionResultAllow()

    async def before(input: Any, call_id: str | None, context: Any) -> Any:
        asked.append(f"hook {input['tool_name']}")
        return {}

    model = Script().calls("Write", file_path="new.txt", content="new").says("done")
    transport = InProcessTransport(root=project, model=model, settings={})
    hooks = {"PreToolUse": [sdk.HookMatcher(hooks=[before])]}
    await collect("write", transport, can_use_tool=can_use_tool, hooks=hooks)
    assert asked == ["hook Write", "Write"]
    assert (project / "new.txt").read_text() == "new"


async def test_without_a_callback_what_would_be_asked_is_denied(project):
    model = Script().calls("Write", file_path="new.txt", content="new").says("done")
    messages = await collect("write", InProcessTransport(root=project, model=model, settings={}))
    assert tool_results(messages)[0].is_error
    assert not (project / "new.txt").exists()


async def test_mcp_servers_of_the_options_are_called(project):
    @sdk.tool("add", "Add two numbers", {"a": float, "b": float})
    async def add(args: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": f"Sum: {args['a'] + args['b']:g}"}]}

    servers = {"calc": sdk.create_sdk_mcp_server(name="calc", tools=[add])}
    model = Script().calls("mcp__calc__add", a=2, b=3).says("5")
    settings = {"permissions": {"allow": ["mcp__calc__add"]}}
    transport = InProcessTransport(root=project, model=model, settings=settings, mcp_servers=servers)
    messages = await collect("add", transport, mcp_servers=servers)
    assert "Sum: 5" in str(tool_results(messages)[0].content)


async def test_a_client_converses_interrupts_and_changes_the_mode(project):
    model = Script([[{"call": "Bash", "input": {"command": "sleep 30"}}], [{"text": "one"}], [{"text": "two"}]])
    settings = {"permissions": {"allow": ["Bash(sleep:*)"]}}
    transport = InProcessTransport(root=project, model=model, settings=settings)
    async with sdk.ClaudeSDKClient(sdk.ClaudeAgentOptions(), transport=transport) as client:
        await client.query("wait")
        async for message in client.receive_response():
            if isinstance(message, sdk.AssistantMessage):
                await client.interrupt()
        assert message.terminal_reason == "interrupted"
        await client.set_permission_mode("plan")
        assert transport.session is not None
        assert transport.session.box.mode == "plan"
        for answer in ("one", "two"):
            await client.query("go on")
            messages = [message async for message in client.receive_response()]
            assert messages[-1].result == answer


async def test_leaving_a_client_early_stops_its_session(project):
    model = Script([[{"call": "Bash", "input": {"command": "sleep 30"}}], [{"text": "late"}]])
    settings = {"permissions": {"allow": ["Bash(sleep:*)"]}}
    transport = InProcessTransport(root=project, model=model, settings=settings)
    async with asyncio.timeout(20), sdk.ClaudeSDKClient(sdk.ClaudeAgentOptions(), transport=transport) as client:
        await client.query("wait")
        async for message in client.receive_response():
            if isinstance(message, sdk.AssistantMessage):
                break
    assert transport.session is not None
    assert not transport.session.running
    assert not transport.is_ready()


async def test_options_that_make_no_session_are_an_error_of_the_query(project):
    transport = InProcessTransport(root=project, model="nonsense/x", settings={"permissions": {"deny": ["Bash("]}})
    with pytest.raises(Exception, match="Bash"):
        await collect("x", transport)


@pytest.mark.parametrize("answer", [True, False])
async def test_the_tools_of_a_toolbox_are_a_server_whose_questions_the_host_asks(box, project, answer, tmp_path):
    """The agent on the other side is wieldy, too: it speaks the same protocol as the SDK's own program."""
    asked: list[str] = []

    async def can_use_tool(name: str, input: dict[str, Any], context: Any) -> Any:
        asked.append(name)
        return sdk.PermissionResultAllow() if answer else sdk.PermissionResultDeny(message="no")

    server = box.as_claude_sdk()
    assert (server["type"], server["name"]) == ("sdk", "wieldy")
    model = (
        Script()
        .calls("mcp__wieldy__Read", file_path="a.txt")
        .then()
        .calls("mcp__wieldy__Read", file_path="secret.txt")
        .then()
        .calls("mcp__wieldy__picture")
        .then()
        .calls("mcp__wieldy__Write", file_path="new.txt", content="new")
        .says("done")
    )
    other = tmp_path / "elsewhere"
    other.mkdir()
    transport = InProcessTransport(root=other, model=model, settings={}, mcp_servers=["wieldy"], builtins=False)
    servers = {"wieldy": server}
    messages = await collect("go", transport, mcp_servers=servers, hooks=server.hooks, can_use_tool=can_use_tool)
    read, denied, picture, written = tool_results(messages)
    assert "alpha" in str(read.content)
    assert denied.is_error
    assert "secret" in str(denied.content)
    assert [block["type"] for block in picture.content] == ["text", "image"]
    assert "mcp__wieldy__Write" in asked
    assert (project / "new.txt").exists() == answer
    assert written.is_error != answer


async def test_without_the_hooks_a_question_is_an_error_result(project, tmp_path):
    async with Toolbox(project, settings={}) as box:
        model = Script().calls("mcp__wieldy__Write", file_path="new.txt", content="new").says("done")
        settings = {"permissions": {"allow": ["mcp__wieldy__Write"]}}
        transport = InProcessTransport(
            root=Path(tmp_path), model=model, settings=settings, mcp_servers=["wieldy"], builtins=False
        )
        messages = await collect("go", transport, mcp_servers={"wieldy": box.as_claude_sdk()})
    assert "nobody was asked" in str(tool_results(messages)[0].content)
    assert not (project / "new.txt").exists()


async def test_an_option_that_no_session_has_is_an_error_at_once(project):
    with pytest.raises(TypeError, match="modle"):
        InProcessTransport(root=project, modle="m")
