"""The server of the conformance suite: a toolbox with the tools its scenarios call, served over HTTP as ours always is.

Run as a program: prints its address on stdout and serves until it is told to stop.
"""

from __future__ import annotations

import asyncio
import base64
import signal
import struct
import sys
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from wieldy import Image, Output, Progress, Text, Tool, Toolbox, ToolFailure, tool
from wieldy.core.events import Notice
from wieldy.core.tool import ToolContext
from wieldy.engine.services import Ask
from wieldy.engine.workspace_services import HostServices
from wieldy.faces.mcp_server.http import PATH, Address, SessionPool, serve_http


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


PIXEL = base64.b64encode(
    b"\x89PNG\r\n\x1a\n"
    + _chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    + _chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))
    + _chunk(b"IEND", b"")
).decode()


@tool(read_only=True)
async def test_simple_text() -> str:
    """Return text."""
    return "This is a simple text response for testing."


@tool(read_only=True)
async def test_image_content() -> Image:
    """Return a picture."""
    return Image("image/png", PIXEL)


@tool(read_only=True)
async def test_error_handling() -> str:
    """Fail."""
    raise ToolFailure("This tool intentionally returns an error for testing")


@tool(read_only=True)
async def test_tool_with_progress() -> AsyncIterator[Any]:
    """Say how far it is."""
    for percent in (0, 50, 100):
        yield Progress(f"{percent} %")
        await asyncio.sleep(0.05)
    yield Output((Text("done"),))


@tool(read_only=True)
async def test_tool_with_logging(ctx: ToolContext) -> str:
    """Say what a person should know."""
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        ctx.workspace.emit(Notice(text=words))
        await asyncio.sleep(0.05)
    return "done"


SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}

ROUTED = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    "required": ["region"],
}

# What may not run without a person's word is asked about through the client: that is when our server elicits.
ASKING = (
    "test_elicitation",
    "test_input_required_result_elicitation",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_tampered_state",
)


def harmless(name: str, schema: dict[str, Any], **declared: Any) -> Tool:
    return Tool.from_schema(name, "Do nothing.", schema, lambda input: "done", **declared)


TOOLS: tuple[Tool, ...] = (
    test_simple_text,
    test_image_content,
    test_error_handling,
    test_tool_with_progress,
    test_tool_with_logging,
    harmless("json_schema_2020_12_tool", SCHEMA, read_only=True),
    harmless("test_x_mcp_header", ROUTED, read_only=True),
    harmless("test_reconnection", {"type": "object"}, read_only=True),
    *(harmless(name, {"type": "object"}) for name in ASKING),
)


# Skills are what our server offers as prompts.
PROMPTS = {
    "test_simple_prompt": "This is a simple prompt for testing.",
    "test_prompt_with_arguments": "Prompt with arguments: $ARGUMENTS",
}


def skills(root: Path) -> None:
    for name, body in PROMPTS.items():
        folder = root / ".wieldy" / "skills" / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: For testing.\n---\n{body}\n")


def make(ask: Ask, host: HostServices) -> Toolbox:
    return Toolbox(sys.argv[1], tools=TOOLS, ask=ask, settings={}, host=host)


async def main() -> None:
    skills(Path(sys.argv[1]))
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    await serve_http(
        SessionPool(make),
        Address("127.0.0.1", 0),
        told,
        on_ready=lambda where: print(f"http://{where}{PATH}", flush=True),
    )


if __name__ == "__main__":
    asyncio.run(main())
