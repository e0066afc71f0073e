"""The real Claude Agent SDK, with wieldy as its program: `query()`, `ClaudeSDKClient`, permissions, hooks and MCP servers."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.needs import import_or_skip

sdk = import_or_skip("claude_agent_sdk")

pytestmark = [pytest.mark.peer, pytest.mark.asyncio]

READ = {"call": "Read", "input": {"file_path": "a.txt"}}
WRITE = {"call": "Write", "input": {"file_path": "new.txt", "content": "new"}}


@pytest.fixture
def options(tmp_path: Path):
    """Options for a session with a scripted model, in a project of its own."""
    project = tmp_path / "a project"
    project.mkdir()
    (project / "a.txt").write_text("alpha\n")
    program = tmp_path / "wieldy"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m wieldy "$@"\n')
    program.chmod(0o755)

    def make(*turns: list[dict[str, Any]], agents: Any = (), **more: Any) -> Any:
        script = tmp_path / "script.json"
        script.write_text(json.dumps({"turns": turns, "agents": agents}))
        env = {"HOME": str(tmp_path / "home"), "WIELDY_HOME": str(tmp_path / "state"), "PATH": os.environ["PATH"]}
        return sdk.ClaudeAgentOptions(cli_path=program, cwd=project, env=env, **{"model": f"script:{script}", **more})

    return make


async def collect(prompt: Any, options: Any) -> list[Any]:
    return [message async for message in sdk.query(prompt=prompt, options=options)]


def result_of(messages: list[Any]) -> Any:
    assert isinstance(messages[-1], sdk.ResultMessage)
    return messages[-1]


def tool_results(messages: list[Any]) -> list[Any]:
    users = [message for message in messages if isinstance(message, sdk.UserMessage)]
    return [block for message in users for block in message.content if isinstance(block, sdk.ToolResultBlock)]


async def test_a_query_gives_messages_tool_results_and_the_result(options):
    messages = await collect("what is in a.txt?", options([{"text": "let me see"}, READ], [{"text": "alpha"}]))
    assert isinstance(messages[0], sdk.SystemMessage)
    assert messages[0].subtype == "init"
    said = [block for m in messages if isinstance(m, sdk.AssistantMessage) for block in m.content]
    assert [type(block) for block in said] == [sdk.TextBlock, sdk.ToolUseBlock, sdk.TextBlock]
    (read,) = tool_results(messages)
    assert "alpha" in str(read.content)
    assert not read.is_error
    result = result_of(messages)
    assert (result.subtype, result.is_error, result.result, result.num_turns) == ("success", False, "alpha", 2)


async def test_prompts_can_be_streamed(options):
    async def prompts() -> AsyncIterator[dict[str, Any]]:
        for text in ("one", "two"):
            yield {"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": None}

    messages = await collect(prompts(), options([{"text": "first"}], [{"text": "second"}]))
    assert [m.result for m in messages if isinstance(m, sdk.ResultMessage)] == ["first", "second"]


async def test_what_nobody_allows_is_denied_and_the_query_still_succeeds(options):
    messages = await collect("write", options([WRITE], [{"text": "I was not allowed"}]))
    assert [block.is_error for block in tool_results(messages)] == [True]
    assert result_of(messages).subtype == "success"
    assert [denial["tool_name"] for denial in result_of(messages).permission_denials] == ["Write"]


async def test_an_error_result_is_an_error_of_the_query(options):
    with pytest.raises(sdk.ResultError, match="stopped after 1 turn"):
        await collect("go", options([READ], [{"text": "done"}], max_turns=1))


async def test_permission_questions_go_to_the_callback_with_reasons_and_the_rule_on_offer(options, tmp_path):
    asked: list[tuple[str, dict[str, Any], Any]] = []

    async def can_use_tool(name: str, input: dict[str, Any], context: Any) -> Any:
        asked.append((name, input, context))
        if name == "Bash":
            return sdk.PermissionResultDeny(message="not that one")
        return sdk.PermissionResultAllow(updated_input={**input, "content": "changed"})

    bash = {"call": "Bash", "input": {"command": "curl http://127.0.0.1:1/"}}
    turns = ([WRITE], [bash], [{"text": "done"}])
    messages = await collect("go", options(*turns, can_use_tool=can_use_tool))
    assert (tmp_path / "a project" / "new.txt").read_text() == "changed"
    written, refused = tool_results(messages)
    assert not written.is_error
    assert "not that one" in str(refused.content)
    name, input, context = asked[0]
    assert (name, Path(input["file_path"]).name) == ("Write", "new.txt")
    assert context.suggestions[0].rules[0].tool_name == "Edit"
    assert context.decision_reason
    assert context.tool_use_id


async def test_a_rule_granted_with_an_answer_holds_for_the_session(options):
    asked: list[str] = []

    async def can_use_tool(name: str, input: dict[str, Any], context: Any) -> Any:
        asked.append(name)
        rule = sdk.PermissionUpdate(
            type="addRules", rules=[sdk.types.PermissionRuleValue("Write")], behavior="allow", destination="session"
        )
        return sdk.PermissionResultAllow(updated_permissions=[rule])

    again = {"call": "Write", "input": {"file_path": "other.txt", "content": "x"}}
    messages = await collect("go", options([WRITE], [again], [{"text": "done"}], can_use_tool=can_use_tool))
    assert [block.is_error for block in tool_results(messages)] == [False, False], tool_results(messages)
    assert asked == ["Write"]


async def test_a_denial_can_interrupt_the_run(options):
    async def can_use_tool(name: str, input: dict[str, Any], context: Any) -> Any:
        return sdk.PermissionResultDeny(message="stop", interrupt=True)

    messages = await collect("go", options([WRITE], [{"text": "not reached"}], can_use_tool=can_use_tool))
    assert result_of(messages).terminal_reason == "interrupted"


async def test_a_callback_that_fails_is_a_denial(options, tmp_path):
    async def can_use_tool(name: str, input: dict[str, Any], context: Any) -> Any:
        raise RuntimeError("out of order")

    messages = await collect("go", options([WRITE], [{"text": "done"}], can_use_tool=can_use_tool))
    assert "out of order" in str(tool_results(messages)[0].content)
    assert not (tmp_path / "a project" / "new.txt").exists()


async def test_hooks_of_the_host_see_calls_and_can_block_them(options):
    seen: list[tuple[str, str]] = []

    async def before(input: Any, call_id: str | None, context: Any) -> Any:
        seen.append((input["tool_name"], input["hook_event_name"]))
        if input["tool_name"] == "Write":
            reason = {"permissionDecision": "deny", "permissionDecisionReason": "no writing today"}
            return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **reason}}
        return {}

    async def prompt(input: Any, call_id: str | None, context: Any) -> Any:
        seen.append((input["prompt"], input["hook_event_name"]))
        return {}

    hooks = {
        "PreToolUse": [sdk.HookMatcher(matcher="Write|Read", hooks=[before], timeout=5, on_failure="block")],
        "UserPromptSubmit": [sdk.HookMatcher(hooks=[prompt])],
    }
    turns = ([READ], [WRITE], [{"text": "done"}])
    messages = await collect("go", options(*turns, hooks=hooks, allowed_tools=["Write"]))
    assert seen == [("go", "UserPromptSubmit"), ("Read", "PreToolUse"), ("Write", "PreToolUse")]
    read, written = tool_results(messages)
    assert not read.is_error
    assert "no writing today" in str(written.content)


async def test_tools_of_an_mcp_server_in_the_hosts_process_are_called(options):
    @sdk.tool("add", "Add two numbers", {"a": float, "b": float})
    async def add(args: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": f"Sum: {args['a'] + args['b']:g}"}]}

    server = sdk.create_sdk_mcp_server(name="calc", version="1.0.0", tools=[add])
    call = {"call": "mcp__calc__add", "input": {"a": 2, "b": 3}}
    given = options(
        [call], [{"text": "5"}], mcp_servers={"calc": server}, allowed_tools=["mcp__calc__add"], strict_mcp_config=True
    )
    messages = await collect("add", given)
    (result,) = tool_results(messages)
    assert "Sum: 5" in str(result.content)
    assert "mcp__calc__add" in messages[0].data["tools"]


async def test_partial_messages_arrive_as_stream_events(options):
    given = options([{"text": "hello", "chunk": 2}], include_partial_messages=True)
    messages = await collect("go", given)
    events = [m.event for m in messages if isinstance(m, sdk.StreamEvent)]
    assert [e["delta"]["text"] for e in events if e["type"] == "content_block_delta"] == ["he", "ll", "o"]


async def test_thoughts_are_parsed_with_and_without_a_signature(options):
    messages = await collect("go", options([{"think": "hm", "signature": ""}, {"text": "so"}]))
    said = [block for m in messages if isinstance(m, sdk.AssistantMessage) for block in m.content]
    assert isinstance(said[0], sdk.ThinkingBlock)


async def test_a_client_keeps_a_conversation_over_several_queries(options):
    async with sdk.ClaudeSDKClient(options([{"text": "one"}], [{"text": "two"}])) as client:
        for prompt, answer in (("first", "one"), ("second", "two")):
            await client.query(prompt)
            messages = [message async for message in client.receive_response()]
            assert result_of(messages).result == answer


async def test_a_client_can_interrupt_and_go_on(options):
    sleep = {"call": "Bash", "input": {"command": "sleep 30"}}
    given = options([sleep], [{"text": "fresh"}], allowed_tools=["Bash(sleep:*)"])
    async with sdk.ClaudeSDKClient(given) as client:
        await client.query("wait")
        async for message in client.receive_response():
            if isinstance(message, sdk.AssistantMessage):
                await client.interrupt()
        assert message.terminal_reason == "interrupted"
        await client.query("go on")
        messages = [message async for message in client.receive_response()]
    assert result_of(messages).result == "fresh"


async def test_a_client_changes_mode_and_model_while_connected(options, tmp_path):
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"turns": [[{"text": "from the other model"}]]}))
    async with sdk.ClaudeSDKClient(options([WRITE], [{"text": "done"}])) as client:
        await client.set_permission_mode("acceptEdits")
        await client.query("write")
        messages = [message async for message in client.receive_response()]
        assert [block.is_error for block in tool_results(messages)] == [False]
        await client.set_model(f"script:{other}")
        await client.query("and now?")
        messages = [message async for message in client.receive_response()]
        assert result_of(messages).result == "from the other model"
        with pytest.raises(Exception, match="names no provider"):
            await client.set_model("nonsense")
        with pytest.raises(Exception, match="no permission mode"):
            await client.set_permission_mode("yolo")


async def test_a_client_learns_about_servers_and_context(options):
    @sdk.tool("ping", "Answer", {})
    async def ping(args: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": "pong"}]}

    server = sdk.create_sdk_mcp_server(name="calc", tools=[ping])
    given = options([{"text": "hi"}], mcp_servers={"calc": server, "gone": {"command": "/no/such/program"}})
    async with sdk.ClaudeSDKClient(given) as client:
        await client.query("hello")
        async for _ in client.receive_response():
            pass
        with pytest.raises(Exception, match="no program"):
            await client.reconnect_mcp_server("gone")
        status = {each["name"]: each for each in (await client.get_mcp_status())["mcpServers"]}
        assert status["calc"]["status"] == "connected"
        assert [tool["name"] for tool in status["calc"]["tools"]] == ["ping"]
        assert status["gone"]["status"] == "failed"
        assert "no program" in status["gone"]["error"]
        usage = await client.get_context_usage()
        assert 0 < usage["totalTokens"] < usage["maxTokens"]
        assert {"System prompt", "System tools", "MCP tools"} <= {each["name"] for each in usage["categories"]}
        info = await client.get_server_info()
        assert info is not None
        assert info["agents"]


async def test_a_client_stops_a_background_shell(options):
    start = {"call": "Bash", "input": {"command": "sleep 60", "run_in_background": True}}
    given = options([start], [{"text": "started"}], allowed_tools=["Bash(sleep:*)"])
    async with sdk.ClaudeSDKClient(given) as client:
        await client.query("start it")
        async for _ in client.receive_response():
            pass
        await client.stop_task("bash_1")
        with pytest.raises(Exception, match="no background shell"):
            await client.stop_task("bash_7")


async def test_a_client_rewinds_files_to_before_a_prompt(options, tmp_path):
    edit = {"call": "Edit", "input": {"file_path": "a.txt", "old_string": "alpha", "new_string": "beta"}}
    given = options(
        [{"text": "ready"}],
        [READ],
        [edit, WRITE],
        [{"text": "edited"}],
        permission_mode="acceptEdits",
        enable_file_checkpointing=True,
        extra_args={"replay-user-messages": None},
    )
    project = tmp_path / "a project"
    async with sdk.ClaudeSDKClient(given) as client:
        await client.query("hello")
        messages = [message async for message in client.receive_response()]
        await client.query("edit it")
        messages = [message async for message in client.receive_response()]
        assert (project / "a.txt").read_text() == "beta\n"
        prompt = next(m for m in messages if isinstance(m, sdk.UserMessage) and m.content == "edit it")
        await client.rewind_files(prompt.uuid)
        with pytest.raises(Exception, match="that id"):
            await client.rewind_files("nothing")
    assert (project / "a.txt").read_text() == "alpha\n"
    assert not (project / "new.txt").exists()


async def test_the_questions_of_the_model_are_answered_by_the_callback(options):
    async def can_use_tool(name: str, input: dict[str, Any], context: Any) -> Any:
        assert name == "AskUserQuestion"
        answers = {input["questions"][0]["question"]: "left", input["questions"][1]["question"]: "a, b"}
        return sdk.PermissionResultAllow(updated_input={**input, "answers": answers})

    questions = [
        {"question": "Which way?", "options": ["left", "right"]},
        {"question": "What else?", "options": ["a", "b", "c"], "multi_select": True},
    ]
    turns = ([{"call": "AskUser", "input": {"questions": questions}}], [{"text": "done"}])
    messages = await collect("go", options(*turns, can_use_tool=can_use_tool))
    (answered,) = tool_results(messages)
    assert "Which way?\\n→ left" in str(answered.content)
    assert "a; b" in str(answered.content)


async def test_a_question_that_the_callback_only_allows_has_no_answer(options):
    async def can_use_tool(name: str, input: dict[str, Any], context: Any) -> Any:
        return sdk.PermissionResultAllow()

    turns = ([{"call": "AskUser", "input": {"questions": [{"question": "Which?"}]}}], [{"text": "done"}])
    (answered,) = tool_results(await collect("go", options(*turns, can_use_tool=can_use_tool)))
    assert "does not want to answer" in str(answered.content)


async def test_a_client_turns_a_server_off_and_on(options):
    @sdk.tool("ping", "Answer", {})
    async def ping(args: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": "pong"}]}

    given = options([{"text": "hi"}], mcp_servers={"calc": sdk.create_sdk_mcp_server(name="calc", tools=[ping])})
    async with sdk.ClaudeSDKClient(given) as client:
        await client.query("hello")
        async for _ in client.receive_response():
            pass
        await client.toggle_mcp_server("calc", False)
        assert (await client.get_mcp_status())["mcpServers"] == []
        await client.toggle_mcp_server("calc", True)
        await client.reconnect_mcp_server("calc")
        assert (await client.get_mcp_status())["mcpServers"][0]["status"] == "connected"
        with pytest.raises(Exception, match="no MCP server"):
            await client.toggle_mcp_server("other", True)


async def test_the_tools_and_the_system_prompt_of_the_options_are_those_of_the_session(options):
    given = options([{"text": "hi"}], tools=["Read", "Grep"], system_prompt="You are a parrot.")
    assert (await collect("hello", given))[0].data["tools"] == ["Grep", "Read"]
    none = options([{"text": "hi"}], tools=[])
    assert (await collect("hello", none))[0].data["tools"] == []
    preset = options([{"text": "hi"}], tools={"type": "preset", "preset": "claude_code"})
    assert "Bash" in (await collect("hello", preset))[0].data["tools"]


async def test_an_answer_by_schema_is_structured_output(options):
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    given = options(
        [{"text": "five"}], [{"text": '{"sum": 5}'}], output_format={"type": "json_schema", "schema": schema}
    )
    result = result_of(await collect("2 + 3?", given))
    assert (result.subtype, result.structured_output) == ("success", {"sum": 5})


async def test_agents_of_the_options_do_tasks(options):
    reviewer = sdk.AgentDefinition(description="Reviews code", prompt="You review.", tools=["Read"], model="inherit")
    task = {"call": "Agent", "input": {"agent_type": "reviewer", "prompt": "review it", "description": "review"}}
    part = {"type": "reviewer", "turns": [[READ], [{"text": "all is well"}]]}
    given = options([task], [{"text": "done"}], agents=[part])
    given.agents = {"reviewer": reviewer}
    messages = await collect("go", given)
    assert "reviewer" in messages[0].data["agents"]
    inside = [m for m in messages if isinstance(m, sdk.AssistantMessage) and m.parent_tool_use_id]
    assert inside
    assert "all is well" in str(tool_results(messages)[-1].content)


async def test_an_agent_that_cannot_be_used_fails_the_connection(options):
    given = options([{"text": "hi"}])
    given.agents = {"reviewer": sdk.AgentDefinition(description="x", prompt="y", tools=["NoSuchTool"])}
    with pytest.raises(Exception, match="NoSuchTool"):
        await collect("go", given)
