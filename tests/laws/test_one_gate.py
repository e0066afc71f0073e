"""One gate: the same calls through each way in are decided alike, fire the same hooks, and leave the same files.

The ways in and the kinds of tools are listed from the code: a new one that is not in the tables here fails.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from http.client import HTTPConnection
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any
from urllib.parse import urlsplit

import pytest
from msgspec import Struct
from tests.needs import import_or_skip

import wieldy
from wieldy import Script, Session, Tool, Toolbox, tool
from wieldy.core.outcome import Done, Failed, Refused, ToolResult

SOURCE = Path(wieldy.__file__).parent
SCRIPTED_SERVER = Path(__file__).parents[1] / "unit/mcp/scripted_server.py"
TOKEN = "a-token-of-enough-length"

# Every module that hands calls to the engine, and the way in that the tests below take through it.
WAYS_IN = {
    "engine/toolbox.py": "Toolbox.call",
    "engine/turn.py": "Turn",
    "agent/model_turn.py": "Session",
    "agent/session.py": "Session: calls that a person makes by hand",
    "agent/subagent_toolbox.py": "sub-agent",
    "agent/deferred.py": "Session: questions that are answered later are calls of `model_turn`",
    "faces/terminal/commands/by_hand.py": "Toolbox.call: commands that a person types",
    "faces/terminal/chat.py": "Session",
    "engine/framework_calls.py": "pydantic-ai, OpenAI Agents, LangChain",
    "faces/headless/claude_sdk.py": "Claude SDK: transport, Claude SDK: server",
    "faces/mcp_server/server.py": "MCP over stdio, MCP over HTTP",
    "cli/call.py": "wieldy call",
    "cli/run.py": "wieldy -p, stream-json",
    "faces/batch/attempt.py": "wieldy batch",
}
# Adapters that make no call of their own.
OTHER_ADAPTERS = {
    "harbor": "runs `wieldy -p` in a container",
    "inspect_ai": "runs `wieldy -p` in a container",
    "pydantic_ai_workspace": "no tools: the file operations of a framework, each judged as a call of Read, Write or Bash",
}
KINDS_OF_TOOLS = {
    "FunctionTool": "function",
    "HandlerTool": "function",
    "ServerTool": "MCP",
    "WrappedTool": "wrapped",
    "TimeLimited": "wrapped",
    "RateLimited": "wrapped",
    "Cached": "wrapped",
    "Logged": "wrapped",
    "ElicitationTool": "never in a catalog: a question of a server, as a hook and the person see it",
    "_NavigateTool": "never in a catalog: a redirect of the browser, as the rules see it",
}


class Call(Struct, frozen=True):
    """A call and how it ends. `asked`: nobody is there to say yes.

    `stateful`: it depends on calls before it. `spelling`: it is not called by its own name, which a framework looks up itself.
    """

    name: str
    input: dict[str, Any]
    end: str
    kind: str = "built-in"
    stateful: bool = False
    spelling: bool = False


def calls() -> list[Call]:
    return [
        # waits for the server; its tools are deferred
        Call("ToolSearch", {"query": "select:mcp__s__echo"}, "done", "deferred"),
        # malformed, unknown, switched off
        Call("Raed", {}, "lookup"),
        Call("mcp__s__nothing", {}, "lookup", "MCP"),
        Call("MemoryRead", {}, "lookup"),
        Call("MemoryWrite", {"path": "a", "content": "b"}, "lookup"),
        Call("BrowserClick", {"ref": "e1"}, "lookup"),
        Call("ExitPlan", {"plan": "x"}, "lookup"),
        Call("StickerRequest", {"name": "A", "street": "S 1", "city": "C", "country": "DE"}, "lookup"),
        Call("disabled", {}, "lookup", "function"),
        Call("disabled_later", {}, "lookup", "function"),
        Call("Read", {"file_path": 3}, "schema"),
        Call("Read", {"file_path": "a.txt", "lines": 3}, "schema"),
        Call("Grep", {}, "schema"),
        Call("mcp__s__echo", {}, "schema", "MCP"),
        Call("add", {"a": "x", "b": 1}, "schema", "function"),
        # allowed
        Call("Read", {"file_path": "a.txt"}, "done"),
        Call("Read", {"file_path": "b.txt"}, "done"),
        Call("ReadMcpResourceTool", {"server": "s", "uri": "mem://b"}, "done", "MCP", spelling=True),
        Call("LS", {"path": "sub"}, "done"),
        Call("Glob", {"pattern": "*.txt"}, "done"),
        Call("Grep", {"pattern": "alpha", "output_mode": "content"}, "done", "wrapped"),
        Call("Grep", {"pattern": "alpha", "output_mode": "content", "path": "sub"}, "done", "wrapped"),
        Call("Bash", {"command": "cat a.txt"}, "done"),
        Call("Bash", {"command": "touch out/touched"}, "done"),
        Call("Write", {"file_path": "out/new.txt", "content": "new\n"}, "done"),
        Call("Edit", {"file_path": "out/new.txt", "old_string": "new", "new_string": "newer"}, "done", stateful=True),
        Call("mcp__s__echo", {"text": "hello"}, "done", "MCP"),
        Call("mcp__s__slowly", {}, "done", "wrapped MCP"),
        Call("ReadMcpResource", {"server": "s", "uri": "mem://a"}, "done", "MCP"),
        Call("add", {"a": 1, "b": 2}, "done", "function"),
        Call("limited", {}, "done", "wrapped function"),
        # failed
        Call("Read", {"file_path": "missing.txt"}, "failed"),
        Call("Bash", {"command": "false"}, "failed"),
        Call("fails", {}, "failed", "function"),
        Call("Edit", {"file_path": "b.txt", "old_string": "nowhere", "new_string": "x"}, "not done"),
        # denied
        Call("Read", {"file_path": ".env"}, "permission"),
        Call("Bash", {"command": "cat .env"}, "permission"),
        Call("Bash", {"command": "curl https://example.test"}, "permission"),
        Call("Write", {"file_path": "locked/x", "content": "x"}, "permission"),
        Call("WebFetch", {"url": "https://denied.test/", "prompt": "x"}, "permission"),
        Call("mcp__s__sleep", {}, "permission", "MCP"),
        Call("ReadMcpResource", {"server": "s", "uri": "file:.env"}, "permission", "MCP"),
        Call("Write", {"file_path": "a.txt/b", "content": "x"}, "not done"),
        # asked
        Call("Write", {"file_path": "asked.txt", "content": "x"}, "asked"),
        Call("Bash", {"command": "touch asked.txt"}, "asked"),
        Call("WebFetch", {"url": "https://asked.test/", "prompt": "x"}, "asked"),
        Call("mcp__s__roots", {}, "asked", "MCP"),
        Call("changes", {}, "asked", "function"),
        # hooked
        Call("Glob", {"pattern": "blocked*"}, "permission"),
        Call("mcp__s__echo", {"text": "blocked"}, "permission", "MCP"),
        Call("Bash", {"command": "cat b.txt # blocked"}, "permission"),
        # limited in number
        Call("LS", {"path": "out"}, "done", "wrapped"),
        Call("LS", {"path": "."}, "check", "wrapped", stateful=True),
        Call("limited", {"again": True}, "check", "wrapped function", stateful=True),
    ]  # fmt: skip


class Seen(Struct, frozen=True):
    """What a way in showed of a call; None for `is_error` where its API has no word for it."""

    is_error: bool | None
    text: str


class Place(Struct, frozen=True):
    """A project and a home, the same for each way in."""

    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "project"

    @property
    def log(self) -> Path:
        return self.folder / "hooks.log"

    def env(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ}
        home = str(self.folder / "home")
        return {**kept, "HOME": home, "WIELDY_HOME": home, "WIELDY_MCP_TOKEN": TOKEN}

    def make(self) -> None:
        for name in ("project/sub", "project/out", "project/locked", "home"):
            (self.folder / name).mkdir(parents=True)
        for name, text in (("a.txt", "alpha\n"), ("b.txt", "beta\n"), (".env", "SECRET\n"), ("sub/c.txt", "alpha\n")):
            (self.root / name).write_text(text)
        hook = self.folder / "hook.sh"
        hook.write_text(
            f"#!/bin/sh\nevent=$(cat)\nprintf '%s\\n' \"$event\" >> {self.log}\n"
            'case "$event" in *PreToolUse*blocked*) echo "the hook says no" >&2; exit 2;; esac\n'
        )
        hook.chmod(0o700)
        hooked = [
            {"matcher": "Glob|Bash|Write|Edit|mcp__s__echo", "hooks": [{"type": "command", "command": str(hook)}]}
        ]
        habits = json.dumps({"log": str(self.folder / "server.log")})
        server = {"command": sys.executable, "args": ["-I", "-S", str(SCRIPTED_SERVER), habits]}
        allow = ["Edit(/out/**)", "Bash(touch out/touched)", "Bash(false)", "mcp__s__echo", "mcp__s__slowly"]
        allow += ["mcp__s__resources.read", "add", "fails", "limited"]
        deny = ["Read(.env)", "Bash(curl:*)", "Edit(/locked/**)", "WebFetch(domain:denied.test)", "mcp__s__sleep"]
        settings = {
            "permissions": {
                "allow": [rule.replace("(/", f"(/{self.root}/") for rule in allow],
                "deny": [rule.replace("(/", f"(/{self.root}/") for rule in deny],
            },
            "hooks": dict.fromkeys(("PreToolUse", "PostToolUse", "PostToolUseFailure"), hooked),
            "mcpServers": {"s": server},
            "defer": "always",
            "tools": {
                "Grep": {"timeout": 30, "cacheSeconds": 60},
                "LS": {"rateLimit": {"calls": 2, "seconds": 600}},
                "limited": {"rateLimit": {"calls": 1, "seconds": 600}},
                "mcp__s__slowly": {"timeout": 60},
            },
        }
        (self.folder / "home" / "settings.json").write_text(json.dumps(settings))

    def hooks(self) -> list[tuple[str, str, str]]:
        """Event, tool and input of each run of a hook."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        rows = [json.loads(line) for line in lines]
        return [
            (row["hook_event_name"], row["tool_name"], self.plain(json.dumps(row["tool_input"], sort_keys=True)))
            for row in rows
        ]

    def files(self) -> dict[str, str]:
        found = (path for path in sorted(self.root.rglob("*")) if path.is_file())
        return {str(path.relative_to(self.root)): path.read_text() for path in found}

    def plain(self, text: str) -> str:
        """A text without what differs from run to run."""
        text = re.split(r"Did you mean|Available tools:|If its MCP server", text.replace(str(self.folder), "PLACE"))[0]
        return re.sub(r"[0-9a-f]{8,}|\d+\.\d+ s|saved to \S+", "…", text).strip()


