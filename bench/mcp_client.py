"""Our MCP client beside the SDK's own: what a call costs more, and what a server that hangs costs the first request."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.claim import Claim

SERVER = str(Path(__file__).parents[1] / "tests" / "unit" / "mcp" / "scripted_server.py")
CALLS = 3
ROUNDS = 500
STARTS = 7

COLD = """
import asyncio, sys, time
from wieldy import Toolbox
settings = {settings!r}
async def main():
    async with Toolbox({folder!r}, settings=settings) as box:
        await box.offering()
        await box.call("LS", path=".")
        print(time.perf_counter() - START, "mcp" in sys.modules, flush=True)
        sys.stdout.flush()
        import os; os._exit(0)
START = time.perf_counter()
asyncio.run(main())
"""


def claims() -> Iterator[Claim]:
    with tempfile.TemporaryDirectory() as folder:
        bare, client, whole = asyncio.run(_calls(folder))
        yield Claim(
            "a call by our client, beside the bare SDK client",
            client / bare,
            1.3,
            detail=f"{client * 1e6:.0f} µs against {bare * 1e6:.0f} µs",
        )
        yield Claim(
            "the same through the whole pipeline: checked, judged, bounded, concluded",
            whole / bare,
            1.3,
            detail=f"{whole * 1e6:.0f} µs",
        )
        without, hanging, loaded = _first_request(folder)
        yield Claim(
            "first request delayed by a server that hangs",
            (hanging - without) * 1000,
            50,
            " ms",
            f"{hanging * 1000:.0f} against {without * 1000:.0f} ms",
        )
        yield Claim("modules of the SDK loaded without a server", float(loaded), 0, "", "cold start unchanged")


async def _calls(folder: str) -> tuple[float, float, float]:
    """Seconds a call, with the same server behind all: bare SDK, our client alone, our whole pipeline."""
    from mcp import Client, StdioServerParameters

    from wieldy import Toolbox

    habits = json.dumps({"log": str(Path(folder, "log"))})
    argv = ["-I", "-S", SERVER, habits]
    entry = {"command": sys.executable, "args": argv}
    settings = {"mcpServers": {"s": entry}, "permissions": {"allow": ["mcp__s__*"]}}
    parameters = StdioServerParameters(command=sys.executable, args=argv)
    best = [float("inf")] * 3
    async with Client(parameters) as client, Toolbox(folder, settings=settings) as box:
        await client.list_tools()
        await box.connected()
        entry_of_s = box.workspace.services.mcp_servers.servers["s"]
        echo = entry_of_s.tools["mcp__s__echo"].definition
        ways = (
            lambda: client.call_tool("echo", {"text": "hello"}),
            lambda: entry_of_s.connection.call(echo, {"text": "hello"}),
            lambda: box.call("mcp__s__echo", {"text": "hello"}),
        )
        for _ in range(ROUNDS):
            for at, way in enumerate(ways):
                best[at] = min(best[at], await _timed(way))
    return best[0], best[1], best[2]


async def _timed(call: Any) -> float:
    started = time.perf_counter()
    for _ in range(CALLS):
        await call()
    return (time.perf_counter() - started) / CALLS


def _first_request(folder: str) -> tuple[float, float, bool]:
    """Seconds to the first offering and call, in a process of its own: without a server, with one that hangs."""
    habits = json.dumps({"log": str(Path(folder, "log")), "hang": True})
    hang = {"mcpServers": {"h": {"command": sys.executable, "args": ["-I", "-S", SERVER, habits]}}}
    best = [float("inf"), float("inf")]
    loaded = False
    for _ in range(STARTS):
        for at, settings in enumerate(({}, hang)):
            code = COLD.format(settings=settings, folder=folder)
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            seconds, sdk = done.stdout.split()
            best[at] = min(best[at], float(seconds))
            loaded = loaded or (at == 0 and sdk == "True")
    return best[0], best[1], loaded
