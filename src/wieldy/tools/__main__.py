"""`python -m wieldy.tools` writes down what models are shown of the built-in tools, as it follows from their declarations."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from wieldy.core.tool import Tool
from wieldy.schema.written import described
from wieldy.tools import MODULES, SCHEMAS


def written() -> str:
    """The file, a line for each tool."""
    tools = {name: getattr(import_module(f"wieldy.tools.{module}"), module) for name, module in MODULES.items()}
    rows = (f"{json.dumps(name)}: {json.dumps(_row(tool))}" for name, tool in tools.items())
    return "{\n" + ",\n".join(rows) + "\n}\n"


def _row(tool: Tool) -> dict[str, Any]:
    """Its input; and the rest of what decides how it is offered, where that is the same everywhere."""
    row: dict[str, Any] = described(tool.declared_parameters())
    if not tool.says_itself:
        facts = ("description", "prompt", "read_only", "deferred")
        row |= {fact: getattr(tool, fact) for fact in facts}
    return row


if __name__ == "__main__":
    Path(SCHEMAS).write_text(written(), encoding="utf-8")
