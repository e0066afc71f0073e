"""Every way a server can fail has a documented meaning: one line for the person, and whether asking again may help."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.models.wire import (
    MODELS,
    STREAMS,
    ReceivedRequest,
    failure_of,
    loopback,
    provider,
    sse,
    status,
    stream,
)

from wieldy.core.errors import SessionError
from wieldy.core.provider import ProviderFailure
from wieldy.models.anthropic import Anthropic
from wieldy.models.catalog import pick
from wieldy.models.http import HttpModel
from wieldy.web.http import parse_server_url

WIRES = pytest.mark.parametrize("wire", ["anthropic", "openai", "responses"])


def error(message: str, kind: str = "invalid_request_error", **more: str) -> dict[str, object]:
    return {"type": "error", "error": {"type": kind, "message": message, **more}}


@WIRES
@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("code", "body", "kind", "transient", "says"),
    [
        (401, error("invalid x-api-key"), "auth", False, "did not accept the key"),
        (403, error("no access"), "auth", False, "does not allow"),
        (404, error("model: nope"), "model", False, "knows no model `some-model`"),
        (400, error("prompt is too long: 210000 tokens > 200000 maximum"), "overflow", False, "too long"),
        (400, error("This model's maximum context length is 8192 tokens"), "overflow", False, "too long"),
        (400, error("messages.0: bad"), "bad_request", False, "messages.0: bad"),
        (413, error("request exceeds 32 MB"), "too_large", False, "too large"),
        (422, {"detail": [{"loc": ["body"], "msg": "what"}]}, "bad_request", False, '422: {"loc": ["body"]'),
        (404, {"detail": "Not Found"}, "model", False, "(Not Found)"),
        (400, {"error": "what"}, "bad_request", False, "400: what"),
        (400, {"error": {"message": None, "code": 3}}, "bad_request", False, '"code": 3'),
        (408, error("slow"), "overloaded", True, "408"),
        (409, error("again"), "overloaded", True, "409"),
        (429, error("slow down", "rate_limit_error"), "rate", True, "slow down"),
        (429, error("You exceeded your quota", code="insufficient_quota"), "auth", False, "no credit"),
        (500, error("oops"), "overloaded", True, "500"),
        (
            503,
            "<html><head><title>Service Unavailable</title></head></html>",
            "overloaded",
            True,
            "Service Unavailable",
        ),
        (529, error("Overloaded", "overloaded_error"), "overloaded", True, "overloaded"),
        (307, "", "bad_request", False, "moved to"),
        (502, "<html><body><h1>502 Bad Gateway</h1></body></html>", "overloaded", True, "502 Bad Gateway"),
        (200, "<html><title>Sign in to the network</title></html>", "protocol", False, "Sign in to the network"),
        (200, error("not a stream"), "protocol", False, "not a stream"),
    ],
)
async def test_a_status_means(wire, code, body, kind, transient, says):
    async with loopback(status(code, body)) as server:
        failure = await failure_of(provider(wire, server.url))
    assert (failure.kind, failure.transient) == (kind, transient)
    assert says in str(failure)
    assert "\n" not in str(failure)
    assert len(str(failure)) < 500


@WIRES
@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "0.5"}, 0.5),
        ({"retry_after": "7200"}, 7200.0),
        ({"retry_after_ms": "250"}, 0.25),
        ({"retry_after": "Wed, 21 Oct 2015 07:28:00 GMT"}, None),
        ({"retry_after": "0"}, None),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "-3"}, None),
        ({}, None),
    ],
)
async def test_how_long_a_server_asks_to_wait(wire, headers, seconds):
    async with loopback(status(429, error("slow down"), **headers)) as server:
        failure = await failure_of(provider(wire, server.url))
    assert failure.retry_after == seconds
    assert ("asks to wait for 120 min" in str(failure)) == (seconds == 7200)


@WIRES
@pytest.mark.asyncio
@pytest.mark.parametrize(("code", "kind"), [(200, "protocol"), (401, "auth")])
async def test_a_compressed_body_that_nobody_asked_for_is_named_and_not_shown(wire, code, kind):
    async with loopback(status(code, "\x1f\x8b\x08 not text", content_encoding="gzip")) as server:
        failure = await failure_of(provider(wire, server.url))
        assert server.received[0].headers["accept-encoding"] == "identity"
    assert failure.kind == kind
    assert "encoded as gzip" in str(failure)
    assert "\x1f" not in str(failure)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (error("Overloaded", "overloaded_error"), "overloaded"),
        (error("too fast", "rate_limit_error"), "rate"),
        ({"type": "error", "error": {"code": 402, "message": "no credits"}}, "bad_request"),
        ({"type": "error", "error": {"code": "404", "message": "no such model"}}, "model"),
        ({"type": "error", "error": {"code": 502, "message": "upstream"}}, "overloaded"),
        ({"type": "error", "error": "boom\n" * 1000}, "overloaded"),
        (error("prompt is too long"), "overflow"),
        (error("bad"), "bad_request"),
        (error("?", "something_new"), "overloaded"),
    ],
)
async def test_errors_in_mid_stream(event, kind):
    data = STREAMS["anthropic"]([("text", "hello")])
    at = data.index(b"event: content_block_stop")
    async with loopback(stream(data[:at] + sse(event))) as server:
        assert (await failure_of(provider("anthropic", server.url))).kind == kind
    data = STREAMS["openai"]([("text", "hello")])
    at = data.index(b"data: [DONE]") // 2
    at = data.index(b"data:", at)
    async with loopback(stream(data[:at] + sse({"error": event["error"]}))) as server:
        assert (await failure_of(provider("openai", server.url))).kind == kind
    data = STREAMS["responses"]([("text", "hello")])
    at = data.index(b"event: response.completed")
    failed = {"type": "response.failed", "response": {"status": "failed", "error": event["error"]}}
    for last in (failed, event, {"error": event["error"]}):
        async with loopback(stream(data[:at] + sse(last))) as server:
            assert (await failure_of(provider("responses", server.url))).kind == kind


@WIRES
@pytest.mark.asyncio
@pytest.mark.parametrize(
    "junk", [b"data: not json\n\n", b"data: [1]\n\n", b"data: {\n\n", b'data: {"type": 3, "choices": 3}\n\n']
)
async def test_junk_in_a_stream_is_a_failure_of_the_protocol(wire, junk):
    async with loopback(stream(junk)) as server:
        assert (await failure_of(provider(wire, server.url))).kind == "protocol"


@pytest.mark.asyncio
async def test_a_call_without_a_name_is_a_failure_and_not_an_empty_answer():
    call = {"index": 0, "id": "a", "function": {"name": "", "arguments": "{}"}}
    data = sse({"choices": [{"delta": {"tool_calls": [call]}}]}) + sse({"choices": [{"finish_reason": "tool_calls"}]})
    async with loopback(stream(data)) as server:
        failure = await failure_of(provider("openai", server.url))
    assert failure.kind == "protocol"
    assert "a call has no name" in str(failure)


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["reasoning", "message", "function_call", "custom_tool_call", "web_search_call"])
@pytest.mark.parametrize("moment", ["added", "done"])
async def test_an_item_that_comes_twice_is_a_failure_of_the_protocol(kind, moment):
    item = {"type": kind, "call_id": "a", "name": "Read", "arguments": "{}", "input": "x", "summary": None}
    event = sse({"type": f"response.output_item.{moment}", "output_index": 0, "item": item})
    grown = sse({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "x"})
    done = sse({"type": "response.output_item.done", "output_index": 0, "item": item})
    async with loopback(stream(event * 2 + grown + done * 2)) as server:
        assert (await failure_of(provider("responses", server.url))).kind == "protocol"


@WIRES
@pytest.mark.asyncio
async def test_a_server_that_is_not_there(wire):
    async with loopback(status(200, {})) as server:
        url = server.url
    failure = await failure_of(provider(wire, url))
    assert (failure.kind, failure.transient) == ("refused", True)
    assert "cannot be reached" in str(failure)
    by_name = await failure_of(provider(wire, url.replace("127.0.0.1", "localhost")))
    assert (by_name.kind, str(by_name)) == ("refused", str(failure).replace("127.0.0.1", "localhost"))


@WIRES
@pytest.mark.asyncio
@pytest.mark.parametrize("said", [b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-le"])
async def test_a_server_that_closes_instead_of_answering(wire, said):
    async def reply(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()
        writer.close()

    async with loopback(reply) as server:
        assert (await failure_of(provider(wire, server.url))).kind == "connection"


async def _silence(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(30)


async def _drops_of_a_head(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    for byte in b"HTTP/1.1 200 OK\r\n" + b"x-pad: y\r\n" * 1000:
        writer.write(bytes([byte]))
        await asyncio.sleep(0.02)


async def _drops_of_an_event(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: ")
    while not writer.is_closing():
        writer.write(b"x")
        await asyncio.sleep(0.02)


async def _pings(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
    while not writer.is_closing():
        writer.write(b'event: ping\ndata: {"type": "ping"}\n\n')
        await asyncio.sleep(0.02)


async def _comments(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
    while not writer.is_closing():
        writer.write(b": still working\n\n")
        await asyncio.sleep(0.02)


@WIRES
@pytest.mark.asyncio
@pytest.mark.parametrize("reply", [_silence, _drops_of_a_head, _drops_of_an_event, _pings, _comments])
async def test_a_server_that_stays_silent_or_sends_drops_is_given_up_on(wire, reply):
    async with asyncio.timeout(20), loopback(reply) as server:
        failure = await failure_of(provider(wire, server.url, idle_seconds=0.3))
    assert failure.kind == "connection"
    assert "0.3 s" in str(failure)


@pytest.mark.asyncio
async def test_the_environment_sets_how_long_a_server_may_stay_silent():
    env = {"ANTHROPIC_API_KEY": "k", "WIELDY_IDLE_SECONDS": "0.3"}
    async with asyncio.timeout(20), loopback(_pings) as server:
        failure = await failure_of(pick("anthropic/m", base_url=server.url, env=env))
    assert "0.3 s" in str(failure)


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf"])
def test_a_time_to_stay_silent_that_is_none_is_said(text):
    with pytest.raises(SessionError, match=f"WIELDY_IDLE_SECONDS must be .* not `{text}`"):
        pick("ollama/m", base_url=None, env={"WIELDY_IDLE_SECONDS": text})


@pytest.mark.asyncio
async def test_an_address_that_is_none_is_said():
    for url in ("ftp://x", "http://", "http:///v1", "http://x:port"):
        with pytest.raises(Exception, match="not an http address"):
            provider("openai", url)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (None, "no model is set"),
        ("gpt-5", "no key for openai"),
        ("mine", "names no provider"),
        ("nobody/x", "names no provider"),
        ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("openai/", "names no model"),
        ("script:/nowhere.json", "cannot be read"),
    ],
)
def test_a_model_that_cannot_be_picked_says_what_to_do(model, says):
    with pytest.raises(SessionError, match=says):
        pick(model, base_url=None, env={})


@pytest.mark.parametrize(
    ("model", "variable"),
    [
        ("deepseek/m", "DEEPSEEK_API_KEY"),
        ("anthropic/m", "ANTHROPIC_API_KEY"),
        ("anthropic/m", "ANTHROPIC_AUTH_TOKEN"),
        ("ollama/m", "none"),
    ],
)
def test_a_model_knows_where_its_key_comes_from(model, variable):
    env = {} if variable == "none" else {variable: "k"}
    chosen = pick(model, base_url=None, env=env)
    assert isinstance(chosen, HttpModel) and chosen.key_source == variable
    assert Anthropic("m", api_key="k", env={}).key_source == "user"


def test_an_address_without_a_scheme_is_secure_unless_it_is_here():
    for url, scheme in (("localhost:8000/v1", "http"), ("127.0.0.1:1", "http"), ("models.test/v1", "https")):
        assert parse_server_url(url).scheme == scheme
    with pytest.raises(SessionError, match="not an http address"):
        pick("my-model", base_url="ftp://x", env={})


@pytest.mark.parametrize(
    ("model", "base_url", "env", "wire", "name"),
    [
        ("anthropic/claude-x", None, {"ANTHROPIC_API_KEY": "k"}, "anthropic", "claude-x"),
        ("anthropic/claude-x", None, {"ANTHROPIC_AUTH_TOKEN": "k"}, "anthropic", "claude-x"),
        ("openai/gpt-x", None, {"OPENAI_API_KEY": "k"}, "responses", "gpt-x"),
        ("openai/gpt-x", "https://api.openai.com/v1", {"OPENAI_API_KEY": "k"}, "responses", "gpt-x"),
        ("openai/gpt-x", None, {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://x.test/v1"}, "openai", "gpt-x"),
        ("openai/gpt-x", "http://127.0.0.1:1/v1", {}, "openai", "gpt-x"),
        ("openai-chat/gpt-x", None, {"OPENAI_API_KEY": "k"}, "openai", "gpt-x"),
        ("openai-responses/gpt-x", "http://127.0.0.1:1/v1", {}, "responses", "gpt-x"),
        ("openrouter/meta/llama", None, {"OPENROUTER_API_KEY": "k"}, "openai", "meta/llama"),
        ("ollama/qwen", None, {}, "openai", "qwen"),
        ("my-model", "http://127.0.0.1:1/v1", {}, "openai", "my-model"),
        ("claude-x", "http://127.0.0.1:1", {}, "anthropic", "claude-x"),
        ("org/my-model", "http://127.0.0.1:1/v1", {}, "openai", "org/my-model"),
    ],
)
def test_which_api_a_model_uses(model, base_url, env, wire, name):
    picked = pick(model, base_url=base_url, env=env)
    assert (type(picked), picked.model) == (MODELS[wire], name)


def test_failures_know_whether_they_pass():
    assert ProviderFailure("rate", "x").transient
    assert not ProviderFailure("auth", "x").transient


def test_a_model_object_takes_its_address_from_the_environment_unless_one_is_given():
    env = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    assert not Anthropic("m", env=env).searches
    assert Anthropic("m", env=env, base_url="https://api.anthropic.com").searches
