"""Whatever a subagent's model does, every call that sent one gets exactly one result, and nobody is left at work."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.unit.agent.oracle import check_history

from wieldy import Script, Session
from wieldy.agent.transcript import raw_records
from wieldy.core.events import Event, RunEnded
from wieldy.core.provider import BlockStarted, Delta, Request

CRASH = {"stop": "crash"}  # is taken out of the script
STEPS = st.sampled_from(
    [
        {"text": "well"},
        {"think": "hm", "signature": "s"},
        {"call": "Read", "input": {"file_path": "a.txt"}},
        {"call": "Write", "input": {"file_path": "b.txt", "content": "x"}},
        {"call": "Bash", "input": {"command": "echo hello"}},
        {"call": "Agent", "input": {"prompt": "further down"}},
        {"call": "nowhere", "input": {}},
        {"call": "Read", "raw": "{"},
        {"fail": "overloaded", "retry_after": 0},
        {"fail": "auth"},
        {"fail": "overflow"},
        {"cut": True, "retry_after": 0},
        {"stop": "max_tokens"},
        {"stop": "refusal"},
        CRASH,
    ]
)
HANGS = st.just([{"text": "hm"}, {"pause": 30}])
TURNS = st.one_of(*[st.lists(STEPS, min_size=1, max_size=3)] * 6, HANGS)
PARTS = st.lists(TURNS, min_size=1, max_size=3)
GENERAL = {"agent_type": "general"}
SENT = st.lists(
    st.fixed_dictionaries(
        {"agent_type": st.sampled_from(["explore", "general"])}, optional={"run_in_background": st.just(True)}
    ),
    min_size=1,
    max_size=3,
)


class Wild(Script):
    """A script whose agents may also crash in the middle of a stream, as a bug in a provider would have it."""

    crashes: frozenset[int] = frozenset()

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[Delta]]:
        broken = self._next in self.crashes
        async with super().stream(request) as deltas:
            yield _crashing(deltas) if broken else deltas

    def delegated(self, agent_type: str, prompt: str) -> Script:
        part = next(part for _, words, part in self.agents if words in prompt)
        child = Wild([[step for step in turn if step != CRASH] for turn in part.turns], agents=self.agents)
        child.crashes = frozenset(n for n, turn in enumerate(part.turns) if CRASH in turn)
        return child


async def _crashing(deltas: AsyncIterator[Delta]) -> AsyncIterator[Delta]:
    async for delta in deltas:
        yield delta
        if isinstance(delta, BlockStarted):
            break
    raise RuntimeError("a bug in the provider")


@contextmanager
def somewhere() -> Iterator[Path]:
    before = {name: os.environ.get(name) for name in ("HOME", "WIELDY_HOME")}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ.update(HOME=folder, WIELDY_HOME=f"{folder}/state")
        root = Path(folder, "project")
        root.mkdir()
        (root / "a.txt").write_text("alpha\n")
        try:
            yield root
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


async def follow(root: Path, sent: list[dict[str, Any]], parts: list[Any], mode: str, patience: int) -> Session:
    """Run a session that sends agents, and interrupt it after so many events, or when nothing happens any more."""
    model = Wild()
    for number, input in enumerate(sent):
        model.calls("Agent", prompt=f"part {number % len(parts)}.", **input)
    model.says("and so on")
    model.turns += [[{"text": "heard"}] for _ in sent]
    for number, turns in enumerate(parts):
        model.sends(None, Script(turns), prompt=f"part {number}.")
    model.sends(None, Script([[{"text": "deep"}]]), prompt="further down")
    async with Session(root, model=model, settings={}, mode=mode) as session:
        events: list[Event] = []

        async def watch() -> None:
            async for event in session.run("go"):
                events.append(event)
                if len(events) == patience:
                    session.abort()

        run = asyncio.ensure_future(watch())
        seen = -1
        while not run.done():
            if seen == len(events):  # it hangs: what a person would do
                session.abort()
            seen = len(events)
            await asyncio.wait((run,), timeout=0.3)
        await run
        assert isinstance(events[-1], RunEnded)
        registry = session.box.workspace.services.subagent_registry
    assert not [one for one in registry.all() if one.running]
    return session


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    sent=SENT,
    parts=st.lists(PARTS, min_size=1, max_size=2),
    mode=st.sampled_from(["default", "bypassPermissions", "bypassPermissions", "plan"]),
    patience=st.sampled_from([10_000, 10_000, 10_000, 12, 25]),
)
@example(sent=[GENERAL] * 2, parts=[[[CRASH]]], mode="bypassPermissions", patience=10_000)
@example(sent=[GENERAL], parts=[[[{"cut": True, "retry_after": 0}], [{"text": "x"}]]], mode="default", patience=10_000)
@example(sent=[GENERAL], parts=[[[{"text": "x"}, {"pause": 30}]]], mode="default", patience=10_000)
@example(sent=[{**GENERAL, "run_in_background": True}], parts=[[[{"fail": "auth"}]]], mode="default", patience=10_000)
def test_every_call_that_sends_an_agent_gets_one_result(
    sent: list[dict[str, Any]], parts: list[Any], mode: str, patience: int
) -> None:
    with somewhere() as root:
        session = asyncio.run(follow(root, sent, parts, mode, patience))
        check_history(session.messages)
        folder = session.box.workspace.session_dir
        named = [one for one in raw_records(folder) if one["type"] == "agent"]
        ended = [one["id"] for one in raw_records(folder) if one["type"] == "agent_ended"]
        assert sorted(one["id"] for one in named) == sorted(ended), "each of them ended once"
        for one in named:
            assert Path(one["transcript"]).parent.name == one["id"]
