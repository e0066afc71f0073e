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
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from msgspec import Struct
from tests.needs import import_or_skip

import wieldy
from wieldy import Logged, Script, Session, Tool, Toolbox, tool
from wieldy.core.decision import Question
from wieldy.core.outcome import Done, Failed, Refused, ToolResult

SOURCE = Path(wieldy.__file__).parent
SCRIPTED_SERVER = Path(__file__).parents[1] / "unit/mcp/scripted_server.py"
TOKEN = "a-token-of-enough-length"

# What hands calls to the engine or makes sessions, and the ways in that the tests below take through it: rooms and faces as a
# whole, adapters and commands one by one.
WAYS_IN = {
    "engine": "Toolbox.call, Turn",
    "agent": "Session, sub-agent",
    "faces/terminal": "Session; Toolbox.call: what a person types",
    "faces/headless": "stream-json; Claude SDK: transport, Claude SDK: server",
    "faces/mcp_server": "MCP over stdio, MCP over HTTP",
    "faces/batch": "wieldy batch",
    "faces/adapters/pydantic_ai.py": "pydantic-ai",
    "faces/adapters/openai_agents.py": "OpenAI Agents",
    "faces/adapters/langchain.py": "LangChain",
    "cli/call.py": "wieldy call",
    "cli/run.py": "wieldy -p, stream-json",
}
# Adapters that make no call of their own.
OTHER_ADAPTERS = {
    "harbor": "runs `wieldy -p` in a container",
    "inspect_ai": "runs `wieldy -p` in a container",
    "pydantic_ai_workspace": "no tools: the file operations of a framework, each judged as a call of Read, Write or Bash",
}
KINDS_OF_TOOLS = {"built-in", "function", "MCP", "deferred", "wrapped"}
# Classes of tools that no catalog has.
NEVER_IN_A_CATALOG = {
    "WrappedTool": "the base of those that wrap one",
    "ElicitationTool": "a question of a server, as a hook and the person see it",
    "_NavigateTool": "a redirect of the browser, as the rules see it",
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
        Call("logged", {"word": "hi"}, "done", "wrapped function"),
        Call("rare", {}, "done", "deferred function"),
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


def asked_calls() -> list[Call]:
    """Calls about which the person is asked, who declines those that say so in their input."""
    return [
        Call("ToolSearch", {"query": "select:mcp__s__roots"}, "done", "deferred"),
        Call("Write", {"file_path": "yes.txt", "content": "yes\n"}, "done"),
        Call("Edit", {"file_path": "yes.txt", "old_string": "yes", "new_string": "no"}, "done"),
        Call("Write", {"file_path": "declined.txt", "content": "x"}, "permission"),
        Call("Bash", {"command": "echo more >> yes.txt"}, "done"),
        Call("Bash", {"command": "touch declined.txt"}, "permission"),
        Call("mcp__s__roots", {}, "done", "MCP"),
        Call("mcp__s__roots", {"declined": True}, "permission", "MCP"),
        Call("asks", {}, "done", "function"),
        Call("asks", {"word": "declined"}, "permission", "function"),
        Call("Write", {"file_path": "locked/x", "content": "x"}, "permission"),
        Call("Bash", {"command": "touch out/touched"}, "done"),
        Call("Bash", {"command": "touch blocked.txt"}, "permission"),
    ]


class Person:
    """Answers the questions of a way in: no to an input with this word. `answers` has one for each time it was asked."""

    def __init__(self, declines: str = "declined") -> None:
        self.declines = declines
        self.answers: list[bool] = []

    def says(self, input: object) -> bool:
        self.answers.append(self.declines not in str(input))
        return self.answers[-1]

    def ask(self, question: Question) -> bool:
        return self.says(question.plan.input)


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
        allow += ["mcp__s__resources.read", "add", "fails", "limited", "logged", "rare"]
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

    @tool
    def asks(word: str = "") -> str:
        """Changes something."""
        return f"changed {word}"

    @tool(read_only=True)
    def limited(again: bool = False) -> str:
        """May be called once."""
        return "once"

    @tool(read_only=True, deferred=True)
    def rare() -> str:
        """Is not shown in full."""
        return "rarely"

    schema = {"type": "object", "properties": {"word": {"type": "string"}}}
    logged = Tool.from_schema("logged", "Is logged.", schema, lambda input: input["word"], read_only=True)
    return [rare, Logged(logged), disabled, disabled_later, add, fails, changes, asks, limited]


def box_of(place: Place, person: Person | None = None, **options: Any) -> Toolbox:
    box = Toolbox(place.root, load_settings=True, env=place.env(), ask=person.ask if person else None, **options)
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


async def by_call(place: Place, table: Sequence[Call], person: Person | None = None) -> list[Seen | None]:
    async with box_of(place, person) as box:
        return [seen_result(await box.call(call.name, call.input)) for call in table]


async def by_turn(place: Place, table: Sequence[Call], person: Person | None = None) -> list[Seen | None]:
    seen: list[Seen | None] = []
    async with box_of(place, person) as box:
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


def session_of(place: Place, model: Script, person: Person | None) -> Session:
    ask = person.ask if person else None
    return Session(place.root, model=model, load_settings=True, env=place.env(), tools=function_tools(), ask=ask)


async def by_session(place: Place, table: Sequence[Call], person: Person | None = None) -> list[Seen | None]:
    model = Script(script_of(table))
    async with session_of(place, model, person) as session:
        await session.box.connected(30)
        await session.ask("go")
    return results_of(model.requests)


async def by_subagent(place: Place, table: Sequence[Call], person: Person | None = None) -> list[Seen | None]:
    agent = Script(script_of(table))
    model = Script().calls("Agent", prompt="Go", description="go", agent_type="general").says("done")
    model = model.sends("general", agent)
    async with session_of(place, model, person) as session:
        await session.box.connected(30)
        await session.ask("go")
    return results_of(agent.requests)


async def start_process(place: Place, *words: str, stderr: int | None = None) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-P", *words, cwd=place.root, env=place.env(), limit=2**24,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr,
    )  # fmt: skip


