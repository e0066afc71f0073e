"""A session through anything: talk, tools side by side, cut streams, errors, interrupts, crashes, compaction, copies.

After every step the history is one the API takes, every call has its one result in order, and no tool has run twice.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.laws.wires import Called, Reply, Said, Wire
from tests.unit.agent.oracle import check_history

from wieldy import Session, Tool, ToolContext, ToolFailure, tool
from wieldy.agent.records import TranscriptRecord
from wieldy.core.errors import SessionError
from wieldy.core.events import RunEnded
from wieldy.core.provider import ProviderFailure
from wieldy.core.session_files import TRANSCRIPT_NAME

TOOLS = st.sampled_from(["look", "slow", "act", "fails", "nowhere"])
IDS = st.sampled_from(["same", "other", "fresh"])
ORDER = st.lists(st.integers(0, 5), min_size=1, max_size=8).map(tuple)
WIRES = st.sampled_from(["messages", "completions", "responses"])
SHARES = st.floats(0, 1)


class Dying(Session):
    """A session that can remember what was on disk, and what had run, at one record of the next run."""

    machine: SessionMachine
    deadly: int | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._append = self.transcript.append
        self.transcript.append = self._append_and_count  # type: ignore[method-assign]

    def _append_and_count(self, record: TranscriptRecord) -> None:
        self._append(record)
        if self.deadly is not None:
            self.deadly -= 1
            if self.deadly == 0:
                self.machine.photograph()


class SessionMachine(RuleBasedStateMachine):
    """One conversation, by whatever sessions and copies of sessions it goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="wieldy-machine-"))
        self.home_before = os.environ.get("WIELDY_HOME")
        os.environ["WIELDY_HOME"] = str(self.folder / "home")
        (self.folder / "project").mkdir()
        self.runner = asyncio.Runner()
        self.model = Wire()
        self.words = 0
        self.runs: Counter[str] = Counter()
        self.ids: Counter[str] = Counter()
        self.must_tell: set[str] = set()
        self.picture: tuple[bytes, Counter[str], Counter[str], set[str]] | None = None
        self.session: Dying

    @initialize()
    def begin(self) -> None:
        self.session = self.opened()

    def opened(self, **options: Any) -> Dying:
        session = Dying(
            self.folder / "project",
            model=self.model,
            tools=self.tools(),
            builtins=False,
            settings={},
            mode="bypassPermissions",
            **options,
        )
        session.machine = self
        self.runner.run(session.__aenter__())
        return session

    def tools(self) -> list[Tool]:
        def ran(word: str, ctx: ToolContext) -> None:
            self.runs[word] += 1
            self.ids[ctx.call_id] += 1
            self.must_tell.add(word)

        @tool(read_only=True)
        async def look(word: str, ctx: ToolContext) -> str:
            """Look at something."""
            ran(word, ctx)
            return f"saw {word}"

        @tool(read_only=True)
        async def slow(word: str, ctx: ToolContext) -> str:
            """Look at something for a while."""
            ran(word, ctx)
            await asyncio.sleep(0.001)
            return f"saw {word}"

        @tool(needs_permission=False)
        async def act(word: str, ctx: ToolContext) -> str:
            """Do something that lasts."""
            ran(word, ctx)
            await asyncio.sleep(0)
            return f"did {word}"

        @tool(read_only=True)
        async def fails(word: str, ctx: ToolContext) -> str:
            """Fail."""
            ran(word, ctx)
            raise ToolFailure(f"no {word}")

        return [look, slow, act, fails]

    def photograph(self) -> None:
        log = self.session.box.workspace.session_dir / TRANSCRIPT_NAME
        self.picture = (log.read_bytes(), self.runs.copy(), self.ids.copy(), set(self.must_tell))

    def blocks(self, calls: list[tuple[str, str]], text: str = "") -> tuple[Said | Called, ...]:
        """Calls with a word each of their own, so that one that runs twice can be seen."""
        made: list[Said | Called] = [Said(text)] if text else []
        for name, call_id in calls:
            self.words += 1
            unique = f"id{self.words}" if call_id == "fresh" else call_id
            made.append(Called(unique, name, json.dumps({"word": f"w{self.words}"})))
        return tuple(made)

    def run(self, *replies: Reply, interrupt_at: int | None = None) -> RunEnded:
        """Say something and hear the replies; a conversation that was summed up meanwhile may have forgotten words."""
        self.model.replies = list(replies)

        async def live() -> RunEnded:
            number = 0
            async with asyncio.timeout(30):
                async for event in self.session.run("go on"):
                    if number == interrupt_at:
                        self.session.abort()
                    number += 1
                    if event.kind == "compact":
                        self.must_tell.clear()
                    last = event
            assert isinstance(last, RunEnded)
            return last

        ended = self.runner.run(live())
        self.model.replies = []
        return ended

    @rule(text=st.sampled_from(["well", " ", "two words"]), wire=WIRES)
    def say(self, text: str, wire: Any) -> None:
        assert self.run(Reply((Said(text),), wire=wire)).why == "done"

    @rule(
        calls=st.lists(st.tuples(TOOLS, IDS), min_size=1, max_size=4), order=ORDER, piece=st.integers(1, 9), wire=WIRES
    )
    def call(self, calls: list[tuple[str, str]], order: tuple[int, ...], piece: int, wire: Any) -> None:
        before, wanted = sum(self.runs.values()), sum(name != "nowhere" for name, _ in calls)
        ended = self.run(Reply(self.blocks(calls, "let me see"), order, piece, wire=wire))
        assert ended.why == "done"
        assert sum(self.runs.values()) == before + wanted, "every call was run, once"

    @rule(
        calls=st.lists(st.tuples(TOOLS, IDS), min_size=1, max_size=3),
        order=ORDER,
        piece=st.integers(1, 9),
        wire=WIRES,
        share=SHARES,
        again=SHARES,
    )
    def cut(self, calls: Any, order: Any, piece: int, wire: Any, share: float, again: float) -> None:
        first = Reply(self.blocks(calls), order, piece, share, wire)
        second = Reply(self.blocks(calls, "once more"), order, piece, again, wire)
        assert self.run(first, second).why in ("done", "error")

    @rule(kind=st.sampled_from(["rate", "overloaded", "connection", "bad_request", "auth", "overflow", "too_large"]))
    def error(self, kind: Any) -> None:
        ended = self.run(Reply(failure=kind), Reply(self.blocks([("look", "fresh")])))
        assert ended.why == "done" or kind not in ("rate", "overloaded", "connection")

    @rule(calls=st.lists(st.tuples(TOOLS, IDS), min_size=1, max_size=3), order=ORDER, at=st.integers(0, 25))
    def interrupt(self, calls: Any, order: Any, at: int) -> None:
        ended = self.run(Reply(self.blocks(calls, "hm"), order), Reply(self.blocks(calls)), interrupt_at=at)
        assert ended.why in ("done", "interrupted")

    @rule(
        calls=st.lists(st.tuples(TOOLS, IDS), min_size=1, max_size=3), order=ORDER, at=st.integers(1, 14), torn=SHARES
    )
    def crash(self, calls: Any, order: Any, at: int, torn: float) -> None:
        """The process is gone after some record, or while it wrote the next one; another one goes on."""
        self.picture, self.session.deadly = None, at
        self.run(Reply(self.blocks(calls, "hm"), order), Reply(self.blocks(calls)))
        self.session.deadly = None
        if self.picture is None:
            self.photograph()
        assert self.picture is not None
        log = self.session.box.workspace.session_dir / TRANSCRIPT_NAME
        self.runner.run(self.session.aclose())
        kept, self.runs, self.ids, self.must_tell = self.picture
        following = log.read_bytes()[len(kept) :].split(b"\n")[0]
        log.write_bytes(kept + following[: int(torn * len(following))])
        ran = self.runs.copy()
        self.session = self.opened(resume=self.session.id)
        assert self.runs == ran, "resuming runs nothing"

    @rule()
    def compact(self) -> None:
        self.model.replies = [Reply((Said("a summary"),))]
        try:
            self.runner.run(self.session.compact())
        except (SessionError, ProviderFailure) as failure:
            raise AssertionError("a conversation can be summed up") from failure
        self.must_tell.clear()

    @rule()
    def fork(self) -> None:
        """Go on with a copy; of a session to which nothing has been said there is none."""
        if not (self.session.box.workspace.session_dir / TRANSCRIPT_NAME).exists():
            return
        before, original = self.session.messages, self.session
        self.session = self.opened(resume=original.id, fork=True)
        self.runner.run(original.aclose())
        assert self.session.id != original.id
        assert self.session.messages == before

    @invariant()
    def the_next_request_is_valid(self) -> None:
        if hasattr(self, "session") and self.session.messages:
            check_history(self.session.messages)

    @invariant()
    def nothing_ran_twice(self) -> None:
        assert all(count == 1 for count in self.runs.values()), self.runs
        assert all(count == 1 for count in self.ids.values()), self.ids

    @invariant()
    def nothing_that_ran_is_forgotten(self) -> None:
        if self.must_tell:
            said = json.dumps(self.session.messages)
            assert all(f'"{word}"' in said for word in self.must_tell), (self.must_tell, said)

    def teardown(self) -> None:
        if hasattr(self, "session"):
            self.runner.run(self.session.aclose())
        self.runner.close()
        if self.home_before is None:
            del os.environ["WIELDY_HOME"]
        else:
            os.environ["WIELDY_HOME"] = self.home_before
        shutil.rmtree(self.folder)


TestSessionMachine = SessionMachine.TestCase
TestSessionMachine.settings = settings(max_examples=30, stateful_step_count=10, deadline=None)
