"""The result of a call in the words of the protocol: text, pictures, structured data, links to what was too long."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from wieldy.core.content import Block, Image
from wieldy.core.result import ToolResult
from wieldy.engine.output import plain

MOST_STRUCTURED = 1_000_000
_HALF = re.compile("[\ud800-\udfff]")

Wire = dict[str, Any]


def as_wire(result: ToolResult, links: Sequence[Wire] = ()) -> Wire:
    """A `tools/call` result. Every failure is a result that the model reads, never an error of the protocol."""
    content = [*map(_block, result.content), *links]
    # Clients of the older revision are not sent the type: the SDK leaves out what a revision does not know.
    wire: Wire = {"resultType": "complete", "content": content, "isError": result.is_error}
    if result.data is not None and (structured := _structured(result.data)) is not None:
        wire["structuredContent"] = structured
    return wire


def whole(text: str) -> str:
    """The text without halves of characters, which no wire can carry; names of files that are no text hold them."""
    return text if text.isascii() else _HALF.sub("\ufffd", text)


def _block(block: Block) -> Wire:
    if isinstance(block, Image):
        return {"type": "image", "data": block.data, "mimeType": block.media_type}
    return {"type": "text", "text": whole(block.text)}


def _structured(data: Any) -> Wire | None:
    """The data as a JSON object; None where JSON cannot hold it, or where it would flood the client."""
    value = plain(data)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return None
    if len(text) > MOST_STRUCTURED:
        return None
    if (sound := whole(text)) != text:
        value = json.loads(sound)
    return value if isinstance(value, dict) else {"result": value}
