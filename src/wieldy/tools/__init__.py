"""What a model can call: one module and one prompt for each built-in tool, and the offer (`toolset`), skills, subagents, memory.

A tool's module is imported when the tool is first offered or called. Other rooms use `builtin_loaders` and `toolset.toolset`.
It imports `core`, `files`, `shell`, `web`, `policy.hooks` and `mcp`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from importlib import import_module

from wieldy.core.tool import Tool
from wieldy.core.tool_names import suggest_name

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


def builtin_loaders(chosen: bool | Collection[str] = True) -> dict[str, Callable[[], Tool]]:
    """Name → function that imports the tool: for all tools, none, or those named. Raises `ValueError` for a wrong name."""
    if isinstance(chosen, str):
        raise ValueError(f"`builtins` is True, False or several names: ({chosen!r},)")
    names = (MODULES if chosen else ()) if isinstance(chosen, bool) else chosen
    for name in names:
        if name not in MODULES:
            raise ValueError(f"there is no built-in tool `{name}`{suggest_name(str(name), MODULES)}")
    return {name: partial(_load, MODULES[name]) for name in names}


def _load(module: str) -> Tool:
    tool: Tool = getattr(import_module(f"wieldy.tools.{module}"), module)
    return tool
