"""Request rates: one bucket per provider key for a whole run, which learns from 429 and `retry-after`.

A request waits for its turn before it is sent. When the provider limits us, no request is sent until it says so, and then at half
the rate; the rate doubles at most once a minute. Waiting does not count against the time of a task.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from hashlib import blake2b
from typing import Protocol

from msgspec import Struct

from wieldy.core.provider import Delta, Provider, ProviderFailure, Request
from wieldy.models.catalog import PROVIDERS, with_provider


class WorkClock:
    """Measures an attempt on two clocks. Waits may overlap; each moment is counted once."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._started = now()
        self._waited = 0.0
        self._waits = 0
        self._wait_started = 0.0

    @property
    def wall(self) -> float:
        return self._now() - self._started

    @property
    def waited(self) -> float:
        return self._waited + (self._now() - self._wait_started if self._waits else 0.0)

    @property
    def working(self) -> float:
        return self.wall - self.waited

    def begin_wait(self) -> None:
        if self._waits == 0:
            self._wait_started = self._now()
        self._waits += 1

    def end_wait(self) -> None:
        self._waits -= 1
        if self._waits == 0:
            self._waited += self._now() - self._wait_started

    @contextmanager
    def waiting(self) -> Iterator[None]:
        self.begin_wait()
        try:
            yield
        finally:
            self.end_wait()


WINDOW_SECONDS = 60.0
MIN_RATE = 0.05  # requests a second
FIRST_BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 60.0
CUT_SECONDS = 2.0  # 429s that come together count as one
DOUBLING_SECONDS = 60.0
_RATE = re.compile(r"([\w.-]+)=([0-9]+(?:\.[0-9]+)?)(?:/(s|sec|m|min|h|hour))?")
_UNIT_SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "hour": 3600}


class RateGate(Protocol):
    """Lets requests of one provider key through."""

    async def acquire(self, key: str) -> None:
        """Wait until a request may be sent."""

    def report(self, key: str, report: RateReport) -> None:
        """Say how a request went."""


class RateReport(Struct, frozen=True, omit_defaults=True):
    """How a request went: answered, or limited by the provider, which may have said how long to wait."""

    limited: bool = False
    retry_after: float | None = None


class RateBucket:
    """The requests of one provider key. `cap` is the rate a person has set, in requests a second."""

    def __init__(
        self,
        cap: float | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.cap = cap
        self.rate = cap
        self._now = now
        self._sleep = sleep
        self._turn = asyncio.Lock()
        self._next = 0.0
        self._blocked_until = 0.0
        self._backoff = FIRST_BACKOFF_SECONDS
        self._last_cut = float("-inf")
        self._last_raise = now()
        self._sent: deque[float] = deque(maxlen=10_000)

    async def acquire(self) -> None:
        """Wait until a request may be sent; first come, first served."""
        async with self._turn:
            while (delay := max(self._next, self._blocked_until) - self._now()) > 0:
                await self._sleep(delay)
            now = self._now()
            if self.rate is not None:
                self._next = now + 1 / self.rate
            self._sent.append(now)

    def report(self, report: RateReport) -> None:
        now = self._now()
        if not report.limited:
            self._backoff = FIRST_BACKOFF_SECONDS
            self._raise(now)
            return
        is_new = now - self._last_cut > CUT_SECONDS
        wait = report.retry_after
        if wait is None:
            wait = self._backoff
            if is_new:
                self._backoff = min(self._backoff * 2, MAX_BACKOFF_SECONDS)
        self._blocked_until = max(self._blocked_until, now + wait)
        if is_new:
            self._last_cut = self._last_raise = now
            self.rate = max((self.rate or self._observed(now)) / 2, MIN_RATE)

    def _observed(self, now: float) -> float:
        """The rate at which requests were sent lately."""
        while self._sent and self._sent[0] < now - WINDOW_SECONDS:
            self._sent.popleft()
        span = max(now - self._sent[0], 1.0) if self._sent else 1.0
        return max(len(self._sent), 1) / span

    def _raise(self, now: float) -> None:
        if self.rate is not None and now >= self._blocked_until:
            elapsed, self._last_raise = min(now - self._last_raise, 10.0), now
            self.rate *= 2 ** (elapsed / DOUBLING_SECONDS)
            if self.cap is not None:
                self.rate = min(self.rate, self.cap)


class RateLimiter:
    """The buckets of a run, by provider key. `caps` are rates by provider name that a person has set."""

    def __init__(self, caps: Mapping[str, float] | None = None) -> None:
        self._caps = caps or {}
        self._buckets: dict[str, RateBucket] = {}

    def bucket(self, key: str) -> RateBucket:
        if key not in self._buckets:
            self._buckets[key] = RateBucket(self._caps.get(key.partition("#")[0]))
        return self._buckets[key]

    async def acquire(self, key: str) -> None:
        await self.bucket(key).acquire()

    def report(self, key: str, report: RateReport) -> None:
        self.bucket(key).report(report)


def rate_key(model: str, base_url: str | None, env: Mapping[str, str] = os.environ) -> str | None:
    """What shares a rate limit: the provider, its address and its key, without telling the key. None for a script."""
    if model.startswith("script:"):
        return None
    name = (model if base_url else with_provider(model)).partition("/")[0]
    record = PROVIDERS.get(name)
    provider = name if record else "custom"
    secret = env.get(record.credential(env) or "", "") if record else ""
    url = record.address(env, base_url) if record else base_url
    return f"{provider}#{blake2b(f'{url} {secret}'.encode(), digest_size=4).hexdigest()}"


def parse_rate(text: str) -> tuple[str, float]:
    """Parse `anthropic=60/min`. Raises `ValueError`."""
    match = _RATE.fullmatch(text.strip())
    if match is None or not float(match[2]) > 0:
        raise ValueError(f"`{text}` is not a rate, such as anthropic=60/min or openai=5/s")
    return match[1], float(match[2]) / _UNIT_SECONDS[match[3] or "min"]


class GatedProvider:
    """A provider whose requests pass a gate. A request that is limited waits and is sent again, for up to `patience` seconds."""

    def __init__(self, inner: Provider, key: str, gate: RateGate, clock: WorkClock, *, patience: float) -> None:
        self._inner = inner
        self._key = key
        self._gate = gate
        self._clock = clock
        self._patience = patience
        self.name = inner.name
        self.model = inner.model
        self.context_window = inner.context_window

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[Delta]]:
        """Send a request when it may be sent. Raises `ProviderFailure`."""
        started = time.monotonic()
        async with AsyncExitStack() as stack:
            while True:
                with self._clock.waiting():
                    await self._gate.acquire(self._key)
                try:
                    deltas = await stack.enter_async_context(self._inner.stream(request))
                except ProviderFailure as failure:
                    if failure.kind in ("rate", "overloaded"):
                        self._gate.report(self._key, RateReport(limited=True, retry_after=failure.retry_after))
                    waited = time.monotonic() - started + (failure.retry_after or 0)
                    if failure.kind != "rate" or waited > self._patience:
                        raise
                else:
                    break
            self._gate.report(self._key, RateReport())
            yield deltas

    async def aclose(self) -> None:
        await self._inner.aclose()
