"""`python -m wieldy.tools` writes down the input schemas of the built-in tools, as they follow from their declarations."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

from wieldy.tools import MODULES, SCHEMAS


def written() -> str:
    """The file, a line for each tool."""
    tools = {name: import_module(f"wieldy.tools.{module}").TOOL for name, module in MODULES.items()}
    rows = (f"{json.dumps(name)}: {json.dumps(tool.parameters.schema)}" for name, tool in tools.items())
    return "{\n" + ",\n".join(rows) + "\n}\n"


if __name__ == "__main__":
    Path(SCHEMAS).write_text(written(), encoding="utf-8")
