"""The result of a call in the words of the protocol: text, pictures, structured data, links to what was too long."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from wieldy.core.content import Block, Image
from wieldy.core.result import ToolResult
from wieldy.engine.output import plain

MOST_STRUCTURED = 1_000_000

Wire = dict[str, Any]


def as_wire(result: ToolResult, links: Sequence[Wire] = ()) -> Wire:
    """A `tools/call` result. Every failure is a result that the model reads, never an error of the protocol."""
    content = [*map(_block, result.content), *links]
    # Clients of the older revision are not sent the type: the SDK leaves out what a revision does not know.
    wire: Wire = {"resultType": "complete", "content": content, "isError": result.is_error}
    if result.data is not None and (structured := _structured(result.data)) is not None:
        wire["structuredContent"] = structured
    return wire


def _block(block: Block) -> Wire:
    if isinstance(block, Image):
        return {"type": "image", "data": block.data, "mimeType": block.media_type}
    return {"type": "text", "text": block.text}


def _structured(data: Any) -> Wire | None:
    """The data as a JSON object; None where JSON cannot hold it, or where it would flood the client."""
    value = plain(data)
    try:
        size = len(json.dumps(value, ensure_ascii=False, allow_nan=False))
    except ValueError:
        return None
    if size > MOST_STRUCTURED:
        return None
    return value if isinstance(value, dict) else {"result": value}
