"""While only words can come, the kernel wakes nobody for few of them; what matters is heard at once, and words soon."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import chain, repeat
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import trustme
from tests.unit.providers.wire import STREAMS, Asked, each, loopback, stream

from wieldy.core.provider import BlockEnded, BlockGrew, BlockStarted, Delta, ProviderFailure, Stopped
from wieldy.providers import anthropic
from wieldy.providers import openai_chat as completion
from wieldy.providers.connection import Connection
from wieldy.providers.http import Http, Response
from wieldy.providers.leisure import Leisure
from wieldy.providers.sse import events_of

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
WORDS = ("text", "word" * 8)
MODULES: dict[str, ModuleType] = {"anthropic": anthropic, "openai": completion}
WIRES = pytest.mark.parametrize("wire", ["anthropic", "openai"])
BOTH = pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a mark is raised on Linux only")

Say = Callable[[bytes], Awaitable[None]]
Script = Callable[[Say, "Listener"], Awaitable[None]]


def events_in(data: bytes) -> list[bytes]:
    return [event + b"\n\n" for event in data.split(b"\n\n") if event]


def parted(wire: str, *steps: tuple[str, ...]) -> tuple[list[bytes], list[bytes]]:
    """The events of a stream up to the last word of its text, and those after it."""
    events = events_in(STREAMS[wire]([WORDS, *steps], 4))
    last = max(at for at, event in enumerate(events) if b'"word"' in event)
    return events[: last + 1], events[last + 1 :]


class Listener:
    """Somebody who hears an answer at leisure, and can say where the mark of the connection is."""

    def __init__(self) -> None:
        self.socket: Any = None
        self.server: Any = None  # the writer of who speaks
        self.words = 0  # that were said to it

    @property
    def mark(self) -> int:
        return int(self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)) if self.socket else 1

    async def raised(self, say: Say, words: list[bytes]) -> None:
        """Speak until words stay in the kernel: the next ones will be the first there."""
        for event in chain(words, repeat(words[-1])):
            if self.mark > 1:
                return
            await say(event)


class Place:
    """Loopback, with a certificate or without."""

    def __init__(self, folder: Path, secure: bool) -> None:
        self.env: dict[str, str] = {}
        self.tls: ssl.SSLContext | None = None
        if secure:
            authority = trustme.CA()
            authority.cert_pem.write_to_path(str(folder / "ca.pem"))
            self.env["WIELDY_CA_FILE"] = str(folder / "ca.pem")
            self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            authority.issue_cert("localhost").configure_cert(self.tls)

    @asynccontextmanager
    async def answered(self, wire: str, script: Script, **options: Any) -> AsyncIterator[tuple[Http, Listener]]:
        """A client of a server that follows a script."""
        listener = Listener()

        async def reply(asked: Asked, writer: asyncio.StreamWriter) -> None:
            async def say(data: bytes) -> None:
                listener.words += data.count(b'"word"')
                writer.write(b"%x\r\n%s\r\n" % (len(data), data))
                await asyncio.sleep(0.002)

            listener.server = writer
            writer.write(HEAD)
            await script(say, listener)
            if not writer.is_closing():
                writer.write(b"0\r\n\r\n")

        async with asyncio.timeout(20), loopback(reply, tls=self.tls, host="localhost") as server:
            http = Http(server.url, {}, env=self.env, **options)
            try:
                yield http, listener
            finally:
                await http.aclose()


async def listen(http: Http, listener: Listener, wire: str) -> AsyncIterator[Delta]:
    """The deltas of an answer, as `streamed` gives them."""
    async with http.post("/", b"{}") as response:
        _watch(response, listener)
        response.take_leisure(MODULES[wire].SIGNS)
        async for delta in MODULES[wire].deltas(events_of(response), "", response):
            yield delta


def _watch(response: Response, listener: Listener) -> None:
    listener.socket = response._connection.transport.get_extra_info("socket")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for the mark to fall waits for longer than any test."""
    monkeypatch.setattr("wieldy.providers.leisure.LONGEST", 60)


@pytest.mark.asyncio
@WIRES
@BOTH
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.usefixtures("patient")
async def test_the_end_of_an_answer_is_heard_at_once_after_words(wire, secure, together, tmp_path):
    words, end = parted(wire)

    async def script(say: Say, listener: Listener) -> None:
        await listener.raised(say, words)
        for event in [b"".join(end)] if together else end:
            await say(event)

    async with Place(tmp_path, secure).answered(wire, script) as (http, listener):
        told = [delta async for delta in listen(http, listener, wire)]
        assert isinstance(told[-1], Stopped) or wire == "anthropic"
        assert listener.mark == 1
        assert len(http._idle) == 1