def function_tools() -> list[Tool]:
    @tool(enabled=lambda *_: "switched off", read_only=True)
    def disabled() -> str:
        """Is off."""
        raise AssertionError("a disabled tool ran")

    async def later(workspace: Any) -> str:
        await asyncio.sleep(0)
        return "switched off later"

    @tool(enabled=later, read_only=True)
    def disabled_later() -> str:
        """Is off."""
        raise AssertionError("a disabled tool ran")

    @tool(read_only=True)
    def add(a: int, b: int) -> str:
        """Adds."""
        return str(a + b)

    @tool(read_only=True)
    def fails() -> str:
        """Fails."""
        raise ValueError("no luck")

    @tool
    def changes() -> str:
        """Changes something."""
        raise AssertionError("what nobody allowed ran")

    @tool(read_only=True)
    def limited(again: bool = False) -> str:
        """May be called once."""
        return "once"

    return [disabled, disabled_later, add, fails, changes, limited]


def box_of(place: Place, **options: Any) -> Toolbox:
    box = Toolbox(place.root, load_settings=True, env=place.env(), **options)
    for each in function_tools():
        box.add(each)
    return box


def seen_result(result: ToolResult) -> Seen:
    return Seen(result.is_error, result.text)


def text_of_content(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = [part if isinstance(part, Mapping) else part.__dict__ for part in content]
    return "\n".join(str(part["text"]) for part in parts if part.get("text") is not None)


def seen_blocks(blocks: Sequence[Mapping[str, Any]]) -> list[Seen]:
    return [Seen(bool(block.get("is_error")), text_of_content(block["content"])) for block in blocks]


# The ways in


async def by_call(place: Place, table: Sequence[Call]) -> list[Seen | None]:
    async with box_of(place) as box:
        return [seen_result(await box.call(call.name, call.input)) for call in table]


async def by_turn(place: Place, table: Sequence[Call]) -> list[Seen | None]:
    seen: list[Seen | None] = []
    async with box_of(place) as box:
        await box.connected(30)
        for number, call in enumerate(table):
            async with box.turn() as turn:
                turn.submit({"type": "tool_use", "id": f"c{number}", "name": call.name, "input": call.input})
                seen += map(seen_result, await turn.results())
    return seen


def script_of(table: Sequence[Call], prefix: str = "") -> list[list[dict[str, Any]]]:
    turns: list[list[dict[str, Any]]] = [[{"call": prefix + call.name, "input": call.input}] for call in table]
    return [*turns, [{"text": "done"}]]


def results_of(requests: Sequence[Any]) -> list[Seen | None]:
    blocks = [block for message in requests[-1].messages for block in message.content]
    return [*seen_blocks([block for block in blocks if block["type"] == "tool_result"])]


async def by_session(place: Place, table: Sequence[Call]) -> list[Seen | None]:
    model = Script(script_of(table))
    tools = function_tools()
    async with Session(place.root, model=model, load_settings=True, env=place.env(), tools=tools) as session:
        await session.box.connected(30)
        await session.ask("go")
    return results_of(model.requests)


async def by_subagent(place: Place, table: Sequence[Call]) -> list[Seen | None]:
    agent = Script(script_of(table))
    model = Script().calls("Agent", prompt="Go", description="go", agent_type="general").says("done")
    model = model.sends("general", agent)
    tools = function_tools()
    async with Session(place.root, model=model, load_settings=True, env=place.env(), tools=tools) as session:
        await session.box.connected(30)
        await session.ask("go")
    return results_of(agent.requests)


async def run_process(place: Place, words: Sequence[str], text: str = "") -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", *words, cwd=place.root, env=place.env(),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    output, errors = await process.communicate(text.encode())
    assert output, errors.decode()
    return output.decode()


CALL_PROGRAM = """
import contextlib, io, json, sys
from wieldy.cli.call import main
for name, input in json.load(sys.stdin):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main("call", [name, json.dumps(input), "--json"])
    print(json.dumps(json.loads(out.getvalue())))
"""


async def by_command(place: Place, table: Sequence[Call]) -> list[Seen | None]:
    told = json.dumps([(call.name, call.input) for call in table])
    rows = map(json.loads, (await run_process(place, ("-c", CALL_PROGRAM), told)).splitlines())
    return [Seen(row["is_error"], text_of_content(row["content"])) for row in rows]


def stream_results(output: str) -> list[Seen | None]:
    rows = [json.loads(line) for line in output.splitlines()]
    return [
        *seen_blocks(
            [
                block
                for row in rows
                if row["type"] == "user"
                for block in row["message"]["content"]
                if isinstance(block, dict) and block["type"] == "tool_result"
            ]
        )
    ]


def script_file(place: Place, table: Sequence[Call]) -> str:
    path = place.folder / "script.json"
    path.write_text(json.dumps({"turns": script_of(table)}))
    return f"script:{path}"


async def by_print(place: Place, table: Sequence[Call]) -> list[Seen | None]:
    model = script_file(place, table)
    words = ("-m", "wieldy", "-p", "go", "--model", model, "--output-format", "stream-json", "--verbose")
    return stream_results(await run_process(place, words))


async def by_stream_json(place: Place, table: Sequence[Call]) -> list[Seen | None]:
    model = script_file(place, table)
    words = ("-m", "wieldy", "--model", model, "--input-format", "stream-json", "--output-format", "stream-json")
    message = json.dumps({"type": "user", "message": {"role": "user", "content": "go"}})
    return stream_results(await run_process(place, words, message + "\n"))


async def by_batch(place: Place, table: Sequence[Call]) -> list[Seen | None]:
    row = {"id": "t", "prompt": "go", "root": str(place.root), "model": script_file(place, table)}
    tasks = place.folder / "tasks.jsonl"
    tasks.write_text(json.dumps(row) + "\n")
    options = ("--out", str(place.folder / "runs"), "--isolate", "none", "--permission-mode", "default")
    await run_process(place, ("-m", "wieldy", "batch", str(tasks), *options))
    transcript = place.folder / "runs/runs/t/1/transcript.jsonl"
    blocks = [block for line in transcript.read_text().splitlines() for block in find_results(json.loads(line))]
    return [*seen_blocks(blocks)]


def find_results(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, dict):
        if value.get("type") == "tool_result" and "tool_use_id" in value:
            yield value
        else:
            for item in value.values():
                yield from find_results(item)


def rpc(method: str, params: Mapping[str, Any], number: int) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a test", "version": "1"}}


def seen_answer(answer: Mapping[str, Any]) -> Seen:
    result = answer.get("result") or {"isError": True, "content": [{"text": answer["error"]["message"]}]}
    return Seen(bool(result.get("isError")), text_of_content(result["content"]))


async def by_mcp_stdio(place: Place, table: Sequence[Call]) -> list[Seen | None]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "wieldy", "mcp", "serve", "--servers", cwd=place.root, env=place.env(),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, limit=2**24,
    )  # fmt: skip
    assert process.stdin and process.stdout

    async def exchange(method: str, params: Mapping[str, Any], number: int) -> Mapping[str, Any]:
        assert process.stdin and process.stdout
        process.stdin.write(rpc(method, params, number).encode() + b"\n")
        while True:
            message: Mapping[str, Any] = json.loads(await process.stdout.readline())
            if message.get("id") == number and "method" not in message:
                return message

    await exchange("initialize", HELLO, 1)
    process.stdin.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
    seen: list[Seen | None] = []
    for number, call in enumerate(table, 2):
        seen.append(seen_answer(await exchange("tools/call", {"name": call.name, "arguments": call.input}, number)))
    process.stdin.close()
    await process.wait()
    return seen


