"""wieldy: the tool-calling system of a terminal coding agent. Public names are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from wieldy.agent.session import Session
    from wieldy.core.decision import Answer
    from wieldy.core.errors import (
        ClosedError,
        Refusal,
        SessionError,
        SettingsError,
        ToolDefinitionError,
        ToolFailure,
        WieldyError,
    )
    from wieldy.core.outcome import Image, Text, ToolResult
    from wieldy.core.tool import Output, Progress, Tool, ToolContext
    from wieldy.core.tool_decorator import tool
    from wieldy.engine.tool_limits import Cached, Logged, RateLimited, TimeLimited
    from wieldy.hooks.config import python_hook
    from wieldy.mcp.server.serve import serve_mcp
    from wieldy.providers.anthropic import Anthropic
    from wieldy.providers.openai_chat import OpenAIChat
    from wieldy.providers.openai_responses import OpenAIResponses
    from wieldy.providers.script import Script
    from wieldy.schema.fields import Param
    from wieldy.shell.policy.analysis import classify
    from wieldy.toolbox import Toolbox
    from wieldy.workspace_services import HostServices

_MODULE_OF = {
    "Anthropic": "providers.anthropic",
    "OpenAIChat": "providers.openai_chat",
    "OpenAIResponses": "providers.openai_responses",
    "Answer": "core.decision",
    "Cached": "engine.tool_limits",
    "ClosedError": "core.errors",
    "HostServices": "workspace_services",
    "Image": "core.outcome",
    "Logged": "engine.tool_limits",
    "Output": "core.tool",
    "Param": "schema.fields",
    "Progress": "core.tool",
    "RateLimited": "engine.tool_limits",
    "Refusal": "core.errors",
    "Script": "providers.script",
    "Session": "agent.session",
    "SessionError": "core.errors",
    "SettingsError": "core.errors",
    "Text": "core.outcome",
    "TimeLimited": "engine.tool_limits",
    "Tool": "core.tool",
    "ToolContext": "core.tool",
    "ToolDefinitionError": "core.errors",
    "ToolFailure": "core.errors",
    "ToolResult": "core.outcome",
    "Toolbox": "toolbox",
    "WieldyError": "core.errors",
    "classify": "shell.policy.analysis",
    "python_hook": "hooks.config",
    "serve_mcp": "mcp.server.serve",
    "tool": "core.tool_decorator",
}

__all__ = [
    "Answer",
    "Anthropic",
    "Cached",
    "ClosedError",
    "HostServices",
    "Image",
    "Logged",
    "OpenAIChat",
    "OpenAIResponses",
    "Output",
    "Param",
    "Progress",
    "RateLimited",
    "Refusal",
    "Script",
    "Session",
    "SessionError",
    "SettingsError",
    "Text",
    "TimeLimited",
    "Tool",
    "ToolContext",
    "ToolDefinitionError",
    "ToolFailure",
    "ToolResult",
    "Toolbox",
    "WieldyError",
    "__version__",
    "classify",
    "python_hook",
    "serve_mcp",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'wieldy' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"wieldy.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
