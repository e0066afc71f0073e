"""A server of a few lines that does what it is told, well or badly, and toolboxes that are connected to it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wieldy import Toolbox
from wieldy.mcp.servers import McpServers

SERVER = r"""
import json, os, subprocess, sys, time
HABITS = json.loads(sys.argv[1])
TOOLS = HABITS.get("tools") or [
    {"name": "echo", "description": "Say it again.", "annotations": {"readOnlyHint": True},
     "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}},
    {"name": "die", "description": "End in mid-call.", "inputSchema": {"type": "object"}},
    {"name": "flaky", "description": "Dies the first time.", "annotations": {"readOnlyHint": True},
     "inputSchema": {"type": "object"}},
    {"name": "big", "description": "Much text.", "inputSchema": {"type": "object"}},
    {"name": "sleep", "description": "Answers never.", "inputSchema": {"type": "object"}},
    {"name": "grow", "description": "Adds a tool.", "inputSchema": {"type": "object"}},
    {"name": "blocks", "description": "All kinds.", "inputSchema": {"type": "object"}},
    {"name": "slowly", "description": "With progress.", "inputSchema": {"type": "object"}},
    {"name": "ask", "description": "Asks the person.", "inputSchema": {"type": "object"}},
    {"name": "roots", "description": "Asks for the folders.", "inputSchema": {"type": "object"}},
]
def say(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n"); sys.stdout.flush()
def text(*parts, **more):
    return {"content": [{"type": "text", "text": p} for p in parts], **more}
def note(word):
    with open(HABITS["log"], "a") as file: file.write(word + "\n")
def await_answer(wanted):
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") == wanted and "method" not in message: return message.get("result")
def call(name, args, token):
    if name == "echo": return text(args["text"])
    if name == "die": os._exit(3)
    if name == "flaky":
        if not os.path.exists(HABITS["log"] + ".died"):
            open(HABITS["log"] + ".died", "w").close(); os._exit(4)
        return text("came back")
    if name == "big": return text("x" * HABITS.get("size", 20_000_000))
    if name == "grow":
        TOOLS.append({"name": "grown", "description": "New.", "inputSchema": {"type": "object"}})
        say({"method": "notifications/tools/list_changed"}); return text("grew")
    if name == "blocks":
        return {"content": [
            {"type": "text", "text": "words"},
            {"type": "image", "mimeType": "image/png", "data": "aGVsbG8="},
            {"type": "audio", "mimeType": "audio/wav", "data": "aGVsbG8="},
            {"type": "resource", "resource": {"uri": "mem://a", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "mem://b", "mimeType": "image/png", "blob": "aGVsbG8="}},
            {"type": "resource_link", "uri": "mem://c", "name": "C"},
            {"type": "text", "text": "see data:image/png;base64," + "QUJD" * 100 + " there"},
        ], "structuredContent": {"n": 1}}
    if name == "slowly":
        for n in (1, 2): say({"method": "notifications/progress", "params": {"progressToken": token, "progress": n, "total": 2, "message": "step"}})
        say({"method": "notifications/message", "params": {"level": "warning", "data": "careful"}})
        return text("done")
    if name == "ask":
        say({"id": "q1", "method": "elicitation/create", "params": {"message": "Which colour?", "mode": "form", "requestedSchema": {
            "type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}}})
        return text(json.dumps(await_answer("q1")))
    if name == "roots":
        say({"id": "q2", "method": "roots/list"}); return text(json.dumps(await_answer("q2")))
    return text(json.dumps({"called": name, "args": args}))
note("started %d" % os.getpid())
if HABITS.get("banner"): print("Welcome to the server!\n\n{not json}", flush=True)
if HABITS.get("stderr"): sys.stderr.write("noise\n" * HABITS["stderr"]); sys.stderr.write("last words\n"); sys.stderr.flush()
if HABITS.get("child"): note("started %d" % subprocess.Popen(["sleep", "300"], start_new_session=True).pid)
if HABITS.get("exit"): sys.stderr.write("no licence\n"); sys.exit(1)
if HABITS.get("delay"): time.sleep(HABITS["delay"])
for line in sys.stdin:
    if HABITS.get("hang"): continue
    message = json.loads(line); method, id = message.get("method"), message.get("id")
    params = message.get("params") or {}
    if method == "initialize":
        say({"id": id, "result": {"protocolVersion": params["protocolVersion"], "serverInfo": {"name": "t", "version": "1"},
             "capabilities": {"tools": {"listChanged": True}, "resources": {}, "logging": {}}}})
    elif method == "tools/list": note("listed"); say({"id": id, "result": {"tools": TOOLS}})
    elif method == "resources/list": say({"id": id, "result": {"resources": [{"uri": "mem://a", "name": "A", "description": "first"}]}})
    elif method == "resources/read": say({"id": id, "result": {"contents": [{"uri": params["uri"], "text": "contents"}]}})
    elif method == "notifications/cancelled": note("cancelled")
    elif method == "tools/call" and params["name"] == "sleep": note("sleeping")
    elif method == "tools/call":
        say({"id": id, "result": call(params["name"], params.get("arguments") or {}, (params.get("_meta") or {}).get("progressToken"))})
    elif id is not None: say({"id": id, "error": {"code": -32601, "message": "Method not found"}})
"""


class Stage:
    """Writes servers and toolboxes for one test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "server.log"
        self.script = folder / "server.py"
        self.script.write_text(SERVER)

    def entry(self, timeout: int = 20_000, startup: int = 20_000, **habits: Any) -> dict[str, Any]:
        """Settings of a server with these habits."""
        import json

        told = json.dumps({"log": str(self.log), **habits})
        args = ["-I", "-S", str(self.script), told]
        return {"command": sys.executable, "args": args, "timeout": timeout, "startupTimeout": startup}

    def box(self, ask: Any = None, settings: dict[str, Any] | None = None, **servers: dict[str, Any]) -> Toolbox:
        """A toolbox with these servers, all of whose tools are allowed."""
        allow = [f"mcp__{name}__*" for name in servers]
        return Toolbox(
            self.folder,
            ask=ask,
            settings={"mcpServers": servers, "permissions": {"allow": allow}, **(settings or {})},
        )

    def words(self) -> list[str]:
        """What the servers have noted."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    def pids(self) -> list[int]:
        """Every process that a server said it is or started."""
        return [int(word.split()[1]) for word in self.words() if word.startswith("started")]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    work = tmp_path / "work"
    work.mkdir()
    return Stage(work)


@pytest.fixture
def states() -> Callable[[Toolbox], dict[str, str]]:
    """How the servers of a toolbox are doing, in words."""
    return lambda box: {name: state.word for name, state in box.workspace.resident(McpServers).states().items()}
