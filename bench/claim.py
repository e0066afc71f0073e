"""A speed claim: a measurement beside its reference in the same run, and the bound it must keep.

Bounds leave room for readable code: they say what a user would notice, not what the fastest version once reached.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """`value` must not exceed `bound`; `detail` says what was measured beside what."""

    text: str
    value: float
    bound: float
    unit: str = "×"
    detail: str = ""
    at_least: bool = False

    @property
    def holds(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "≤"
        mark = "ok  " if self.holds else "MISS"
        detail = f"   [{self.detail}]" if self.detail else ""
        return f"{mark} {self.text}: {self.value:.3g}{self.unit} ({sign} {self.bound:g}{self.unit}){detail}"


@contextmanager
def uncollected() -> Iterator[None]:
    """With the garbage collector out of the way."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one run, with the garbage collector out of the way."""
    with uncollected():
        start = time.perf_counter()
        work()
        return time.perf_counter() - start


async def best_awaited(rounds: int, *works: Callable[[], Awaitable[object]]) -> list[float]:
    """`best_of` for work on a loop that runs already, as it does for whoever calls a tool."""
    best = [float("inf")] * len(works)
    for _ in range(rounds):
        for index, work in enumerate(works):
            with uncollected():
                start = time.perf_counter()
                await work()
                best[index] = min(best[index], time.perf_counter() - start)
    return best


def best_of(rounds: int, *works: Callable[[], object]) -> list[float]:
    """The fastest run of each piece of work, run in turns so that a busy moment hits all of them alike."""
    best = [float("inf")] * len(works)
    for _ in range(rounds):
        for index, work in enumerate(works):
            best[index] = min(best[index], seconds(work))
    return best
