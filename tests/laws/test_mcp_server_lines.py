"""Whatever bytes a client writes, in whatever pieces: each line is a message, or is answered as none."""

from __future__ import annotations

import asyncio
import json
import os
from itertools import pairwise
from typing import Any

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_types import JSONRPCRequest

from wieldy.faces.mcp_server.stdio import MessageReader, MessageWriter

pings = st.integers(0, 1000).map(lambda number: json.dumps({"jsonrpc": "2.0", "id": number, "method": "ping"}).encode())
noise = st.one_of(
    st.binary(max_size=60).map(lambda data: data.replace(b"\n", b" ")),
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3), max_leaves=5
    ).map(lambda value: json.dumps(value).encode()),
    st.just(rb'{"jsonrpc": "2.0", "method": 5}'),
)


async def read_all(data: bytes, cuts: list[int]) -> tuple[list[int], list[Any]]:
    source, to = os.pipe()
    back, sink = os.pipe()
    writer = MessageWriter(sink)
    reader = MessageReader(source, writer)
    got: list[int] = []
    try:
        edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
        for start, end in pairwise(edges):
            os.write(to, data[start:end])
            await asyncio.sleep(0)
        os.close(to)
        try:
            while True:
                message = (await reader.receive()).message
                assert isinstance(message, JSONRPCRequest)
                got.append(int(message.id))
                writer.remove_request(message.id)
        except anyio.EndOfStream:
            pass
        await reader.aclose()
        os.close(sink)
        with open(back, "rb", closefd=False) as answers:
            return got, [json.loads(line) for line in answers]
    finally:
        os.close(source)
        os.close(back)


@settings(max_examples=80, deadline=None)
@given(st.lists(pings | noise, max_size=20), st.lists(st.integers(0, 5000), max_size=5))
def test_every_line_is_a_message_or_is_answered_as_none(lines: list[bytes], cuts: list[int]):
    got, answers = asyncio.run(read_all(b"".join(line + b"\n" for line in lines), cuts))
    wanted = [json.loads(line)["id"] for line in lines if b'"ping"' in line]
    others = [line for line in lines if b'"ping"' not in line and line.strip()]
    assert got == wanted
    assert len(answers) == len(others)
    assert {answer["error"]["code"] for answer in answers} <= {-32700, -32600}