async def by_mcp_http(place: Place, table: Sequence[Call]) -> list[Seen | None]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "wieldy", "mcp", "serve", "--servers", "--http", "127.0.0.1:0",
        cwd=place.root, env=place.env(), stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr
    line = b""
    while b"http://" not in line:
        line = await process.stderr.readline()
    url = urlsplit(line.decode().split()[-1])
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    headers["authorization"] = f"Bearer {TOKEN}"

    def post(method: str, params: Mapping[str, Any], number: int) -> Mapping[str, Any]:
        web = HTTPConnection(str(url.hostname), url.port or 0, timeout=60)
        web.request("POST", url.path, rpc(method, params, number), headers)
        answer = web.getresponse()
        if session := answer.getheader("mcp-session-id"):
            headers["mcp-session-id"] = session
        data = [line for line in answer.read().decode().splitlines() if line.startswith("data: {")]
        web.close()
        message: Mapping[str, Any] = json.loads(data[-1].removeprefix("data: "))
        return message

    try:
        await asyncio.to_thread(post, "initialize", HELLO, 1)
        seen: list[Seen | None] = []
        for number, call in enumerate(table, 2):
            arguments = {"name": call.name, "arguments": call.input}
            seen.append(seen_answer(await asyncio.to_thread(post, "tools/call", arguments, number)))
        return seen
    finally:
        process.terminate()
        await process.wait()


