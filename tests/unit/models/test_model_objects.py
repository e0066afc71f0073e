"""Model objects with keys of their own: several tenants in one process."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.models.wire import STREAMS, loopback, stream

import wieldy
from wieldy.core.errors import SessionError

KEY_HEADERS = {"anthropic": "x-api-key", "openai": "authorization", "responses": "authorization"}
CLASSES = {"anthropic": "Anthropic", "openai": "OpenAIChat", "responses": "OpenAIResponses"}


@pytest.mark.asyncio
@pytest.mark.parametrize("wire", list(CLASSES))
async def test_two_tenants_with_keys_of_their_own_share_a_process(wire, tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "the-process-own-key")

    async def serve(key: str, url: str) -> str:
        model = getattr(wieldy, CLASSES[wire])("some-model", api_key=key, base_url=url)
        async with wieldy.Session(tmp_path, model=model, settings={}, builtins=False) as session:
            return await session.ask(f"I am {key}")

    async with loopback(stream(STREAMS[wire]([("text", "hi")], 1), 40)) as server:
        await asyncio.gather(*(serve(f"tenant-{n % 2}", server.url) for n in range(6)))
    for received in server.received:
        said = str(received.body)
        assert received.headers[KEY_HEADERS[wire]].removeprefix("Bearer ") in said
        assert "the-process-own-key" not in str(received.headers)


@pytest.mark.asyncio
@pytest.mark.parametrize("wire", list(CLASSES))
async def test_the_key_is_that_of_the_environment_unless_one_is_given_or_none_is_wanted(wire, monkeypatch):
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "from-the-environment")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "a-token")
    header = KEY_HEADERS[wire]
    async with loopback(stream(STREAMS[wire]([("text", "hi")]))) as server:
        for options in ({}, {"api_key": ""}):
            model = getattr(wieldy, CLASSES[wire])("some-model", base_url=server.url, **options)
            async with model.stream(
                wieldy.core.provider.Request((), (wieldy.core.messages.Message.user("x"),))
            ) as deltas:
                async for _ in deltas:
                    pass
            await model.aclose()
    first, second = (received.headers for received in server.received)
    assert first[header].removeprefix("Bearer ") == "from-the-environment"
    assert not {"x-api-key", "authorization"} & second.keys()


@pytest.mark.asyncio
async def test_a_model_object_serves_several_sessions_one_of_which_is_closed(tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    async with loopback(stream(STREAMS["openai"]([("text", "hi")]))) as server:
        model = wieldy.OpenAIChat("some-model", api_key="k", base_url=server.url)
        async with wieldy.Session(tmp_path, model=model, settings={}, builtins=False) as one:
            assert await one.ask("a") == "hi"
            async with wieldy.Session(tmp_path, model=model, settings={}, builtins=False) as other:
                assert await other.ask("b") == "hi"
            assert await one.ask("c") == "hi"


def test_an_address_or_a_key_that_cannot_be_used_is_said_at_once():
    with pytest.raises(SessionError, match="not an http address"):
        wieldy.Anthropic("x", base_url="ftp://x")
    with pytest.raises(SessionError, match="header"):
        wieldy.OpenAIResponses("x", api_key="a\nb")