@pytest.mark.asyncio
@WIRES
@BOTH
@pytest.mark.usefixtures("patient")
async def test_a_call_after_words_ends_at_once_although_the_stream_then_rests(wire, secure, tmp_path):
    words, end = parted(wire, ("call", "a", "f", "{}"))
    closing = next(at for at, event in enumerate(end) if b'_reason": "tool_' in event)
    ended = asyncio.Event()

    async def script(say: Say, listener: Listener) -> None:
        await listener.raised(say, words)
        for event in end[:closing]:
            await say(event)
        await ended.wait()
        for event in end[closing:]:
            await say(event)

    async with Place(tmp_path, secure).answered(wire, script) as (http, listener):
        calls: set[int] = set()
        async for delta in listen(http, listener, wire):
            if isinstance(delta, BlockStarted) and delta.block["type"] == "tool_use":
                calls.add(delta.index)
            if isinstance(delta, BlockEnded) and delta.index in calls:
                assert listener.mark == 1
                ended.set()
        assert ended.is_set()


@pytest.mark.asyncio
@WIRES
@BOTH
async def test_words_below_the_mark_are_given_although_nothing_more_comes(wire, secure, tmp_path):
    words, end = parted(wire)
    heard = 0

    async def script(say: Say, listener: Listener) -> None:
        await listener.raised(say, words)
        await say(words[-1])
        while heard < listener.words:
            await asyncio.sleep(0.01)
        while listener.mark > 1:  # a stream that is silent leaves it down
            await asyncio.sleep(0.01)
        await say(b"".join(end))

    async with Place(tmp_path, secure).answered(wire, script) as (http, listener):
        async for delta in listen(http, listener, wire):
            heard += isinstance(delta, BlockGrew)
        assert heard == listener.words


@pytest.mark.asyncio
@WIRES
@BOTH
@pytest.mark.usefixtures("patient")
async def test_a_connection_that_is_cut_is_noticed_at_once(wire, secure, tmp_path):
    words, _ = parted(wire)

    async def script(say: Say, listener: Listener) -> None:
        await listener.raised(say, words)
        await say(words[-1])
        listener.server.transport.abort()

    async with Place(tmp_path, secure).answered(wire, script) as (http, listener):
        heard = 0
        with pytest.raises(ProviderFailure):
            async for delta in listen(http, listener, wire):
                heard += isinstance(delta, BlockGrew)
        assert heard == listener.words


@pytest.mark.asyncio
@WIRES
async def test_a_goodbye_over_tls_is_heard_although_the_server_waits_for_ours(wire, tmp_path):
    words, _ = parted(wire)

    async def script(say: Say, listener: Listener) -> None:
        await listener.raised(say, words)
        listener.server.close()

    async with Place(tmp_path, True).answered(wire, script) as (http, listener):
        with pytest.raises(ProviderFailure):
            await each(listen(http, listener, wire))


@pytest.mark.asyncio
@WIRES
async def test_an_error_is_heard_although_it_is_shorter_than_an_ending(wire, tmp_path):
    words, _ = parted(wire)
    failed = asyncio.Event()

    async def script(say: Say, listener: Listener) -> None:
        await listener.raised(say, words)
        await say(b'data: {"type": "error", "error": {"message": "too much"}}\n\n')
        await failed.wait()

    async with Place(tmp_path, False).answered(wire, script) as (http, listener):
        with pytest.raises(ProviderFailure, match="too much"):
            await each(listen(http, listener, wire))
        failed.set()


@pytest.mark.asyncio
@WIRES
async def test_words_that_trickle_below_the_mark_are_not_silence(wire, tmp_path):
    words, end = parted(wire)

    async def script(say: Say, listener: Listener) -> None:
        for event in words:
            await say(event)
        for event in words[-4:]:  # two of them take longer than the server may be silent
            await asyncio.sleep(0.3)
            await say(event)
        await say(b"".join(end))

    async with Place(tmp_path, False).answered(wire, script, idle_seconds=0.5) as (http, listener):
        told = [delta async for delta in listen(http, listener, wire)]
        assert sum(isinstance(delta, BlockGrew) for delta in told) == listener.words