async def by_pydantic_ai(place: Place, table: Sequence[Call]) -> list[Seen | None]:
    import_or_skip("pydantic_ai")
    from pydantic_ai import RunContext
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.usage import RunUsage

    async with box_of(place, ask=lambda question: False) as box:
        await box.connected(30)
        toolset = box.as_pydantic_ai()
        seen: list[Seen | None] = []
        for number, call in enumerate(table):
            ctx: Any = RunContext(
                deps=None, model=TestModel(), usage=RunUsage(), run_step=number, tool_call_id=f"c{number}"
            )
            tools = await toolset.get_tools(ctx)
            if call.name not in tools:
                seen.append(None)
                continue
            try:
                value = await toolset.call_tool(call.name, call.input, ctx, tools[call.name])
                seen.append(Seen(False, str(getattr(value, "return_value", value))))
            except Exception as error:
                seen.append(Seen(True, str(error)))
    return seen


async def by_openai_agents(place: Place, table: Sequence[Call]) -> list[Seen | None]:
    import_or_skip("agents")
    from agents.tool_context import ToolContext

    async with box_of(place, ask=lambda question: False) as box:
        await box.connected(30)
        tools = {each.name: each for each in box.as_openai_agents()}
        seen: list[Seen | None] = []
        for number, call in enumerate(table):
            if call.name not in tools:
                seen.append(None)
                continue
            text = json.dumps(call.input)
            context: Any = ToolContext(
                context=None, tool_name=call.name, tool_call_id=f"c{number}", tool_arguments=text
            )
            value = await tools[call.name].on_invoke_tool(context, text)
            shown = value if isinstance(value, str) else text_of_content(value)
            seen.append(Seen(None, shown))
    return seen


