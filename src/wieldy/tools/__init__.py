"""The built-in tools: a wire name and the module it lives in. A module is imported when its tool is first called, or when what a
model is shown of it depends on the place."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache, cached_property
from importlib import import_module
from typing import Any

from wieldy.core.tool import Tool
from wieldy.schema.written import Written

SCHEMAS = os.path.join(os.path.dirname(__file__), "schemas.json")
"""What models are shown of the tools, written by `python -m wieldy.tools`: a start that finds it out anew
takes more than a tenth longer."""

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


class Builtin:
    """How a built-in tool is loaded, and how it looks before."""

    def __init__(self, name: str, module: str) -> None:
        self._name = name
        self._module = module

    def __call__(self) -> Tool:
        """Load it."""
        tool: Tool = getattr(import_module(f"wieldy.tools.{self._module}"), self._module)
        vars(tool).setdefault("parameters", Written(_written()[self._name], tool.declared_parameters))
        return tool

    @cached_property
    def shown(self) -> Tool | None:
        """What a model is shown of it; None where the tool itself has to be asked."""
        written = _written()[self._name]
        return Shown(self._name, written) if "read_only" in written else None


class Shown(Tool):
    """A built-in tool that nobody has called: all that a model is shown of it, and no more."""

    def __init__(self, name: str, written: Mapping[str, Any]) -> None:
        self.name = name
        self.description = written["description"]
        self.prompt = written["prompt"]
        self.parameters = Written(written, self.declared_parameters)
        self.read_only = written["read_only"]
        self.deferred = written["deferred"]


def builtin_loaders() -> dict[str, Builtin]:
    """Name → how to load it."""
    return {name: Builtin(name, module) for name, module in MODULES.items()}


@cache
def _written() -> dict[str, dict[str, Any]]:
    with open(SCHEMAS, "rb") as file:
        written: dict[str, dict[str, Any]] = json.load(file)
    return written
