"""The official SDK's client against `wieldy mcp serve` as a process: both transports, both revisions, every kind of tool."""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import subprocess
import sys
import uuid
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import psutil
import pytest
from mcp import Client, MCPError, StdioServerParameters

pytestmark = pytest.mark.peer

SERVE = ("-m", "wieldy", "mcp", "serve")
everywhere = pytest.mark.parametrize(
    ("transport", "era"),
    [(transport, era) for transport in ("stdio", "http") for era in ("legacy", "2026-07-28")],
)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    return {**kept, "HOME": str(tmp_path / "person"), "WIELDY_HOME": str(tmp_path / "state")}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (folder := tmp_path / "project").mkdir()
    (folder / "a.txt").write_text("alpha\nbeta\n")
    (folder / "dot.png").write_bytes(_png())
    return folder


def _png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixel = zlib.compress(b"\0\xff\0\0")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixel) + chunk(b"IEND", b"")


@asynccontextmanager
async def connected(
    transport: str, era: str, project: Path, environment: dict[str, str], **callbacks: Any
) -> AsyncIterator[Client]:
    if transport == "stdio":
        server = StdioServerParameters(command=sys.executable, args=list(SERVE), cwd=project, env=environment)
        async with Client(server, mode=era, **callbacks) as client:
            yield client
        return
    process = subprocess.Popen(
        [sys.executable, *SERVE, "--http", "127.0.0.1:0", "--no-token"],
        cwd=project,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr
    try:
        url = process.stderr.readline().split()[-1]
        async with Client(url, mode=era, **callbacks) as client:
            yield client
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def text(result: types.CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


@everywhere
@pytest.mark.asyncio
async def test_every_kind_of_tool_works(transport: str, era: str, project: Path, environment: dict[str, str]):
    asked: list[str] = []
    heard: list[str | None] = []

    async def elicited(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        said = (
            {"decision": "Deny", "words": "leave it"} if "forbidden" in params.message else {"decision": "Allow once"}
        )
        return types.ElicitResult(action="accept", content=said)  # type: ignore[arg-type]

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async with connected(transport, era, project, environment, elicitation_callback=elicited) as client:
        call = client.call_tool
        read = await call("Read", {"file_path": "a.txt"})
        assert "beta" in text(read)
        assert not read.is_error
        found = await call("Grep", {"pattern": "beta", "output_mode": "content"})
        assert isinstance(found.structured_content, dict)
        picture = await call("Read", {"file_path": "dot.png"})
        assert any(isinstance(block, types.ImageContent) for block in picture.content)
        assert not asked

        edited = await call("Edit", {"file_path": "a.txt", "old_string": "beta", "new_string": "gamma"})
        assert not edited.is_error, text(edited)
        assert (project / "a.txt").read_text() == "alpha\ngamma\n"
        refused = await call("Write", {"file_path": "forbidden.txt", "content": "x"})
        assert refused.is_error
        assert "leave it" in text(refused)
        assert len(asked) == 2

        shown = await call("Bash", {"command": "echo begun; sleep 1; echo done"}, progress_callback=on_progress)
        assert "done" in text(shown)
        assert shown.structured_content and shown.structured_content["exitCode"] == 0
        assert heard
        failed = await call("Bash", {"command": "ls /no/such/place"})
        assert failed.is_error
        assert failed.structured_content and failed.structured_content["exitCode"] == 2

        long = await call("Bash", {"command": "seq 100000"})
        (link,) = [block for block in long.content if isinstance(block, types.ResourceLink)]
        (whole,) = (await client.read_resource(str(link.uri))).contents
        assert isinstance(whole, types.TextResourceContents)
        assert whole.text.endswith("99999\n100000\n")
        with pytest.raises(MCPError):
            await client.read_resource("wieldy://results/../../../../etc/passwd")

    history = subprocess.run(
        [sys.executable, "-m", "wieldy", "history"], cwd=project, env=environment, capture_output=True, text=True
    )
    assert "a.txt" in history.stdout


def processes(mark: str) -> list[str]:
    """The processes whose command line holds a mark."""
    lines = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    return [line for line in lines if mark in line]


@everywhere
@pytest.mark.asyncio
async def test_a_cancelled_command_ends(transport: str, era: str, project: Path, environment: dict[str, str]):
    mark = f"60.{uuid.uuid4().int % 10**9}"
    async with connected(transport, era, project, environment) as client:
        call = asyncio.ensure_future(client.call_tool("Bash", {"command": f"sleep {mark}"}))
        for _ in range(200):
            if processes(f"sleep {mark}"):
                break
            await asyncio.sleep(0.05)
        assert processes(f"sleep {mark}")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        for _ in range(100):
            if not processes(f"sleep {mark}"):
                break
            await asyncio.sleep(0.05)
        assert not processes(f"sleep {mark}")
        assert text(await client.call_tool("Think", {"thought": "on"})) == "Noted."