async def by_langchain(place: Place, table: Sequence[Call]) -> list[Seen | None]:
    import_or_skip("langchain_core")
    async with box_of(place, ask=lambda question: False) as box:
        await box.connected(30)
        tools = {each.name: each for each in box.as_langchain()}
        seen: list[Seen | None] = []
        for number, call in enumerate(table):
            if call.name not in tools:
                seen.append(None)
                continue
            told = {"name": call.name, "args": call.input, "id": f"c{number}", "type": "tool_call"}
            message = await tools[call.name].ainvoke(told)
            seen.append(Seen(message.status == "error", text_of_content(message.content)))
    return seen


async def query_claude_sdk(transport: Any, **options: Any) -> list[Seen | None]:
    sdk = import_or_skip("claude_agent_sdk")
    given = sdk.ClaudeAgentOptions(**options)
    messages = [message async for message in sdk.query(prompt="go", options=given, transport=transport)]
    users = [message for message in messages if isinstance(message, sdk.UserMessage)]
    blocks = [block for message in users for block in message.content if isinstance(block, sdk.ToolResultBlock)]
    return [Seen(bool(block.is_error), text_of_content(block.content)) for block in blocks]


async def by_claude_transport(place: Place, table: Sequence[Call]) -> list[Seen | None]:
    import_or_skip("claude_agent_sdk")
    from wieldy.faces.headless.claude_sdk import InProcessTransport

    options: Any = {"load_settings": True, "env": place.env(), "tools": function_tools()}
    return await query_claude_sdk(InProcessTransport(root=place.root, model=Script(script_of(table)), **options))


