"""`python -m wieldy.tools` writes down what models are shown of the built-in tools, as it follows from their declarations."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from wieldy.core.declare import FunctionTool
from wieldy.core.tool import Tool
from wieldy.tools import MODULES, SCHEMAS


def written() -> str:
    """The file, a line for each tool."""
    tools = {name: import_module(f"wieldy.tools.{module}").TOOL for name, module in MODULES.items()}
    rows = (f"{json.dumps(name)}: {json.dumps(_row(tool))}" for name, tool in tools.items())
    return "{\n" + ",\n".join(rows) + "\n}\n"


def _row(tool: Tool) -> dict[str, Any]:
    """The schema; and the rest of what decides how it is offered, where that is the same everywhere."""
    row: dict[str, Any] = {"schema": tool.parameters.schema}
    if not _asks(tool):
        row |= {"read_only": tool.read_only, "deferred": tool.deferred}
    return row


def _asks(tool: Tool) -> bool:
    """Whether a tool itself has to be asked whether it can be offered."""
    if isinstance(tool, FunctionTool) and type(tool).enabled is FunctionTool.enabled:
        return "enabled" in tool.declared
    return type(tool).enabled is not Tool.enabled


if __name__ == "__main__":
    Path(SCHEMAS).write_text(written(), encoding="utf-8")
