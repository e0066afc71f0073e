"""Laws of scheduling: clashing calls never overlap, earlier ones go first, nothing waits without need, everything ends."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.core.effects import NO_EFFECTS, UNKNOWN_EFFECTS, Effects, Fetches, Reads, Runs, Writes, clash
from wieldy.core.supervise import Abort, Aborted, Supervisor
from wieldy.engine.queue import Queue, Ticket

PATHS = ["/p/a", "/p/b", "/p/d", "/p/d/x", "/p/d/y", "/p"]
EFFECT = st.one_of(
    st.sampled_from(PATHS).map(Reads),
    st.sampled_from(PATHS).map(Writes),
    st.just(Runs("ls", contained=True)),
    st.just(Fetches("http://localhost/")),
)
EFFECTS = st.one_of(
    st.just(NO_EFFECTS),
    st.just(UNKNOWN_EFFECTS),
    st.just((Runs("make"),)),
    st.lists(EFFECT, max_size=3).map(tuple),
)


@dataclass
class Job:
    effects: Effects
    steps: int
    fails: bool
    rewritten: Effects | None
    nested: Effects | None
    log: list[tuple[str, int]] = field(default_factory=list)


JOBS = st.lists(
    st.builds(
        Job,
        effects=EFFECTS,
        steps=st.integers(0, 3),
        fails=st.booleans(),
        rewritten=st.none() | EFFECTS,
        nested=st.none() | EFFECTS,
    ),
    min_size=1,
    max_size=9,
)


@dataclass
class Trace:
    events: list[tuple[str, int]] = field(default_factory=list)
    held: dict[int, Effects] = field(default_factory=dict)
    overlaps: list[tuple[int, int]] = field(default_factory=list)

    def begin(self, number: int, effects: Effects) -> None:
        self.overlaps += [(number, other) for other, held in self.held.items() if clash(effects, held)]
        self.held[number] = effects
        self.events.append(("begin", number))

    def end(self, number: int) -> None:
        del self.held[number]
        self.events.append(("end", number))


async def work(number: int, job: Job, queue: Queue, trace: Trace, abort: Abort, *, rewrites: bool = False) -> str:
    with queue.take_ticket() as ticket:
        try:
            queue.claim(ticket, job.effects, None)
            await queue.wait_admitted(ticket, abort)
            effects = job.effects
            if rewrites and job.rewritten is not None:
                await asyncio.sleep(0)
                effects = job.rewritten
                await queue.readmit(ticket, effects, None, abort)
            await queue.start(ticket, abort)
            trace.begin(number, effects)
            try:
                for _ in range(job.steps):
                    await asyncio.sleep(0)
                if job.nested is not None:
                    await inner(job.nested, queue, abort)
                if job.fails:
                    raise ValueError("as asked")
            finally:
                trace.end(number)
        except Aborted:
            return "aborted"
        except ValueError:
            return "failed"
    return "done"


async def inner(effects: Effects, queue: Queue, abort: Abort) -> None:
    with queue.take_ticket() as ticket:
        queue.claim(ticket, effects, None)
        await queue.wait_admitted(ticket, abort)
        await queue.start(ticket, abort)
        await asyncio.sleep(0)


async def run(
    jobs: list[Job], limit: int, *, rewrites: bool = False, stop_after: int | None = None
) -> tuple[Trace, list[str]]:
    queue, trace, abort = Queue(limit, Supervisor()), Trace(), Abort()
    tasks = [
        asyncio.create_task(work(number, job, queue, trace, abort, rewrites=rewrites))
        for number, job in enumerate(jobs)
    ]
    if stop_after is not None:
        for _ in range(stop_after):
            await asyncio.sleep(0)
        abort.set()
    ended = await asyncio.wait_for(asyncio.gather(*tasks), timeout=20)
    assert not queue._claimed
    assert queue._running == 0
    assert queue._exclusive_count == 0
    return trace, ended


@settings(max_examples=300, deadline=None)
@given(JOBS, st.integers(1, 10))
def test_clashing_calls_never_overlap_and_run_in_order_of_arrival(jobs: list[Job], limit: int) -> None:
    trace, ended = asyncio.run(run(jobs, limit))
    assert trace.overlaps == []
    assert ended == ["failed" if job.fails else "done" for job in jobs]
    for later, job in enumerate(jobs):
        for earlier in range(later):
            if clash(jobs[earlier].effects, job.effects):
                assert trace.events.index(("end", earlier)) < trace.events.index(("begin", later))


@settings(max_examples=200, deadline=None)
@given(JOBS, st.integers(1, 4))
def test_no_more_calls_run_at_once_than_the_limit(jobs: list[Job], limit: int) -> None:
    trace, _ = asyncio.run(run(jobs, limit))
    running = most = 0
    for kind, _ in trace.events:
        running += 1 if kind == "begin" else -1
        most = max(most, running)
    assert most <= limit


@settings(max_examples=600, deadline=None)
@given(JOBS)
def test_a_call_rewritten_after_admission_never_overlaps_what_it_now_clashes_with(jobs: list[Job]) -> None:
    trace, ended = asyncio.run(run(jobs, 10, rewrites=True))
    assert trace.overlaps == []
    assert len(ended) == len(jobs)


@settings(max_examples=200, deadline=None)
@given(JOBS, st.integers(0, 12), st.integers(1, 10))
def test_an_abort_at_any_moment_ends_every_call_and_frees_every_place(jobs: list[Job], moment: int, limit: int) -> None:
    trace, ended = asyncio.run(run(jobs, limit, stop_after=moment))
    assert len(ended) == len(jobs)
    assert trace.overlaps == []
    assert trace.held == {}


def test_calls_that_do_not_clash_overlap() -> None:
    async def scene() -> int:
        queue, abort = Queue(10, Supervisor()), Abort()
        together = asyncio.Barrier(3)

        async def reader(effects: Effects) -> None:
            with queue.take_ticket() as ticket:
                queue.claim(ticket, effects, None)
                await queue.wait_admitted(ticket, abort)
                await queue.start(ticket, abort)
                await together.wait()

        await asyncio.wait_for(
            asyncio.gather(reader((Reads("/p/a"),)), reader((Writes("/p/b"),)), reader(NO_EFFECTS)), timeout=5
        )
        return 3

    assert asyncio.run(scene()) == 3


def test_a_declared_safety_overrides_the_effects() -> None:
    async def scene(safe: bool | None) -> int:
        queue, abort = Queue(10, Supervisor()), Abort()
        running = most = 0

        async def call() -> None:
            nonlocal running, most
            with queue.take_ticket() as ticket:
                queue.claim(ticket, UNKNOWN_EFFECTS if safe else NO_EFFECTS, safe)
                await queue.wait_admitted(ticket, abort)
                await queue.start(ticket, abort)
                running += 1
                most = max(most, running)
                await asyncio.sleep(0)
                running -= 1

        await asyncio.gather(*(call() for _ in range(4)))
        return most

    assert asyncio.run(scene(True)) == 4
    assert asyncio.run(scene(False)) == 1


def test_who_may_go_is_waited_for_though_it_has_not_gone_yet() -> None:
    async def scene() -> list[str]:
        queue, abort, seen = Queue(10, Supervisor()), Abort(), []
        first, rewritten, waiting = queue.take_ticket(), queue.take_ticket(), queue.take_ticket()
        queue.claim(first, (Writes("/p/a"),), None)
        queue.claim(rewritten, NO_EFFECTS, None)
        assert not queue.claim(waiting, (Reads("/p/a"),), None)

        async def go(ticket: Ticket, name: str) -> None:
            await queue.wait_admitted(ticket, abort)
            seen.append(name)
            await asyncio.sleep(0)
            seen.append(f"{name} ended")
            queue.leave(ticket)

        going = asyncio.create_task(go(waiting, "waiting"))
        await asyncio.sleep(0)
        becoming = asyncio.create_task(queue.readmit(rewritten, UNKNOWN_EFFECTS, None, abort))
        queue.leave(first)  # the one that waits may go from here on, but the other gets to its rewriting before it does
        becoming.add_done_callback(lambda _: seen.append("rewritten"))
        await asyncio.gather(going, becoming)
        await asyncio.sleep(0)
        return seen

    assert asyncio.run(scene()) == ["waiting", "waiting ended", "rewritten"]