async def run_process(place: Place, words: Sequence[str], text: str = "") -> str:
    process = await start_process(place, *words, stderr=subprocess.PIPE)
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


async def by_command(place: Place, table: Sequence[Call], person: Person | None = None) -> list[Seen | None]:
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


async def by_print(place: Place, table: Sequence[Call], person: Person | None = None) -> list[Seen | None]:
    model = script_file(place, table)
    words = ("-m", "wieldy", "-p", "go", "--model", model, "--output-format", "stream-json", "--verbose")
    return stream_results(await run_process(place, words))


async def by_stream_json(place: Place, table: Sequence[Call], person: Person | None = None) -> list[Seen | None]:
    model = script_file(place, table)
    words = ("-m", "wieldy", "--model", model, "--input-format", "stream-json", "--output-format", "stream-json")
    message = json.dumps({"type": "user", "message": {"role": "user", "content": "go"}})
    if person is None:
        return stream_results(await run_process(place, words, message + "\n"))
    process = await start_process(place, *words, "--permission-prompt-tool", "stdio")
    assert process.stdin and process.stdout
    process.stdin.write(f"{message}\n".encode())
    lines: list[str] = []
    async for line in process.stdout:
        row = json.loads(line)
        lines.append(line.decode())
        if row["type"] == "control_request":
            answer = person.says(row["request"]["input"])
            reply = {"behavior": "allow"} if answer else {"behavior": "deny", "message": ""}
            response = {"subtype": "success", "request_id": row["request_id"], "response": reply}
            process.stdin.write(json.dumps({"type": "control_response", "response": response}).encode() + b"\n")
        elif row["type"] == "result":
            process.stdin.close()
    await process.wait()
    return stream_results("".join(lines))


async def by_batch(place: Place, table: Sequence[Call], person: Person | None = None) -> list[Seen | None]:
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


async def by_mcp_stdio(place: Place, table: Sequence[Call], person: Person | None = None) -> list[Seen | None]:
    process = await start_process(place, "-m", "wieldy", "mcp", "serve", "--servers")
    assert process.stdin and process.stdout

    async def exchange(method: str, params: Mapping[str, Any], number: int) -> Mapping[str, Any]:
        assert process.stdin and process.stdout
        process.stdin.write(rpc(method, params, number).encode() + b"\n")
        while True:
            message: Mapping[str, Any] = json.loads(await process.stdout.readline())
            if message.get("method") == "elicitation/create" and person is not None:
                choice = "Allow once" if person.says(message["params"]["message"]) else "Deny"
                reply = {"action": "accept", "content": {"decision": choice}}
                process.stdin.write(
                    json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": reply}).encode() + b"\n"
                )
            elif message.get("id") == number and "method" not in message:
                return message

    await exchange("initialize", {**HELLO, "capabilities": {"elicitation": {}} if person else {}}, 1)
    process.stdin.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
    seen: list[Seen | None] = []
    for number, call in enumerate(table, 2):
        seen.append(seen_answer(await exchange("tools/call", {"name": call.name, "arguments": call.input}, number)))
    process.stdin.close()
    await process.wait()
    return seen


