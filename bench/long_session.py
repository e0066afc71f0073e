"""Long sessions with large results: memory grows with the history alone, and a late turn costs what an early one did."""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

from bench.claim import Claim, best_of
from bench.headless import Mock, ours, peak

from wieldy import Script, Session, tool
from wieldy.core.messages import Message
from wieldy.core.provider import Request

KILOBYTES = 20
TEXT = ("0123456789abcde\n" * 64) * KILOBYTES
TURNS = 500
PROGRAM_TURNS = 200


def claims() -> Iterator[Claim]:
    yield from in_process()
    yield from as_a_program()
    yield from building()


def in_process() -> Iterator[Claim]:
    """The recorded model, a transcript on disk, and a tool that gives back twenty kilobytes every time."""
    growth, ratios, usual = [], [], []
    for _ in range(3):
        stamps, sizes = turns(TURNS)
        gaps = [later - earlier for earlier, later in pairwise(stamps)]
        early, late = statistics.median(gaps[20:100]), statistics.median(gaps[-80:])
        ratios.append(late / early)
        usual.append(early)
        growth.append((sizes[-1] - sizes[100]) / (TURNS - 100) / (KILOBYTES * 1024))
    detail = f"{min(usual) * 1e6:.0f} µs a turn, median of three runs"
    yield Claim("turn 500 beside turn 60, 20 KB a turn", statistics.median(ratios), 1.3, detail=detail)
    yield Claim("memory a turn takes beside its result", growth[0], 1.5)


def turns(count: int) -> tuple[list[float], list[int]]:
    """When each turn was, and how much memory the process had then."""
    stamps: list[float] = []
    sizes: list[int] = []

    @tool(read_only=True, max_result_chars=100_000)
    async def look(n: int) -> str:
        """Look at something large."""
        stamps.append(time.perf_counter())
        sizes.append(resident())
        return f"{n}\n{TEXT}"

    async def converse(root: str) -> None:
        model = Script(
            [[{"call": "look", "input": {"n": n}}] for n in range(count)] + [[{"text": "done"}]], remember=False
        )
        async with Session(root, model=model, tools=[look], builtins=False, settings={}) as session:
            await session.ask("go")

    with tempfile.TemporaryDirectory() as folder:
        os.environ["WIELDY_HOME"] = f"{folder}/home"
        gc.collect()
        asyncio.run(converse(folder))
    return stamps, sizes


def resident() -> int:
    """Bytes of memory this process has now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def as_a_program() -> Iterator[Claim]:
    """`wieldy -p` over loopback: every request carries all results so far."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "project").mkdir()
        (folder / "project" / "big.txt").write_text(TEXT)
        mock = Mock(folder, PROGRAM_TURNS, "Bash", '{"command": "cat big.txt"}')
        try:
            memory = peak(ours(mock), folder / "project")
        finally:
            mock.process.kill()
            mock.process.wait()
    yield Claim("memory of 200 turns of 20 KB", memory, 75, unit=" MB")


def building() -> Iterator[Claim]:
    """The body of request 200: all but the newest messages were encoded before, and are only put together."""
    from wieldy.models import anthropic
    from wieldy.models import openai_chat as openai

    history = [Message.user("go")]
    for n in range(PROGRAM_TURNS):
        call = {"type": "tool_use", "id": f"t{n}", "name": "look", "input": {"n": n}}
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": [{"type": "text", "text": TEXT}]}
        history += [Message("assistant", (call,)), Message("user", (result,))]
    for name, build in (("Messages", anthropic.encode_request), ("Chat Completions", openai.encode_request)):
        whole = build(Request((), history), "m")
        parts = [whole[at : at + KILOBYTES * 1024] for at in range(0, len(whole), KILOBYTES * 1024)]
        joined, built = best_of(15, partial(b"".join, parts), partial(_built, build, history))
        detail = f"{built * 1e3:.2f} ms for {len(whole) / 1e6:.1f} MB beside {joined * 1e3:.2f} ms"
        yield Claim(f"a body of 200 turns over {name} beside joining its bytes", built / joined, 4, detail=detail)


def _built(build: Callable[[Request, str], bytes], history: list[Message]) -> bytes:
    return build(_grown(history), "m")


def _grown(history: list[Message]) -> Request:
    """The request with its last two messages new, as they are in every turn."""
    return Request((), [*history[:-2], *(Message(old.role, old.content) for old in history[-2:])])
