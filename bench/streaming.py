"""A session over loopback, on both wires: how soon a tool starts, the next request leaves, and what a piece of text costs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.claim import Claim

from wieldy import Session, tool

HERE = Path(__file__).parent
ROUNDS = 7
PIECES = 2_000
WIRES = {"Messages": "anthropic/m", "Chat Completions": "openai/m"}


def claims() -> Iterator[Claim]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ.update(WIELDY_HOME=f"{name}/home", ANTHROPIC_API_KEY="none", OPENAI_API_KEY="none")
        port, stamps = folder / "port", folder / "stamps"
        model = [sys.executable, "-S", str(HERE / "agents" / "pacing_model.py"), str(port), str(stamps), str(PIECES)]
        server = subprocess.Popen(model)
        try:
            while not port.exists() or not port.read_text():
                time.sleep(0.01)
            for wire, name_of_model in WIRES.items():
                url = f"http://127.0.0.1:{port.read_text()}"
                yield from over(wire, name_of_model, url, folder, stamps)
        finally:
            server.kill()
            server.wait()


def over(wire: str, model: str, url: str, folder: Path, stamps: Path) -> Iterator[Claim]:
    """The best of some rounds: a call starts while the model still speaks; then the answer comes in many pieces."""
    starts, leaves, costs = [], [], []
    for _ in range(ROUNDS):
        started, cpu = asyncio.run(conversation(model, url, folder))
        told = [line.split() for line in stamps.read_text().splitlines()]
        os.truncate(stamps, 0)
        closed = [float(at) for what, at in told if what == "closed"]
        ended = [float(at) for what, at in told if what == "ended"]
        arrived = [float(at) for what, at in told if what == "arrived"]
        starts.append(started[0] - closed[0])
        leaves.append(arrived[1] - ended[0])
        costs.append(cpu / PIECES)
    yield Claim(f"a tool starts after its block closes, over {wire}", min(starts) * 1e3, 20, unit=" ms")
    yield Claim(f"the next request after the end of the stream, over {wire}", min(leaves) * 1e3, 3, unit=" ms")
    yield Claim(f"processor time of a piece of text, over {wire}", min(costs) * 1e3, 0.1, unit=" ms")


async def conversation(model: str, url: str, folder: Path) -> tuple[list[float], float]:
    """When the tool started, each time; and the processor time from the last of its results on."""
    started: list[float] = []
    spent = 0.0

    @tool(read_only=True)
    async def stamp(n: int) -> str:
        """Note the time."""
        nonlocal spent
        started.append(time.monotonic())
        spent = time.process_time()
        return "noted"

    async with Session(folder, model=model, base_url=url, tools=[stamp], builtins=False, settings={}) as session:
        async for _ in session.run("go"):
            pass
        return started, time.process_time() - spent
