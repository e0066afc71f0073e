"""A client that loses its connection over HTTP goes on where it broke, and sees nothing of anybody else's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_types import JSONRPCResponse
from tests.unit.mcp.test_server_http import HEADERS, HELLO, running

from wieldy import tool
from wieldy.faces.mcp_server.http import SessionEvents

REVISION = {"mcp-protocol-version": "2025-11-25"}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "state"))


class Gate:
    """A tool that answers when it is let."""

    def __init__(self) -> None:
        self.entered, self.opened = asyncio.Event(), asyncio.Event()

        @tool(read_only=True)
        async def wait() -> str:
            """Wait."""
            self.entered.set()
            await self.opened.wait()
            return "the answer"

        self.tool = wait


async def session_of(client: httpx2.AsyncClient, url: str) -> dict[str, str]:
    opened = await client.post(url, json=HELLO, headers=HEADERS)
    return {**HEADERS, **REVISION, "mcp-session-id": opened.headers["mcp-session-id"]}


async def events(response: httpx2.Response) -> AsyncIterator[dict[str, str]]:
    event: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line.strip():
            name, _, value = line.partition(":")
            event[name] = value.strip()
        elif event:
            yield event
            event = {}


def call(number: int, name: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name, "arguments": {}}}


@pytest.mark.asyncio
async def test_a_broken_stream_is_taken_up_again_and_only_by_the_session_it_belongs_to(tmp_path: Path):
    gate = Gate()
    async with running(tmp_path, tools=(gate.tool,)) as server, httpx2.AsyncClient(timeout=20) as client:
        headers, other = [await session_of(client, server.url) for _ in range(2)]
        async with client.stream("POST", server.url, json=call(7, "wait"), headers=headers) as broken:
            first = await anext(events(broken))
        assert first["retry"] and not first.get("data")
        await asyncio.wait_for(gate.entered.wait(), 20)
        gate.opened.set()
        again = {**headers, "last-event-id": first["id"]}
        async with asyncio.timeout(20), client.stream("GET", server.url, headers=again) as resumed:
            answer = json.loads((await anext(_with_data(resumed)))["data"])
        assert answer["id"] == 7
        assert answer["result"]["content"][0]["text"] == "the answer"
        foreign = {**other, "last-event-id": first["id"]}
        async with asyncio.timeout(20), client.stream("GET", server.url, headers=foreign) as nothing:
            assert [event async for event in _with_data(nothing)] == []


async def _with_data(response: httpx2.Response) -> AsyncIterator[dict[str, str]]:
    async for event in events(response):
        if event.get("data"):
            yield event


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 400)), max_size=40), st.data())
def test_what_followed_on_the_same_stream_is_given_in_order_within_bounds(sent: list[tuple[str, int]], data: Any):
    record = SessionEvents(max_events=10, max_chars=3_000)
    known = [(record.add(stream, message), stream, message) for stream, message in _messages(sent)]
    assert record.after("nobody-3") is None
    if not known:
        return
    at = data.draw(st.integers(0, len(known) - 1))
    found = record.after(known[at][0])
    if found is None:
        assert at < len(known) - 1  # the newest is always kept
        return
    stream, following = found
    assert stream == known[at][1]
    assert [(kept.id, kept.stream, kept.message) for kept in following] == [
        row for row in known[at + 1 :] if row[1] == stream
    ]
    assert len(known) - at <= 10


def _messages(sent: list[tuple[str, int]]) -> list[tuple[str, JSONRPCResponse]]:
    return [
        (stream, JSONRPCResponse(jsonrpc="2.0", id=number, result={"text": "x" * size}))
        for number, (stream, size) in enumerate(sent)
    ]
