"""What a call costs in process: beside the same loop without wieldy, beside gather, and beside the fastest framework."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator

import msgspec
from bench.claim import Claim
from bench.peers import run_peer

from wieldy import Toolbox, tool

ROUNDS = 12


class AddInput(msgspec.Struct):
    a: int
    b: int


@tool(read_only=True)
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@tool(read_only=True)
async def nap(i: int) -> str:
    """Sleep ten milliseconds."""
    await asyncio.sleep(0.01)
    return "ok"


def claims() -> Iterator[Claim]:
    with tempfile.TemporaryDirectory() as root:
        yield from asyncio.run(_in_process(root))
        yield _beside_agno(root)


async def _in_process(root: str) -> list[Claim]:
    async with Toolbox(root, tools=[add, nap], max_concurrency=1_000) as box:
        call = await _best(lambda: _calls(box, 500))
        raw = await _best(lambda: _raw(500))
        spread = await _best(lambda: box.call_many([("nap", {"i": i}) for i in range(100)]), rounds=25)
        gathered = await _best(lambda: asyncio.gather(*(nap.function(i) for i in range(100))), rounds=25)
    early, late = await _growth(root)
    return [
        Claim(
            "one call of a typed add(a, b)",
            call / 500 * 1e6,
            80,
            " µs",
            f"bare decode + await {raw / 500 * 1e6:.1f} µs",
        ),
        Claim(
            "100 calls of a 10 ms tool ÷ asyncio.gather", spread / gathered, 1.6, "×", f"{gathered * 1e3:.1f} ms bare"
        ),
        Claim(
            "a call after 10 000 calls ÷ after 100",
            late / early,
            1.1,
            "×",
            f"{early * 1e6:.0f} µs → {late * 1e6:.0f} µs",
        ),
    ]


async def _growth(root: str) -> tuple[float, float]:
    """The cost of a call early and late in one toolbox's life, each beside a fresh one so that a busy moment hits both."""
    async with Toolbox(root, tools=[add]) as old:
        await _calls(old, 9_500)
        early = late = float("inf")
        for _ in range(30):
            async with Toolbox(root, tools=[add]) as young:
                await _calls(young, 100)
                early = min(early, await _timed(lambda young=young: _calls(young, 50)) / 50)  # type: ignore[misc]
            late = min(late, await _timed(lambda: _calls(old, 50)) / 50)
    return early, late


def _beside_agno(root: str) -> Claim:
    async def ours() -> float:
        async with Toolbox(root, tools=[add]) as box:
            return await _best(lambda: _calls(box, 200)) / 200

    mine = min(asyncio.run(ours()) for _ in range(3))
    theirs = min(run_peer("agno_turns", ("agno==3.1.10", "openai"), "200")["seconds"] for _ in range(2))
    detail = f"agno {theirs * 1e6:.0f} µs a turn, ours {mine * 1e6:.0f} µs a call"
    return Claim("the fastest framework's turn ÷ our call", theirs / mine, 3, "×", detail, at_least=True)


async def _calls(box: Toolbox, count: int) -> None:
    for i in range(count):
        await box.call("add", {"a": i, "b": 1})


async def _raw(count: int) -> None:
    function = add.function
    for _ in range(count):
        args = msgspec.json.decode(b'{"a": 1, "b": 1}', type=AddInput)
        json.dumps(await function(args.a, args.b))


async def _timed(work: Callable[[], Awaitable[object]]) -> float:
    start = time.perf_counter()
    await work()
    return time.perf_counter() - start


async def _best(work: Callable[[], Awaitable[object]], rounds: int = ROUNDS) -> float:
    return min([await _timed(work) for _ in range(rounds)])
