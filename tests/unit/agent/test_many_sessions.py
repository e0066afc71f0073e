"""Five hundred sessions in one process on one event loop, each in its own folder, against a model on loopback."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import threading
from pathlib import Path

import pytest
from tests.unit.models.wire import ReceivedRequest, anthropic_stream, loopback, stream

from wieldy import Anthropic, Session
from wieldy.core.events import RunEnded, ToolEnded
from wieldy.core.threads import POOL_THREADS

SESSIONS = 500
ABORTED = range(0, SESSIONS, 25)


async def reply(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    """Have the word of the prompt written to a file, then read it back; sessions that say `wait` wait for ever."""
    messages = request.body["messages"]
    prompt = messages[0]["content"][0]["text"]
    word = re.findall(r"word-\d+", prompt)[0]
    if "wait" in prompt and len(messages) > 1:
        await asyncio.sleep(280)
    steps: list[tuple[str, ...]]
    if len(messages) == 1:
        steps = [("call", "c1", "Write", f'{{"file_path": "mine.txt", "content": "{word}"}}')]
    else:
        steps = [("text", f"wrote {word}")]
    await stream(anthropic_stream(steps))(request, writer)


async def run_one(number: int, root: Path, url: str) -> RunEnded:
    root.mkdir()
    model = Anthropic("some-model", api_key="k", base_url=url)
    state = root.parent / "state" / str(number)
    async with Session(root, model=model, mode="acceptEdits", settings={}, state_dir=state) as session:
        prompt = f"write word-{number}" + (", then wait" if number in ABORTED else "")
        async for event in session.run(prompt, stream_deltas=False):
            if isinstance(event, ToolEnded) and number in ABORTED:
                session.abort()
            if isinstance(event, RunEnded):
                return event
    raise AssertionError("unreachable")


@pytest.mark.timeout(300)
@pytest.mark.asyncio
async def test_hundreds_of_sessions_share_a_loop_and_do_not_disturb_one_another(tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    threads_before = threading.active_count()
    async with loopback(reply) as server:
        runs = (run_one(number, tmp_path / str(number), server.url) for number in range(SESSIONS))
        ends = await asyncio.wait_for(asyncio.gather(*runs), 250)
    for number, end in enumerate(ends):
        assert (tmp_path / str(number) / "mine.txt").read_text() == f"word-{number}"
        assert os.listdir(tmp_path / str(number)) == ["mine.txt"]
        expected = ("interrupted", "") if number in ABORTED else ("done", f"wrote word-{number}")
        assert (end.why, end.text) == expected
    gc.collect()
    assert len(asyncio.all_tasks()) == 1
    names = [thread.name for thread in threading.enumerate()]
    pooled = sum(name.startswith("wieldy-") for name in names)  # idle threads of the pool end by themselves
    assert pooled <= 2 * POOL_THREADS + 1
    assert threading.active_count() - threads_before <= pooled