async def by_mcp_http(place: Place, table: Sequence[Call], person: Person | None = None) -> list[Seen | None]:
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


async def by_pydantic_ai(place: Place, table: Sequence[Call], person: Person | None = None) -> list[Seen | None]:
    import_or_skip("pydantic_ai")
    from pydantic_ai import RunContext
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.usage import RunUsage

    async with box_of(place, person or Person(declines="")) as box:
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


async def by_openai_agents(place: Place, table: Sequence[Call], person: Person | None = None) -> list[Seen | None]:
    import_or_skip("agents")
    from agents.tool_context import ToolContext

    async with box_of(place, person or Person(declines="")) as box:
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


async def by_langchain(place: Place, table: Sequence[Call], person: Person | None = None) -> list[Seen | None]:
    import_or_skip("langchain_core")
    async with box_of(place, person or Person(declines="")) as box:
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


async def query_claude_sdk(transport: Any, prompt: Any = "go", **options: Any) -> list[Seen | None]:
    sdk = import_or_skip("claude_agent_sdk")
    given = sdk.ClaudeAgentOptions(**options)
    messages = [message async for message in sdk.query(prompt=prompt, options=given, transport=transport)]
    users = [message for message in messages if isinstance(message, sdk.UserMessage)]
    blocks = [block for message in users for block in message.content if isinstance(block, sdk.ToolResultBlock)]
    return [Seen(bool(block.is_error), text_of_content(block.content)) for block in blocks]


async def by_claude_transport(place: Place, table: Sequence[Call], person: Person | None = None) -> list[Seen | None]:
    sdk = import_or_skip("claude_agent_sdk")
    from wieldy.faces.headless.claude_sdk import InProcessTransport

    options: Any = {"load_settings": True, "env": place.env(), "tools": function_tools()}
    transport = InProcessTransport(root=place.root, model=Script(script_of(table)), **options)
    if person is None:
        return await query_claude_sdk(transport)

    async def prompts() -> AsyncIterator[dict[str, Any]]:
        yield {"type": "user", "message": {"role": "user", "content": "go"}}

    async def can_use_tool(name: str, input: dict[str, Any], context: Any) -> Any:
        return sdk.PermissionResultAllow() if person.says(input) else sdk.PermissionResultDeny(message="")

    return await query_claude_sdk(transport, prompts(), can_use_tool=can_use_tool)


