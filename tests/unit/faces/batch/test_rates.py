"""Rates: requests wait for their turn, and the rate follows what the provider says."""

from __future__ import annotations

import asyncio

import pytest

from wieldy.faces.batch.rates import RateBucket, RateLimiter, RateReport, WorkClock, parse_rate, rate_key

pytestmark = pytest.mark.asyncio(loop_scope="function")


class FakeTime:
    """A clock that moves when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


def make_bucket(cap: float | None = None) -> tuple[RateBucket, FakeTime]:
    time = FakeTime()
    return RateBucket(cap, now=time, sleep=time.sleep), time


async def test_nobody_waits_until_the_provider_limits_us():
    bucket, time = make_bucket()
    for _ in range(100):
        await bucket.acquire()
    assert time.now == 1000.0


async def test_a_rate_that_a_person_has_set_is_kept():
    bucket, time = make_bucket(cap=2.0)
    for _ in range(11):
        await bucket.acquire()
        bucket.report(RateReport())
    assert time.now == pytest.approx(1005.0)


async def test_after_a_limit_nobody_sends_until_the_provider_said_so():
    bucket, time = make_bucket()
    for _ in range(30):
        await bucket.acquire()
    bucket.report(RateReport(limited=True, retry_after=60))
    await bucket.acquire()
    assert time.now == pytest.approx(1060.0)


async def test_then_requests_come_at_half_the_rate_and_limits_that_come_together_count_once():
    bucket, time = make_bucket()
    for _ in range(20):
        await bucket.acquire()
        time.now += 0.1
    for _ in range(8):
        bucket.report(RateReport(limited=True, retry_after=1))
    assert bucket.rate == pytest.approx(5.0, rel=0.1)
    await bucket.acquire()
    before = time.now
    await bucket.acquire()
    assert time.now - before == pytest.approx(0.2, rel=0.1)


async def test_the_rate_recovers_at_most_twofold_a_minute():
    bucket, time = make_bucket()
    for _ in range(20):
        await bucket.acquire()
        time.now += 0.1
    bucket.report(RateReport(limited=True, retry_after=1))
    low = bucket.rate
    assert low is not None
    await bucket.acquire()
    for _ in range(60):
        time.now += 1
        bucket.report(RateReport())
    assert bucket.rate == pytest.approx(2 * low, rel=0.05)


async def test_without_retry_after_the_waits_grow_to_a_minute():
    bucket, time = make_bucket()
    waits = []
    for _ in range(9):
        await bucket.acquire()
        time.now += 5
        before = time.now
        bucket.report(RateReport(limited=True))
        await bucket.acquire()
        waits.append(time.now - before)
    assert waits[0] >= 1
    assert waits[-1] >= 60
    bucket.report(RateReport())
    bucket.report(RateReport(limited=True))
    before = time.now
    await bucket.acquire()
    assert time.now - before < 60


async def test_waiting_is_first_come_first_served():
    bucket, _ = make_bucket(cap=1.0)
    order: list[int] = []

    async def one(number: int) -> None:
        await bucket.acquire()
        order.append(number)

    await asyncio.gather(*(one(number) for number in range(10)))
    assert order == list(range(10))


async def test_each_key_has_its_bucket_and_the_key_is_not_told():
    env = {"ANTHROPIC_API_KEY": "sk-secret", "OPENAI_API_KEY": "sk-secret"}
    first = rate_key("anthropic/m", None, env)
    assert first == rate_key("anthropic/other", None, env)
    others = {
        rate_key("openai/m", None, env),
        rate_key("anthropic/m", "http://x", env),
        rate_key("anthropic/m", None, {"ANTHROPIC_API_KEY": "another"}),
    }
    assert first not in others
    assert len(others) == 3
    assert "secret" not in str(first)
    assert rate_key("script:x", None, env) is None


@pytest.mark.parametrize("model", ["openai/m", "openai-chat/m", "openai-responses/m", "gpt-5.5"])
async def test_each_address_of_the_environment_has_its_bucket(model):
    keys = {rate_key(model, None, {"OPENAI_BASE_URL": url}) for url in ("http://one/v1", "http://two/v1")}
    assert len(keys) == 2


async def test_a_token_counts_as_a_key():
    keys = {rate_key("claude-sonnet-5-5", None, {"ANTHROPIC_AUTH_TOKEN": token}) for token in ("one", "two")}
    assert len(keys) == 2


async def test_a_set_rate_applies_to_every_key_of_its_provider():
    limiter = RateLimiter(dict([parse_rate("anthropic=120/min")]))
    assert limiter.bucket("anthropic#abc").cap == 2.0
    assert limiter.bucket("openai#abc").cap is None


@pytest.mark.parametrize("text", ["anthropic", "anthropic=0/min", "=5/s", "anthropic=5/week"])
async def test_anything_else_is_no_rate(text):
    with pytest.raises(ValueError, match="is not a rate"):
        parse_rate(text)


async def test_overlapping_waits_are_counted_once():
    time = FakeTime()
    clock = WorkClock(time)
    time.now += 2
    with clock.waiting():
        time.now += 3
        with clock.waiting():
            time.now += 4
        time.now += 1
        assert clock.waited == 8
    time.now += 1
    assert (clock.wall, clock.waited, clock.working) == (11, 8, 3)
