"""A server's pipes: messages come whole and in order however the bytes are cut, and floods are held back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.mcp.transport import MAX_QUEUED_MESSAGES, StdoutReader, StreamEnd


class Pipe:
    """The transport, as far as a wire uses it."""

    def __init__(self) -> None:
        self.reading = True

    def get_pipe_transport(self, fd: int) -> Pipe:
        return self

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_returncode(self) -> int:
        return 7


def wire_to(pipe: Pipe, gone: list[str], heard: list[bytes]) -> StdoutReader:
    wire = StdoutReader(lambda line: None if line.startswith(b"#") else line, heard.append, gone.append)
    wire.connection_made(pipe)  # type: ignore[arg-type]
    return wire


async def collected(pieces: list[bytes]) -> list[Any]:
    wire = wire_to(Pipe(), [], [])
    for piece in pieces:
        wire.pipe_data_received(1, piece)
    wire.pipe_connection_lost(1, None)
    return [message async for message in StreamEnd(wire, receive=wire.receive)]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=20).map(lambda b: b.replace(b"\n", b"") or b"x"), max_size=8), st.data())
def test_messages_come_whole_however_the_bytes_are_cut(lines, data):
    whole = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    wanted = [line for line in lines if line.strip() and not line.startswith(b"#")]
    assert asyncio.run(collected(pieces)) == wanted


@pytest.mark.asyncio
async def test_whoever_waits_is_woken_by_a_message_and_by_the_end():
    gone: list[str] = []
    wire = wire_to(Pipe(), gone, [])
    waiting = asyncio.create_task(wire.receive())
    await asyncio.sleep(0)
    wire.pipe_data_received(1, b"# noise\n")
    wire.pipe_data_received(1, b"one\n")
    assert await waiting == b"one"
    ending = asyncio.create_task(anext(StreamEnd(wire, receive=wire.receive), None))
    await asyncio.sleep(0)
    wire.process_exited()
    assert await asyncio.wait_for(ending, 5) is None
    assert gone == ["it ended with exit code 7"] and wire.exited.is_set()


@pytest.mark.asyncio
async def test_reading_pauses_while_too_much_waits_and_goes_on_when_it_is_taken():
    pipe = Pipe()
    wire = wire_to(pipe, [], [])
    wire.pipe_data_received(1, b"m\n" * (MAX_QUEUED_MESSAGES + 1))
    assert not pipe.reading
    for _ in range(MAX_QUEUED_MESSAGES + 1):
        await wire.receive()
    assert pipe.reading


@pytest.mark.asyncio
async def test_stderr_is_overheard_and_is_no_message():
    heard: list[bytes] = []
    wire = wire_to(Pipe(), [], heard)
    wire.pipe_data_received(2, b"warning\n")
    wire.close()
    assert heard == [b"warning\n"] and await anext(StreamEnd(wire, receive=wire.receive), None) is None
