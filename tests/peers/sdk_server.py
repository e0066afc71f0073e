"""A server on the official Python SDK, over stdio or HTTP: `python sdk_server.py stdio|PORT`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import ToolsListChanged

BUS = InMemorySubscriptionBus()
ECHO = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = [
    types.Tool(
        name="echo",
        description="Say it again.",
        input_schema=ECHO,
        annotations=types.ToolAnnotations(read_only_hint=True),
    ),
    types.Tool(name="grow", description="Add a tool.", input_schema={"type": "object"}),
    types.Tool(name="big", description="Much text.", input_schema={"type": "object"}),
    types.Tool(name="ask", description="Ask the person.", input_schema={"type": "object"}),
]


async def on_list(context: Any, params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=TOOLS)


async def on_call(context: Any, params: Any) -> Any:
    if params.name == "grow":
        TOOLS.append(types.Tool(name="grown", description="New.", input_schema={"type": "object"}))
        await BUS.publish(ToolsListChanged())
        return _text("grew")
    if params.name == "ask":
        return _asked(params)
    if params.name == "big":
        return _text("x" * (33 << 20))
    return _text((params.arguments or {}).get("text", ""))


def _asked(params: Any) -> Any:
    answers = params.input_responses or {}
    if "colour" in answers:
        return _text(answers["colour"].model_dump_json())
    schema = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
    question = types.ElicitRequest(params=types.ElicitRequestFormParams(message="Which?", requested_schema=schema))
    return types.InputRequiredResult(input_requests={"colour": question})


def _text(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)])


SERVER = Server("peer", on_list_tools=on_list, on_call_tool=on_call, on_subscriptions_listen=ListenHandler(BUS))


async def over_stdio() -> None:
    async with stdio_server() as (read, write):
        await SERVER.run(read, write, SERVER.create_initialization_options())


def main() -> None:
    if sys.argv[1] == "stdio":
        asyncio.run(over_stdio())
        return
    import uvicorn

    uvicorn.run(SERVER.streamable_http_app(), host="127.0.0.1", port=int(sys.argv[1]), log_level="error")


if __name__ == "__main__":
    main()