async def by_claude_server(place: Place, table: Sequence[Call]) -> list[Seen | None]:
    import_or_skip("claude_agent_sdk")
    from wieldy.faces.headless.claude_sdk import InProcessTransport

    async with box_of(place) as box:
        await box.connected(30)
        server = box.as_claude_sdk()
        offered = {row.tool.name for row in await box.offer() if row.offered}
        here = [call for call in table if call.name in offered]
        elsewhere = place.folder / "elsewhere"
        elsewhere.mkdir()
        transport = InProcessTransport(
            root=elsewhere, model=Script(script_of(here, "mcp__wieldy__")), mcp_servers=["wieldy"], builtins=False,
            settings={"permissions": {"allow": ["mcp__wieldy__*"]}}, env={**place.env(), "WIELDY_HOME": str(elsewhere)},
        )  # fmt: skip
        seen = iter(await query_claude_sdk(transport, mcp_servers={"wieldy": server}))
    return [next(seen) if call.name in offered else None for call in table]


class Way(Struct, frozen=True):
    """A way in. `own_process`: it has no tools of a program. `one_box`: its calls share read state and counts.
    `lacks`: tools that it never has.

    `other_lookup`: a framework, or another toolbox, looks the tool up and words errors of its own.
    """

    run: Callable[[Place, Sequence[Call]], Awaitable[list[Seen | None]]]
    own_process: bool = False
    one_box: bool = True
    other_lookup: bool = False
    lacks: frozenset[str] = frozenset()


