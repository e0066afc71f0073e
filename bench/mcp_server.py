"""Our MCP server on stdio beside a bare server of the official SDK with a tool that does nothing: same client, same run."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack

from bench.claim import Claim

from wieldy.cli.mcp import TOKEN_VARIABLE

CALLS = 300
ROUNDS = 7
STARTS = 7

BARE = """
import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

SCHEMA = {"type": "object", "properties": {"thought": {"type": "string"}}, "required": ["thought"]}

async def listed(ctx, params):
    return types.ListToolsResult(tools=[types.Tool(name="Think", description="Nothing.", input_schema=SCHEMA)])

async def called(ctx, params):
    return types.CallToolResult(content=[types.TextContent(text="Noted.")])

async def main():
    server = Server("bare", on_list_tools=listed, on_call_tool=called)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())

anyio.run(main)
"""
OURS = (sys.executable, "-m", "wieldy", "mcp", "serve")
THEIRS = (sys.executable, "-c", BARE)
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    },
}


def claims() -> Iterator[Claim]:
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "WIELDY_HOME": f"{folder}/state"}
        environment.pop(TOKEN_VARIABLE, None)
        for mode, revision in (("legacy", "2025-11-25"), ("2026-07-28", "2026-07-28")):
            (one, many), (bare_one, bare_many) = asyncio.run(_calls(folder, environment, mode))
            yield _rate(f"calls/s one after the other, {revision} ÷ bare SDK server", one, bare_one)
            yield _rate(f"calls/s with 50 in flight, {revision} ÷ bare SDK server", many, bare_many)
        ours, bare = _starts(folder, environment)
        detail = f"{ours * 1e3:.0f} ms; bare SDK server {bare * 1e3:.0f} ms"
        yield Claim("start to the first answer ÷ bare SDK server", ours / bare, 1.3, "×", detail)


def _rate(text: str, seconds: float, bare: float) -> Claim:
    detail = f"{CALLS / seconds:.0f}/s; bare {CALLS / bare:.0f}/s"
    return Claim(text, bare / seconds, 0.7, "×", detail, at_least=True)


async def _calls(folder: str, environment: dict[str, str], mode: str) -> list[list[float]]:
    """The best seconds of each server for the calls one after the other, and for the calls side by side."""
    from mcp import Client, StdioServerParameters

    best = [[float("inf")] * 2 for _ in range(2)]
    async with AsyncExitStack() as stack:
        clients = []
        for command, *args in (OURS, THEIRS):
            server = StdioServerParameters(command=command, args=args, cwd=folder, env=environment)
            client = await stack.enter_async_context(Client(server, mode=mode))
            await _sequence(client)
            clients.append(client)
        for _ in range(ROUNDS):
            for which, client in enumerate(clients):
                for how, work in enumerate((_sequence, _side_by_side)):
                    start = time.perf_counter()
                    await work(client)
                    best[which][how] = min(best[which][how], time.perf_counter() - start)
    return best


async def _sequence(client) -> None:
    for _ in range(CALLS):
        result = await client.call_tool("Think", {"thought": "x"})
        assert result.content[0].text == "Noted.", result


async def _side_by_side(client) -> None:
    async def some() -> None:
        for _ in range(CALLS // 50):
            await client.call_tool("Think", {"thought": "x"})

    await asyncio.gather(*(some() for _ in range(50)))


def _starts(folder: str, environment: dict[str, str]) -> list[float]:
    best = [float("inf")] * 2
    for _ in range(STARTS):
        for which, command in enumerate((OURS, THEIRS)):
            best[which] = min(best[which], _start(command, folder, environment))
    return best


def _start(command: tuple[str, ...], folder: str, environment: dict[str, str]) -> float:
    start = time.perf_counter()
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin and process.stdout
        process.stdin.write(json.dumps(HELLO).encode() + b"\n")
        process.stdin.flush()
        assert b"serverInfo" in process.stdout.readline()
        taken = time.perf_counter() - start
        process.stdin.close()
        process.wait(20)
    return taken
