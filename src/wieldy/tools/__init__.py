"""The built-in tools: a name and the module of each. A module is imported when its tool is first offered or called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module

from wieldy.core.tool import Tool

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
    """Name → function that imports the tool."""
    return {name: partial(_load, module) for name, module in MODULES.items()}


def _load(module: str) -> Tool:
    tool: Tool = getattr(import_module(f"wieldy.tools.{module}"), module)
    return tool