WAYS = {
    "Toolbox.call": Way(by_call),
    "Turn": Way(by_turn),
    "Session": Way(by_session),
    "sub-agent": Way(by_subagent, lacks=frozenset({"AskUser", "ExitPlan", "StickerRequest"})),
    "wieldy call": Way(by_command, own_process=True, one_box=False),
    "wieldy -p": Way(by_print, own_process=True),
    "stream-json": Way(by_stream_json, own_process=True),
    "wieldy batch": Way(by_batch, own_process=True),
    "MCP over stdio": Way(by_mcp_stdio, own_process=True),
    "MCP over HTTP": Way(by_mcp_http, own_process=True),
    "pydantic-ai": Way(by_pydantic_ai),
    "OpenAI Agents": Way(by_openai_agents),
    "LangChain": Way(by_langchain),
    "Claude SDK: transport": Way(by_claude_transport),
    "Claude SDK: server": Way(by_claude_server, other_lookup=True),
}
CHANGED = {"out/new.txt": "newer\n", "out/touched": ""}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made = Place(tmp_path)
    made.make()
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return made


def table_for(way: Way) -> list[Call]:
    rows = [call for call in calls() if call.name not in way.lacks]
    if way.own_process:
        rows = [call for call in rows if "function" not in call.kind]
    if way.other_lookup:
        rows = [call for call in rows if not call.spelling]
    return rows if way.one_box else [call for call in rows if not call.stateful]


class Reference(Struct, frozen=True):
    """What calls of a toolbox give and leave behind."""

    place: Place
    results: list[ToolResult]
    files: dict[str, str]
    hooks: list[tuple[str, str, str]]
    changes: list[tuple[str, str, list[str]]]


REFERENCES: dict[tuple[Any, ...], Reference] = {}


async def reference_for(table: Sequence[Call], folder: Path) -> Reference:
    key = tuple((call.name, json.dumps(call.input)) for call in table)
    if key not in REFERENCES:
        place = Place(folder)
        place.make()
        os.environ["WIELDY_HOME"] = os.environ["HOME"] = str(folder / "home")
        async with box_of(place) as box:
            results = [await box.call(call.name, call.input) for call in table]
        REFERENCES[key] = Reference(place, results, place.files(), place.hooks(), await changes(place))
    return REFERENCES[key]


@pytest.mark.asyncio
@pytest.mark.parametrize("name", WAYS)
async def test_each_way_in_decides_alike(name, place, tmp_path_factory):
    way = WAYS[name]
    table = table_for(way)
    seen = await way.run(place, table)
    assert len(seen) == len(table), seen
    found = await changes(place)
    reference = await reference_for(table, tmp_path_factory.mktemp("reference"))
    other, expected = reference.place, reference.results
    problems = [
        f"{call.name} {call.input}: {end_of(result)} instead of {call.end}: {result.text}"
        for call, result in zip(table, expected, strict=True)
        if not fits(call, result)
    ]
    for call, one, result in zip(table, seen, expected, strict=True):
        if one is None:  # not offered to the framework at all
            if call.end not in ("lookup", "permission") and not call.spelling:
                problems.append(f"{call.name} is not offered")
        elif one.is_error not in (None, result.is_error):
            problems.append(f"{call.name} {call.input}: {one} instead of {result.text!r}")
        elif call.end == "asked" or (way.other_lookup and result.is_error):
            continue  # each says in its own words that nobody allowed it, or that there is no such tool
        elif (told := place.plain(one.text)) != (meant := other.plain(result.text)) and not is_within(meant, told):
            problems.append(f"{call.name} {call.input}: {told!r} instead of {meant!r}")
    assert not problems, "\n".join(problems)
    assert place.files() == reference.files
    assert {path: place.files()[path] for path in CHANGED if way.one_box} == (CHANGED if way.one_box else {})
    assert place.hooks() == reference.hooks
    assert found == reference.changes


