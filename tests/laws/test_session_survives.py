"""Whatever breaks, and wherever: the next request is valid, no tool runs twice, and nothing that ran is forgotten."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.agent.oracle import check_history, check_request

from wieldy import Script, Session, Tool, ToolFailure, tool
from wieldy.agent.conversation import fold
from wieldy.agent.records import TranscriptRecord
from wieldy.agent.transcript import records
from wieldy.core.events import Event, RunEnded
from wieldy.core.session_files import TRANSCRIPT_NAME

CALLS = st.fixed_dictionaries(
    {"call": st.sampled_from(["note", "fails", "slow", "nowhere"])},
    optional={
        "chunk": st.integers(1, 5),
        "id": st.sampled_from(["same", "other"]),
        "raw": st.sampled_from(["", "{", "[]"]),
    },
)
STEPS = st.one_of(
    CALLS,
    st.fixed_dictionaries({"text": st.sampled_from(["well", " ", "two words"])}, optional={"chunk": st.integers(1, 4)}),
    st.just({"think": "hm", "signature": "s"}),
    st.sampled_from(
        [
            {"fail": "overloaded", "retry_after": 0},
            {"fail": "bad_request", "retry_after": 0},
            {"cut": True, "retry_after": 0},
            {"stop": "max_tokens"},
            {"stop": "pause_turn"},
            {"usage": {"input_tokens": 3, "output_tokens": 2}},
        ]
    ),
)
PLAIN = st.lists(STEPS, min_size=1, max_size=5)
# Breaks while tools run, or when some have ended: the moments at which asking again would do things twice.
BROKEN = st.tuples(st.lists(CALLS, min_size=1, max_size=3), st.lists(STEPS, max_size=2)).map(
    lambda parts: [*parts[0], {"pause": 0.004}, *parts[1], {"cut": True, "retry_after": 0}]
)
TURNS = st.lists(st.one_of(PLAIN, BROKEN), min_size=1, max_size=6)


class World:
    """A place for a session, tools that count their runs, and scripts whose every call is told apart by its word."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs: Counter[str] = Counter()
        self.answered: set[str] = set()

    def tools(self) -> list[Tool]:
        @tool(read_only=True)
        async def note(word: str) -> str:
            """Note a word."""
            self.runs[word] += 1
            return f"did {word}"

        @tool(read_only=True)
        async def slow(word: str) -> str:
            """Note a word after a moment."""
            self.runs[word] += 1
            await asyncio.sleep(0.002)
            return f"did {word}"

        @tool(read_only=True)
        async def fails(word: str) -> str:
            """Fail."""
            self.runs[word] += 1
            raise ToolFailure(f"did {word}")

        return [note, slow, fails]

    def session(self, turns: list[list[dict[str, Any]]], **options: Any) -> Session:
        model = Script(numbered(turns))
        return Session(self.folder, model=model, tools=self.tools(), builtins=False, settings={}, **options)

    def check(self, session: Session) -> None:
        """Every request that went out was valid, and no tool ran twice."""
        model = session.provider
        assert isinstance(model, Script)
        for request in model.requests:
            messages = [message.as_dict() for message in request.messages]
            paused = messages[-1]["role"] == "assistant"
            (check_history if paused else check_request)(messages)
        if session.messages:
            check_history(session.messages)
        assert all(count == 1 for count in self.runs.values()), self.runs
        said = str(session.messages)
        assert all(f"'word': '{word}'" in said for word in self.runs), "what ran is never forgotten"


def numbered(turns: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    """Each call of a script gets a word of its own, so that running twice can be seen."""
    count = iter(range(10_000))
    return [
        [{**step, "input": {"word": f"w{next(count)}"}} if "call" in step else step for step in turn] for turn in turns
    ]


@contextmanager
def world() -> Iterator[World]:
    folder = Path(tempfile.mkdtemp(prefix="wieldy-law-"))
    before = os.environ.get("WIELDY_HOME")
    os.environ["WIELDY_HOME"] = str(folder / "home")
    try:
        (folder / "project").mkdir()
        yield World(folder / "project")
    finally:
        if before is None:
            del os.environ["WIELDY_HOME"]
        else:
            os.environ["WIELDY_HOME"] = before
        shutil.rmtree(folder)


async def ran(session: Session, interrupt_at: int | None = None) -> RunEnded:
    async with asyncio.timeout(30):
        events: list[Event] = []
        async for event in session.run("go"):
            if len(events) == interrupt_at:
                session.abort()
            events.append(event)
    last = events[-1]
    assert isinstance(last, RunEnded)
    return last


@given(TURNS)
@settings(max_examples=60, deadline=None)
def test_any_script_leaves_valid_requests_behind(turns):
    async def live(w: World) -> None:
        async with w.session(turns) as session:
            await ran(session)
            await ran(session)
            w.check(session)

    with world() as w:
        asyncio.run(live(w))


@given(TURNS, st.integers(0, 40))
@settings(max_examples=60, deadline=None)
def test_an_interrupt_at_any_event_leaves_a_session_one_can_go_on_with(turns, at):
    async def live(w: World) -> None:
        async with w.session([*turns, [{"text": "still here"}]]) as session:
            await ran(session, interrupt_at=at)
            await ran(session)
            w.check(session)

    with world() as w:
        asyncio.run(live(w))


@given(TURNS, st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_a_crash_at_any_byte_of_the_log_leaves_a_session_one_can_resume(turns, share):
    async def live(w: World) -> None:
        async with w.session(turns) as session:
            await ran(session)
        path = session.box.workspace.session_dir / TRANSCRIPT_NAME
        whole = path.read_bytes()
        path.write_bytes(whole[: round(share * len(whole))])
        before = [message.as_dict() for message in fold(records(path.parent)).messages]
        if before:
            check_history(before)
        w.runs.clear()
        async with w.session([[{"text": "back"}]], resume=session.id) as resumed:
            assert resumed.messages == before
            assert (await ran(resumed)).why == "done"
            w.check(resumed)
        assert not w.runs, "resuming runs nothing"

    with world() as w:
        asyncio.run(live(w))


@given(TURNS, TURNS, st.lists(st.booleans(), min_size=1, max_size=30))
@settings(max_examples=40, deadline=None)
def test_two_writers_in_one_log_in_any_interleaving_can_be_resumed(mine, theirs, order):
    async def log_of(w: World, turns: list[list[dict[str, Any]]]) -> list[TranscriptRecord]:
        async with w.session(turns) as session:
            await ran(session)
        return list(records(session.box.workspace.session_dir))

    with world() as w:
        first, second = asyncio.run(log_of(w, mine)), asyncio.run(log_of(w, theirs))
    mixed, turn = [], cycle(order)
    while first or second:
        source = first if first and (not second or next(turn)) else second
        mixed.append(source.pop(0))
    messages = [message.as_dict() for message in fold(mixed).messages]
    if messages:
        check_history(messages)
