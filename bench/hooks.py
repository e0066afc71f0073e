"""Hooks of a moment and the analysis of the command run side by side: two that take 100 ms cost one of them."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator

from bench.claim import Claim

from wieldy import Toolbox

SLOW = "sleep 0.1"
COMMAND = "cd . && git log --oneline | head -3 && grep -rn TODO . | sort | uniq -c"


def claims() -> Iterator[Claim]:
    with tempfile.TemporaryDirectory() as root:
        one = asyncio.run(_best(root, [SLOW]))
        two = asyncio.run(_best(root, [SLOW, f"{SLOW}; true"]))
        none = asyncio.run(_best(root, []))
    detail = f"no hook {none * 1e3:.0f} ms, one {one * 1e3:.0f} ms, two {two * 1e3:.0f} ms"
    yield Claim("a call with two 100 ms hooks beside one with one", two / one, 1.3, "×", detail)


async def _best(root: str, commands: list[str]) -> float:
    entries = [{"command": command} for command in commands]
    settings = {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": entries}]} if entries else {}}
    async with Toolbox(root, settings=settings) as box:
        best = float("inf")
        for _ in range(6):
            start = time.perf_counter()
            await box.call("Bash", command=COMMAND)
            best = min(best, time.perf_counter() - start)
    return best