async def by_claude_server(place: Place, table: Sequence[Call], person: Person | None = None) -> list[Seen | None]:
    import_or_skip("claude_agent_sdk")
    from wieldy.faces.headless.claude_sdk import InProcessTransport

    async with box_of(place, person) as box:
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

    `other_lookup`: a framework, or another toolbox, looks the tool up and words errors of its own. `has_person`: someone can
    be asked.
    """

    run: Callable[[Place, Sequence[Call], Person | None], Awaitable[list[Seen | None]]]
    own_process: bool = False
    one_box: bool = True
    other_lookup: bool = False
    has_person: bool = True
    lacks: frozenset[str] = frozenset()


WAYS = {
    "Toolbox.call": Way(by_call),
    "Turn": Way(by_turn),
    "Session": Way(by_session),
    "sub-agent": Way(by_subagent, lacks=frozenset({"AskUser", "ExitPlan", "StickerRequest"})),
    "wieldy call": Way(by_command, own_process=True, one_box=False, has_person=False),
    "wieldy -p": Way(by_print, own_process=True, has_person=False),
    "stream-json": Way(by_stream_json, own_process=True),
    "wieldy batch": Way(by_batch, own_process=True, has_person=False),
    "MCP over stdio": Way(by_mcp_stdio, own_process=True),
    "MCP over HTTP": Way(by_mcp_http, own_process=True, has_person=False),
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


def table_for(way: Way, rows: Sequence[Call]) -> list[Call]:
    rows = [call for call in rows if call.name not in way.lacks]
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
    answers: list[bool]


REFERENCES: dict[tuple[Any, ...], Reference] = {}


async def reference_for(table: Sequence[Call], folder: Path, person: Person | None) -> Reference:
    key = tuple((call.name, json.dumps(call.input)) for call in table)
    if key not in REFERENCES:
        place = Place(folder)
        place.make()
        os.environ["WIELDY_HOME"] = os.environ["HOME"] = str(folder / "home")
        async with box_of(place, person) as box:
            results = [await box.call(call.name, call.input) for call in table]
        left = (place.files(), place.hooks(), await changes(place), person.answers if person else [])
        REFERENCES[key] = Reference(place, results, *left)
    return REFERENCES[key]


@pytest.mark.asyncio
@pytest.mark.parametrize("name", WAYS)
async def test_each_way_in_decides_alike(name, place, tmp_path_factory):
    way = WAYS[name]
    await check_way(way, table_for(way, calls()), place, tmp_path_factory.mktemp("reference"))
    assert {path: place.files()[path] for path in CHANGED if way.one_box} == (CHANGED if way.one_box else {})


@pytest.mark.asyncio
@pytest.mark.parametrize("name", [name for name, way in WAYS.items() if way.has_person])
async def test_each_way_in_asks_alike(name, place, tmp_path_factory):
    way = WAYS[name]
    await check_way(way, table_for(way, asked_calls()), place, tmp_path_factory.mktemp("reference"), asks=True)
    assert place.files()["yes.txt"] == "no\nmore\n"


async def check_way(way: Way, table: Sequence[Call], place: Place, folder: Path, *, asks: bool = False) -> None:
    """Compare what calls give and leave behind by one way in with what calls of a toolbox do."""
    person, persons = (Person(), Person()) if asks else (None, None)
    seen = await way.run(place, table, person)
    assert len(seen) == len(table), seen
    found = await changes(place)
    reference = await reference_for(table, folder, persons)
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
    assert place.hooks() == reference.hooks
    assert found == reference.changes
    assert all(max(Counter(map(str, once)).values()) == 1 for once in (reference.hooks, reference.changes))
    assert (person.answers if person else []) == reference.answers


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
    """Whether a line hands a call to the engine, or makes what does. Rooms below the engine cannot."""
    if not isinstance(node, ast.Call):
        return False
    match node.func:
        case (
            ast.Name(id="handle" | "Turn" | "Session" | "FrameworkCalls")
            | ast.Attribute(attr="call" | "call_many" | "turn")
        ):
            return True
    return False


def way_in_of(path: str) -> str:
    """The row of the table that a module belongs to."""
    parts = Path(path).parts
    return "/".join(parts[: {"cli": 2, "faces": 3 if "adapters" in parts else 2}.get(parts[0], 1)])


def test_everything_that_hands_calls_to_the_engine_is_a_way_in_of_the_table():
    below = ("core", "files", "shell", "web", "browser", "models", "tools", "policy", "mcp")
    found = {
        way_in_of(path)
        for path, tree in parsed()
        if not path.startswith(tuple(f"{room}/" for room in below)) and any(map(hands_calls_over, ast.walk(tree)))
    }
    assert found == WAYS_IN.keys()
    named = ", ".join(WAYS_IN.values())
    assert [name for name in WAYS if name not in named] == []


def runs_a_tool(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="run_tool" | "iterate_tool")):
            return True
        case ast.Call(func=ast.Attribute(attr="run") as function):
            return ast.unparse(function).endswith(("tool.run", "inner.run", "unwrapped.run"))
    return False


def test_only_the_pipeline_runs_tools():
    runs = {path for path, tree in parsed() if any(map(runs_a_tool, ast.walk(tree)))}
    assert runs == {"engine/tool_limits.py", "engine/pipeline.py"}


def test_every_adapter_is_in_the_table():
    modules = {path.stem for path in (SOURCE / "faces/adapters").glob("*.py")} - {"__init__"}
    ours = {Path(path).stem for path in WAYS_IN if path.startswith("faces/adapters/")}
    assert modules == ours | OTHER_ADAPTERS.keys()


@pytest.mark.asyncio
async def test_every_kind_of_tool_is_in_the_table(place):
    classes = classes_of_tools()
    async with box_of(place) as box:
        await box.connected(30)
        called = [tool for call in calls() if (tool := box.catalog.find(call.name)) is not None]
    layers = {type(layer).__name__ for tool in called for layer in layers_of(tool)}
    assert sorted(classes - layers) == sorted(NEVER_IN_A_CATALOG)
    assert {part for call in calls() for part in call.kind.split()} == KINDS_OF_TOOLS


def classes_of_tools() -> set[str]:
    """The classes of tools that are no single built-in tool."""
    bases = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        | {base.value.id for base in node.bases if isinstance(base, ast.Subscript) and isinstance(base.value, ast.Name)}
        for path, tree in parsed()
        if not path.startswith("tools/")
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found: set[str] = set()
    latest = {"Tool"}
    while latest:
        latest = {name for name, named in bases.items() if named & latest} - found
        found |= latest
    return found


def layers_of(tool: Any) -> Iterator[Tool]:
    while tool is not None:
        yield tool
        tool = getattr(tool, "inner", None)
