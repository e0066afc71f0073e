"""A second model that takes over where the first cannot answer."""

from __future__ import annotations

import pytest
from tests.unit.models.wire import STREAMS, loopback, provider, receive, status, stream

from wieldy import Script, Session
from wieldy.core.provider import ProviderFailure
from wieldy.models.catalog import FallbackModel

BUSY = status(529, {"error": {"message": "busy"}})


@pytest.mark.asyncio
@pytest.mark.parametrize("wire", list(STREAMS))
async def test_the_next_model_takes_over_for_one_request(wire):
    first, second = (stream(STREAMS[wire]([("text", text)])) for text in ("first", "second"))
    async with loopback(BUSY, first) as main, loopback(second) as other:
        model = FallbackModel(provider(wire, main.url), provider(wire, other.url))
        assert (await receive(model, keep=True)).text() == "second"
        assert (await receive(model)).text() == "first"


@pytest.mark.asyncio
@pytest.mark.parametrize(("code", "kind"), [(401, "auth"), (400, "bad_request")])
async def test_a_failure_that_another_model_cannot_mend_stays(code, kind):
    async with loopback(status(code, {"error": {"message": "no"}})) as main, loopback(BUSY) as other:
        with pytest.raises(ProviderFailure) as failed:
            await receive(FallbackModel(provider("openai", main.url), provider("openai", other.url)))
    assert failed.value.kind == kind
    assert other.received == []


@pytest.mark.asyncio
async def test_a_failure_in_mid_answer_is_that_of_the_request():
    data = STREAMS["openai"]([("text", "half a sentence")], 3)
    async with loopback(stream(data, cut=len(data) // 2)) as main, loopback(BUSY) as other:
        with pytest.raises(ProviderFailure) as failed:
            await receive(FallbackModel(provider("openai", main.url), provider("openai", other.url)))
    assert failed.value.kind == "connection"
    assert other.received == []


@pytest.mark.asyncio
async def test_if_none_can_answer_the_failure_is_that_of_the_last():
    async with loopback(BUSY) as main, loopback(status(503, {"error": {"message": "down"}})) as other:
        with pytest.raises(ProviderFailure, match="down"):
            await receive(FallbackModel(provider("openai", main.url), provider("openai", other.url)))


@pytest.mark.asyncio
async def test_a_session_goes_on_with_its_fallback_and_counts_the_model_that_answered(tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    main = Script([[{"fail": "overloaded", "message": "busy"}]], model="main")
    other = Script([[{"text": "I am here"}]], model="other")
    async with Session(tmp_path, model=main, fallback_model=other, settings={}) as session:
        assert await session.ask("hello?") == "I am here"
        assert session.provider.model == "other"
