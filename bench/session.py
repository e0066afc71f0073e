"""A session's own cost: a turn with the recorded model beside a bare loop of the same work, early and late in a conversation."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.claim import Claim

from wieldy import Script, Session, tool
from wieldy.agent.conversation import fold
from wieldy.agent.records import ApprovalRequested, AssistantBlock, AssistantMessageEnded, ToolResultRecord, UserMessage
from wieldy.agent.transcript import Transcript, records

TURNS = 3_100
AROUND = 100
ROUNDS = 6
MORE_ROUNDS = 40  # of what is told in microseconds


def bare_turns(count: int) -> list[float]:
    """The least a loop can do: read the arguments, call the function, write both messages down, encode the new ones."""

    async def add(a: int, b: int) -> int:
        return a + b

    async def loop() -> list[float]:
        history: list[bytes] = []
        stamps = []
        for number in range(count):
            arguments = json.loads('{"a": 1, "b": 2}')
            result = await add(**arguments)
            call = {"type": "tool_use", "id": f"toolu_{number}", "name": "add", "input": arguments}
            history.append(json.dumps({"role": "assistant", "content": [call]}).encode())
            answer = {"type": "tool_result", "tool_use_id": call["id"], "content": str(result)}
            history.append(json.dumps({"role": "user", "content": [answer]}).encode())
            stamps.append(time.perf_counter())
        return stamps

    return asyncio.run(loop())


def session_turns(count: int, *, persist: bool, follow: bool = False, lasting: bool = False) -> list[float]:
    """A call of `add` each turn. `follow` takes every event; `lasting` makes it a tool whose calls must be on disk first."""
    stamps: list[float] = []

    @tool(read_only=not lasting, needs_permission=False)
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        stamps.append(time.perf_counter())
        return a + b

    async def converse(root: str) -> None:
        call: dict[str, Any] = {"call": "add", "input": {"a": 1, "b": 2}}
        model = Script([[call]] * count + [[{"text": "done"}]], remember=False)
        async with Session(root, model=model, tools=[add], settings={}, persist=persist) as session:
            if not follow:
                await session.ask("go")
                return
            async for _ in session.run("go"):
                pass

    with tempfile.TemporaryDirectory() as folder:
        os.environ["WIELDY_HOME"] = f"{folder}/home"
        asyncio.run(converse(folder))
    return stamps


def turn_at(stamps: list[float], where: int) -> float:
    """The usual time of a turn around one place."""
    around = stamps[max(where - AROUND // 2, 1) : where + AROUND // 2]
    return statistics.median(b - a for a, b in pairwise(around))


def claims() -> Iterator[Claim]:
    """A turn is measured as other frameworks' are: an in-process model, one call of add, the median of a hundred turns."""
    bare, early, late, kept, followed, synced = [], [], [], [], [], []
    for _ in range(MORE_ROUNDS):
        bare.append(turn_at(bare_turns(200), 100))
        early.append(turn_at(session_turns(200, persist=False), 100))
        followed.append(turn_at(session_turns(200, persist=False, follow=True), 100))
    for _ in range(ROUNDS):
        kept.append(turn_at(session_turns(400, persist=True), 200))
        synced.append(turn_at(session_turns(400, persist=True, lasting=True), 200))
    for _ in range(3):
        stamps = session_turns(TURNS, persist=False)
        late.append(turn_at(stamps, 3_000) / turn_at(stamps, 100))
    detail = f"a bare loop {min(bare) * 1e6:.1f} µs"
    yield Claim("a turn with one call", min(early) * 1e6, 150, unit=" µs", detail=detail)
    yield Claim("a turn beside a bare loop", min(early) / min(bare), 21)
    yield Claim("turn 3 000 beside turn 100", statistics.median(late), 1.2)
    detail = f"{min(followed) * 1e6:.0f} µs"
    yield Claim("a turn whose every event is followed beside one", min(followed) / min(early), 1.6, detail=detail)
    detail = f"{min(kept) * 1e6:.0f} µs; {min(synced) * 1e6:.0f} µs where the disk is waited for"
    yield Claim("a turn with its transcript beside one without", min(kept) / min(early), 2, detail=detail)
    yield from resuming()
    yield from streaming()


def resuming() -> Iterator[Claim]:
    """A transcript of 100 000 records beside reading its lines as JSON."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(_written(folder, 25_000))
        best_plain = best_fold = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            with (folder / "transcript.jsonl").open("rb") as file:
                for line in file:
                    json.loads(line)
            best_plain = min(best_plain, time.perf_counter() - start)
            start = time.perf_counter()
            fold(records(folder))
            best_fold = min(best_fold, time.perf_counter() - start)
    yield Claim(
        "resuming 100 000 records beside json.loads of each", best_fold / best_plain, 2, detail=f"{best_fold:.2f} s"
    )


def streaming() -> Iterator[Claim]:
    """A thousand pieces of text over each wire, from bytes to blocks, beside json.loads of the same bytes."""
    from wieldy.models import anthropic
    from wieldy.models import openai_chat as completion

    text = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "abcd"}}
    begin: dict[str, Any] = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    end: list[dict[str, Any]] = [{"type": "content_block_stop", "index": 0}, {"type": "message_stop"}]
    chunk = {"choices": [{"index": 0, "delta": {"content": "abcd"}, "finish_reason": None}], "model": "m", "id": "x"}
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    wires: list[tuple[str, Any, list[dict[str, Any]]]] = [
        ("Messages", anthropic.MessageParser, [begin, *[text] * 1000, *end]),
        ("Chat Completions", completion.CompletionParser, [*[chunk] * 1000, last]),
    ]
    for name, make_parser, events in wires:
        data = [f"data: {json.dumps(event)}\n\n".encode() for event in events]
        plain = ours = float("inf")
        for _ in range(5):
            start = time.perf_counter()
            for line in data:
                json.loads(line[5:])
            plain = min(plain, time.perf_counter() - start)
            start = time.perf_counter()
            asyncio.run(_parse(make_parser(), data))
            ours = min(ours, time.perf_counter() - start)
        detail = f"{ours / len(data) * 1e6:.1f} µs a piece"
        yield Claim(f"a piece of text over {name} beside json.loads of it", ours / plain, 8, detail=detail)


async def _parse(parser: Any, data: list[bytes]) -> None:
    from wieldy.engine.turn import StreamedMessage
    from wieldy.models.http import SseDecoder, parse_events

    async def events() -> AsyncIterator[list[bytes]]:
        decoder = SseDecoder()
        for piece in data:
            yield decoder.feed(piece)

    answer = StreamedMessage()
    async for delta in parse_events(events(), parser):
        answer.add(delta)


async def _written(folder: Path, turns: int) -> None:
    log = Transcript(folder)
    log.append(UserMessage([{"type": "text", "text": "go"}]))
    for number in range(turns):
        block = {"type": "tool_use", "id": f"t{number}", "name": "add", "input": {"a": 1}}
        log.append(AssistantBlock(block, 0))
        log.append(AssistantMessageEnded("tool_use", {"input_tokens": 1}))
        log.append(ToolResultRecord({"type": "tool_result", "tool_use_id": f"t{number}", "content": "1"}))
        log.append(ApprovalRequested(f"t{number}"))
    await log.aclose()
