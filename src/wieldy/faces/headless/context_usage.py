"""How full the context window of a session is, by category, as the control protocol reports it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wieldy.agent.loop import COMPACT_AT
from wieldy.tools.toolset.order import CHARS_PER_TOKEN, estimate_tokens, is_mcp_tool

if TYPE_CHECKING:
    from wieldy.agent.session import Session
    from wieldy.core.tool import Tool


async def context_usage(session: Session) -> dict[str, Any]:
    """Estimate the tokens of system prompt, tools and messages; the total is the provider's count where there is one."""
    provider, conversation = session.provider, session.conversation
    offering = await session.box.offering(provider.context_window)
    system = sum(map(len, session.system_prompt)) // CHARS_PER_TOKEN
    own = [tool for tool in offering.tools if not is_mcp_tool(tool)]
    servers = [tool for tool in offering.tools if is_mcp_tool(tool)]
    tools, mcp_tools = sum(map(estimate_tokens, own)), sum(map(estimate_tokens, servers))
    messages = sum(len(str(message.content)) for message in conversation.messages) // CHARS_PER_TOKEN
    if conversation.tokens:
        messages = max(conversation.tokens - system - tools - mcp_tools, 0)
    total, window = system + tools + mcp_tools + messages, provider.context_window
    counts = {"System prompt": system, "System tools": tools, "MCP tools": mcp_tools, "Messages": messages}
    categories = [{"name": name, "tokens": tokens, "color": ""} for name, tokens in counts.items() if tokens]
    return {
        "categories": [*categories, {"name": "Free space", "tokens": max(window - total, 0), "color": ""}],
        "totalTokens": total,
        "maxTokens": window,
        "rawMaxTokens": window,
        "percentage": round(100 * total / window, 1),
        "model": provider.model,
        "isAutoCompactEnabled": True,
        "autoCompactThreshold": int(COMPACT_AT * window),
        "memoryFiles": [],
        "mcpTools": [_tool(tool, "serverName", tool.name.split("__")[1]) for tool in servers],
        "systemTools": [_tool(tool) for tool in own],
        "agents": [],
        "gridRows": [],
    }


def _tool(tool: Tool, *more: str) -> dict[str, Any]:
    extra = {more[0]: more[1], "isLoaded": True} if more else {}
    return {"name": tool.name, "tokens": estimate_tokens(tool), **extra}