def is_within(text: str, shown: str) -> bool:
    """Whether a way in shows a text, perhaps with words around it that its API asks for."""
    return " ".join(text.split()) in " ".join(shown.split())


async def changes(place: Place) -> list[tuple[str, str, list[str]]]:
    """Kind, tool and paths of each journal entry of a project, oldest first."""
    async with box_of(place, servers=False) as box:
        entries = await box.workspace.services.journal.history()
    return [(entry.kind, entry.tool, [place.plain(path) for path in entry.paths]) for entry in reversed(entries)]


def end_of(result: ToolResult) -> str:
    match result.outcome:
        case Done() if not result.is_error:
            return "done"
        case Done() | Failed():
            return "failed"
        case Refused(stage):
            return stage
    return type(result.outcome).__name__


def fits(call: Call, result: ToolResult) -> bool:
    end = end_of(result)
    if call.end == "asked":
        return end == "permission" and "there is no one to ask" in result.text
    return end != "done" if call.end == "not done" else end == call.end


# The tables against the code


def parsed() -> Iterator[tuple[str, ast.AST]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield str(path.relative_to(SOURCE)), ast.parse(path.read_text(encoding="utf-8"))


def hands_calls_over(node: ast.AST) -> bool:
    """Whether a line hands a call to the engine: to `handle`, to a turn, or to the `call` of a toolbox."""
    if not isinstance(node, ast.Call):
        return False
    match node.func:
        case ast.Name(id="handle" | "Turn"):
            return True
        case ast.Attribute(attr="call" | "call_many" | "turn", value=ast.Name(id="box")):
            return True
        case ast.Attribute(attr="call" | "call_many" | "turn", value=ast.Attribute(attr="box" | "_box")):
            return True
    return False


def test_every_module_that_hands_calls_to_the_engine_is_a_way_in_of_the_table():
    found = {path for path, tree in parsed() if any(map(hands_calls_over, ast.walk(tree)))}
    assert sorted(found - WAYS_IN.keys() - {"engine/turn.py"}) == []
    named = ", ".join(WAYS_IN.values())
    assert [name for name in WAYS if name not in named] == []


def test_only_the_pipeline_runs_tools():
    runs = {
        path
        for path, tree in parsed()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("run_tool", "iterate_tool")
    }
    assert runs <= {"engine/tool_limits.py", "engine/pipeline.py"}


def test_every_adapter_is_in_the_table():
    modules = {path.stem for path in (SOURCE / "faces/adapters").glob("*.py")} - {"__init__"}
    ours = {"pydantic_ai", "openai_agents", "langchain"}
    assert modules == ours | OTHER_ADAPTERS.keys()


def test_every_kind_of_tool_is_in_the_table():
    for module in walk_packages([str(SOURCE)], "wieldy."):
        if module.name.startswith(
            ("wieldy.tools.", "wieldy.engine.", "wieldy.core.", "wieldy.mcp.", "wieldy.web.browser.")
        ):
            import_module(module.name)
    kinds = {kind.__name__: kind for kind in all_subclasses(Tool) if kind.__module__.startswith("wieldy.")}
    others = {name for name, kind in kinds.items() if not kind.__module__.startswith("wieldy.tools.")}
    assert others == KINDS_OF_TOOLS.keys()
    covered = {part for call in calls() for part in call.kind.split()}
    assert {kind for kind in KINDS_OF_TOOLS.values() if ":" not in kind} <= covered


def all_subclasses(kind: type) -> Iterator[type]:
    each: type
    for each in kind.__subclasses__():
        yield each
        yield from all_subclasses(each)
