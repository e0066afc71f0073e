"""Beside the reference servers of the protocol, from the npm registry: each of their tools, called through our client."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.peers.npm import install_packages

from wieldy import Toolbox
from wieldy.core.decision import Answer
from wieldy.core.messages import Message
from wieldy.core.outcome import Image
from wieldy.core.provider import Completion
from wieldy.engine.workspace_services import HostServices

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(300)]

PACKAGES = {
    "@modelcontextprotocol/server-everything": "2026.8.31",
    "@modelcontextprotocol/server-filesystem": "2026.8.31",
}


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder of the reference servers' programs."""
    packages = tuple(f"{name}@{version}" for name, version in PACKAGES.items())
    return install_packages("MCP reference servers", packages) / "node_modules" / ".bin"


def box_with(root: Path, servers: dict[str, Any], ask: Any = None, host: HostServices | None = None) -> Toolbox:
    allow = [f"mcp__{name}__*" for name in servers]
    return Toolbox(root, ask=ask, host=host, settings={"mcpServers": servers, "permissions": {"allow": allow}})


def tools_of(box: Toolbox, server: str) -> set[str]:
    prefix = f"mcp__{server}__"
    return {name.removeprefix(prefix) for name in box.catalog if name.startswith(prefix)}


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))


@pytest.mark.asyncio
async def test_every_tool_of_the_everything_server_can_be_called(programs: Path, tmp_path: Path):
    async def complete(system: str, messages: Sequence[Message], max_tokens: int) -> Completion:
        return Completion("sampled words", "none")

    def person(question: Any) -> Answer:
        return Answer(True, updated_input={"name": "Ann"})

    servers = {"every": {"command": str(programs / "mcp-server-everything")}}
    box = box_with(tmp_path, servers, person, HostServices(side_model=complete))
    inputs: dict[str, dict[str, Any]] = {
        "echo": {"message": "hello"},
        "get-annotated-message": {"messageType": "error", "includeImage": True},
        "get-env": {},
        "get-resource-links": {"count": 2},
        "get-resource-reference": {"resourceType": "Blob", "resourceId": 1},
        "get-roots-list": {},
        "get-structured-content": {"location": "Chicago"},
        "get-sum": {"a": 1, "b": 2},
        "get-tiny-image": {},
        "gzip-file-as-resource": {"name": "a.gz", "data": "data:text/plain,abc", "outputType": "resource"},
        "simulate-research-query": {"topic": "bees"},
        "toggle-simulated-logging": {},
        "toggle-subscriber-updates": {},
        "trigger-elicitation-request": {},
        "trigger-long-running-operation": {"duration": 0.2, "steps": 2},
        "trigger-sampling-request": {"prompt": "say something", "maxTokens": 10},
        "trigger-url-elicitation": {"url": "https://example.org/form"},
    }
    async with box:
        await box.connected()
        there = tools_of(box, "every")
        assert there <= set(inputs), f"no input for {there - set(inputs)}"
        assert len(there) >= 15
        results = {name: await box.call(f"mcp__every__{name}", inputs[name]) for name in sorted(there)}
    failed = {name: result.text[:300] for name, result in results.items() if result.is_error}
    assert not failed
    assert results["get-sum"].text == "The sum of 1 and 2 is 3."
    assert any(isinstance(block, Image) for block in results["get-tiny-image"].content)
    assert results["get-structured-content"].data["conditions"]
    assert tmp_path.name in results["get-roots-list"].text
    assert "Ann" in results["trigger-elicitation-request"].text
    assert "sampled words" in results["trigger-sampling-request"].text
    assert "saved to" in results["get-resource-reference"].text


@pytest.mark.asyncio
async def test_every_tool_of_the_filesystem_server_can_be_called(programs: Path, tmp_path: Path):
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_text("one\ntwo\n")
    (work / "p.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    a, new = str(work / "a.txt"), str(work / "new.txt")
    calls: dict[str, dict[str, Any]] = {
        "list_allowed_directories": {},
        "create_directory": {"path": str(work / "sub")},
        "write_file": {"path": new, "content": "fresh"},
        "read_file": {"path": a},
        "read_text_file": {"path": a, "head": 1},
        "read_media_file": {"path": str(work / "p.png")},
        "read_multiple_files": {"paths": [a, new]},
        "edit_file": {"path": new, "edits": [{"oldText": "fresh", "newText": "edited"}]},
        "list_directory": {"path": str(work)},
        "list_directory_with_sizes": {"path": str(work)},
        "directory_tree": {"path": str(work)},
        "search_files": {"path": str(work), "pattern": "*.txt"},
        "get_file_info": {"path": a},
        "move_file": {"source": new, "destination": str(work / "moved.txt")},
    }
    servers = {"fs": {"command": str(programs / "mcp-server-filesystem"), "args": [str(work)]}}
    async with box_with(work, servers) as box:
        await box.connected()
        assert tools_of(box, "fs") == set(calls)
        results = {name: await box.call(f"mcp__fs__{name}", input) for name, input in calls.items()}
        outside = await box.call("mcp__fs__read_file", path=str(tmp_path / "secret"))
    assert not {name: result.text[:300] for name, result in results.items() if result.is_error}
    assert results["read_text_file"].text == "one"
    assert any(isinstance(block, Image) for block in results["read_media_file"].content)
    assert (work / "moved.txt").read_text() == "edited"
    assert outside.is_error and "denied" in outside.text.lower()


@pytest.mark.asyncio
async def test_the_everything_server_over_streamable_http_and_sse(programs: Path, tmp_path: Path):
    for kind, path, word in (("http", "mcp", "streamableHttp"), ("sse", "sse", "sse")):
        port = _free_port()
        server = subprocess.Popen(
            [str(programs / "mcp-server-everything"), word],
            env={**os.environ, "PORT": str(port)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            entry = {"type": kind, "url": f"http://127.0.0.1:{port}/{path}"}
            async with box_with(tmp_path, {"far": entry}) as box:
                _wait_for(port)
                box.workspace.services.mcp_servers.connections["far"].reconnect()
                said = await box.call("mcp__far__echo", message="over the wire")
                assert said.text == "Echo: over the wire", (kind, said.text)
                slow = await box.call("mcp__far__trigger-long-running-operation", duration=0.2, steps=2)
                assert not slow.is_error
                os.kill(server.pid, signal.SIGSTOP)
                closing = time.monotonic()
            assert time.monotonic() - closing < 10, "a server that says no goodbye holds up nothing"
        finally:
            server.kill()
            server.wait()


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(port: int) -> None:
    import socket

    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    pytest.fail("the server did not open its port")
