"""A model on loopback that takes its time, on both wires: a call, a pause, the end; or a thousand pieces of text.

python bench/agents/pacing_model.py PORT_FILE STAMPS_FILE PIECES
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

PAUSE = 0.1
INPUT = '{"n": 1}'


def messages(kind: str, **more: Any) -> bytes:
    return b"data: " + json.dumps({"type": kind, **more}).encode() + b"\n\n"


def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


async def over_messages(asked: int, pieces: int) -> AsyncIterator[tuple[str, bytes]]:
    yield "", messages("message_start", message={"usage": {"input_tokens": 1}})
    if asked:
        yield "", messages("content_block_start", index=0, content_block={"type": "text", "text": ""})
        for _ in range(pieces):
            yield "", messages("content_block_delta", index=0, delta={"type": "text_delta", "text": "abcd "})
        yield "", messages("content_block_stop", index=0)
    else:
        for index in range(2):
            block = {"type": "tool_use", "id": f"toolu_{index}", "name": "stamp", "input": {}}
            yield "", messages("content_block_start", index=index, content_block=block)
            delta = {"type": "input_json_delta", "partial_json": INPUT}
            yield "", messages("content_block_delta", index=index, delta=delta)
            yield "closed", messages("content_block_stop", index=index)
            await asyncio.sleep(PAUSE)
    reason = "end_turn" if asked else "tool_use"
    yield "", messages("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": 1})
    yield "ended", messages("message_stop")


async def over_completions(asked: int, pieces: int) -> AsyncIterator[tuple[str, bytes]]:
    if asked:
        for _ in range(pieces):
            yield "", chunk({"content": "abcd "})
    else:
        for index in range(2):
            function = {"name": "stamp", "arguments": INPUT}
            call = {"index": index, "id": f"call_{index}", "type": "function", "function": function}
            yield "closed", chunk({"tool_calls": [call]})  # nothing says so on this wire, but its input is whole
            await asyncio.sleep(PAUSE)
        yield "", chunk({}, "tool_calls")
    yield "ended", (chunk({}, "stop") if asked else b"") + b"data: [DONE]\n\n"


async def main() -> None:
    port_file, stamps_file, pieces = sys.argv[1:]
    stamps = Path(stamps_file).open("a", buffering=1)  # noqa: SIM115 - open as long as the server is

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _head(reader):
            length = next(
                int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-l")
            )
            body = await reader.readexactly(length)
            stamps.write(f"arrived {time.monotonic()}\n")
            asked = body.count(b'"tool_use_id"') + body.count(b'"tool_call_id"')
            wire = over_completions if b"completions" in head.split(b"\r\n")[0] else over_messages
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            async for what, data in wire(asked, int(pieces)):
                writer.write(b"%x\r\n%s\r\n" % (len(data), data) + (b"0\r\n\r\n" if what == "ended" else b""))
                await writer.drain()
                if what:
                    stamps.write(f"{what} {time.monotonic()}\n")

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 24)
    Path(port_file).write_text(str(server.sockets[0].getsockname()[1]))
    await server.serve_forever()


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


if __name__ == "__main__":
    asyncio.run(main())
