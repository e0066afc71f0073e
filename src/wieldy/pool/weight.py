"""How heavy a tool is in a request, in tokens, estimated from its characters; each is weighed once."""

from __future__ import annotations

import json
from weakref import WeakKeyDictionary

from wieldy.core.tool import Tool

CHARS_PER_TOKEN = 4
_weighed: WeakKeyDictionary[Tool, int] = WeakKeyDictionary()


def weigh(tool: Tool) -> int:
    """The tokens that name, description and schema take."""
    known = _weighed.get(tool)
    if known is None:
        schema = json.dumps(tool.schema, ensure_ascii=False, separators=(",", ":"), default=str)
        known = _weighed[tool] = (len(tool.name) + len(tool.description) + len(schema)) // CHARS_PER_TOKEN + 1
    return known