@pytest.mark.asyncio
@WIRES
@pytest.mark.usefixtures("patient")
async def test_it_is_not_silence_before_what_lies_below_the_mark_was_looked_for(wire, tmp_path):
    words, end = parted(wire)

    async def script(say: Say, listener: Listener) -> None:
        await listener.raised(say, words)
        await say(words[-1])
        await asyncio.sleep(0.8)
        await say(b"".join(end))

    async with Place(tmp_path, False).answered(wire, script, idle_seconds=0.6) as (http, listener):
        told = [delta async for delta in listen(http, listener, wire)]
        assert sum(isinstance(delta, BlockGrew) for delta in told) == listener.words


@pytest.mark.asyncio
@pytest.mark.usefixtures("patient")
async def test_the_input_of_a_call_does_not_raise_the_mark(tmp_path):
    events = events_in(STREAMS["anthropic"]([("call", "a", "f", '{"a": "' + "x" * 40 + '"}')], 4))
    marks: list[int] = []

    async def script(say: Say, listener: Listener) -> None:
        for event in events:
            await say(event)
            marks.append(listener.mark)

    async with Place(tmp_path, False).answered("anthropic", script) as (http, listener):
        await each(listen(http, listener, "anthropic"))
        assert set(marks) == {1}


@pytest.mark.asyncio
async def test_a_server_whose_ending_was_shorter_is_not_made_to_wait_again(tmp_path):
    words, _ = parted("openai")
    brief = [b'data: {"choices": [{"finish_reason": "stop"}]}\n\n', b"data: [DONE]\n\n"]
    assert sum(map(len, brief)) < completion.ending(words[-1])
    marks: list[int] = []

    async def script(say: Say, listener: Listener) -> None:
        if not marks:
            await listener.raised(say, words)
        else:
            for event in words:
                await say(event)
        marks.append(listener.mark)
        await say(b"".join(brief))

    async with Place(tmp_path, False).answered("openai", script) as (http, listener):
        for _ in range(5):  # on a machine that is busy elsewhere it may not show the first time
            assert isinstance((await each(listen(http, listener, "openai")))[-1], Stopped)
        assert marks[0] > 1
        assert marks[-1] == 1


@pytest.mark.asyncio
@WIRES
@pytest.mark.usefixtures("patient")
async def test_the_mark_is_down_while_a_connection_is_kept_and_up_again_in_the_next_answer(wire, tmp_path):
    words, end = parted(wire)
    marks: list[int] = []

    async def script(say: Say, listener: Listener) -> None:
        for event in words:
            await say(event)
        marks.append(listener.mark)
        await say(b"".join(end))

    async with Place(tmp_path, False).answered(wire, script) as (http, listener):
        for _ in range(2):
            await each(listen(http, listener, wire))
            assert listener.mark == 1
            assert listener.socket is http._idle[0].transport.get_extra_info("socket")
        assert all(mark > 1 for mark in marks)


@pytest.mark.asyncio
@WIRES
@pytest.mark.usefixtures("patient")
async def test_words_are_read_two_at_a_time_or_more(wire):
    data = STREAMS[wire]([("text", "word" * 200)], 4)

    class Counting(Connection):
        reads = 0

        def buffer_updated(self, nbytes: int) -> None:
            self.reads += 1
            super().buffer_updated(nbytes)

    async def paced(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for event in events_in(data):
            writer.write(event)
            await asyncio.sleep(0.001)
        writer.close()

    server = await asyncio.start_server(paced, "127.0.0.1", 0)
    async with asyncio.timeout(20), server:
        at = server.sockets[0].getsockname()
        _, connection = await asyncio.get_running_loop().create_connection(Counting, *at)
        connection.take_leisure(Leisure(MODULES[wire].SIGNS, 60))
        while not connection.answers._closed:
            await connection.more()
        connection.close()
    assert bytes(connection.answers._waiting) == data
    assert connection.reads < 120


@pytest.mark.asyncio
async def test_an_answer_without_words_is_heard(tmp_path):
    async with asyncio.timeout(20), loopback(stream(STREAMS["openai"]([]))) as server:
        http = Http(server.url, {}, env={})
        told = await each(listen(http, Listener(), "openai"))
        await http.aclose()
    assert isinstance(told[-1], Stopped)
