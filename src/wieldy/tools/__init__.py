"""The built-in tools: a wire name and the module it lives in. A module is imported when its tool is first looked at."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib import import_module
from typing import Any

from wieldy.core.tool import Tool

SCHEMAS = os.path.join(os.path.dirname(__file__), "schemas.json")
"""What models are shown of the inputs, written by `python -m wieldy.tools`: a start that makes it anew takes a tenth longer."""

MODULES: Mapping[str, str] = {
    "Agent": "agent",
    "Architect": "architect",
    "AskUser": "ask_user",
    "Bash": "bash",
    "BashOutput": "bash_output",
    "BrowserClick": "browser_click",
    "BrowserClose": "browser_close",
    "BrowserNavigate": "browser_navigate",
    "BrowserScreenshot": "browser_screenshot",
    "BrowserSnapshot": "browser_snapshot",
    "BrowserType": "browser_type",
    "Edit": "edit",
    "ExitPlan": "exit_plan",
    "FileSearch": "file_search",
    "Glob": "glob",
    "Grep": "grep",
    "KillShell": "kill_shell",
    "LS": "ls",
    "ListMcpResources": "list_mcp_resources",
    "MemoryRead": "memory_read",
    "MemoryWrite": "memory_write",
    "MultiEdit": "multi_edit",
    "NotebookEdit": "notebook_edit",
    "NotebookRead": "notebook_read",
    "Read": "read",
    "ReadMcpResource": "read_mcp_resource",
    "Skill": "skill",
    "StickerRequest": "sticker_request",
    "Think": "think",
    "TodoWrite": "todo_write",
    "ToolSearch": "tool_search",
    "WebFetch": "web_fetch",
    "WebSearch": "web_search",
    "Write": "write",
}


def builtin_loaders() -> dict[str, Callable[[], Tool]]:
    """Name → how to load it."""
    return {name: partial(_load, name, module) for name, module in MODULES.items()}


def _load(name: str, module: str) -> Tool:
    tool: Tool = import_module(f"wieldy.tools.{module}").TOOL
    tool.written_schema = _schemas().get(name)
    return tool


@cache
def _schemas() -> dict[str, dict[str, Any]]:
    with open(SCHEMAS, "rb") as file:
        schemas: dict[str, dict[str, Any]] = json.load(file)
    return schemas
