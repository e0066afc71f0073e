"""wieldy: the hands of an AI coding agent. Public names are resolved on first use, so importing this costs nothing."""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # typing itself takes longer to import than everything here
if TYPE_CHECKING:
    from typing import Any

    from wieldy.core.content import Image, Text
    from wieldy.core.decision import Answer
    from wieldy.core.declare import tool
    from wieldy.core.failure import Refusal, ToolDefinitionError, ToolFailure, WieldyError
    from wieldy.core.result import ToolResult
    from wieldy.core.tool import Output, Progress, Tool, ToolContext
    from wieldy.hooks.configured import python_hook
    from wieldy.providers.script import Script
    from wieldy.schema.annotate import Param
    from wieldy.session.session import Session
    from wieldy.shell.verdict import classify
    from wieldy.toolbox import Toolbox

_HOME = {
    "Answer": "core.decision",
    "Image": "core.content",
    "Output": "core.tool",
    "Param": "schema.annotate",
    "Progress": "core.tool",
    "Refusal": "core.failure",
    "Script": "providers.script",
    "Session": "session.session",
    "Text": "core.content",
    "Tool": "core.tool",
    "ToolContext": "core.tool",
    "ToolDefinitionError": "core.failure",
    "ToolFailure": "core.failure",
    "ToolResult": "core.result",
    "Toolbox": "toolbox",
    "WieldyError": "core.failure",
    "classify": "shell.verdict",
    "python_hook": "hooks.configured",
    "tool": "core.declare",
}

__all__ = [
    "Answer",
    "Image",
    "Output",
    "Param",
    "Progress",
    "Refusal",
    "Script",
    "Session",
    "Text",
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
    "tool",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'wieldy' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"wieldy.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
