"""Content of MCP results, resources and prompts as blocks that the model reads; other binary data is saved to files."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from wieldy.core.outcome import Block, Content, Image, Text
from wieldy.core.tool import Output

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
MAX_IMAGE_CHARS = 5 * 1024 * 1024 * 4 // 3
SHORT_TEXT_CHARS = 10_000
EXTENSIONS = {
    "audio/wav": "wav",
    "audio/mpeg": "mp3",
    "audio/ogg": "ogg",
    "application/pdf": "pdf",
    "image/svg+xml": "svg",
}
_DATA_URI = re.compile(r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w=.-]+)*;base64,([A-Za-z0-9+/=_-]{200,})")


def is_short_text(result: Any) -> bool:
    """Return whether converting a result takes no time and writes no file."""
    return all(part.type == "text" and len(part.text) < SHORT_TEXT_CHARS for part in result.content)


def convert_result(result: Any, folder: Path) -> Output:
    """Convert a `CallToolResult`. Structured content becomes the data, and the text where there is no other."""
    blocks = tuple(block for part in result.content for block in convert_part(part, folder))
    structured = result.structured_content
    if structured is not None and not any(isinstance(block, Text) and block.text.strip() for block in blocks):
        blocks = (*blocks, Text(json.dumps(structured, ensure_ascii=False)))
    return Output(blocks or (Text(""),), structured, is_error=bool(result.is_error))


def convert_resource(contents: Iterable[Any], folder: Path) -> Content:
    """Convert the contents of a resource that was read."""
    return tuple(block for part in contents for block in _resource_blocks(part, folder))


def convert_part(part: Any, folder: Path) -> Iterator[Block]:
    """Convert one content part of a result or of a prompt's message."""
    match part.type:
        case "text":
            yield from _text_blocks(part.text, folder)
        case "image" | "audio":
            yield _binary_block(part.data, part.mime_type, folder)
        case "resource":
            yield Text(f"[resource {part.resource.uri}]")
            yield from _resource_blocks(part.resource, folder)
        case "resource_link":
            about = f": {part.description}" if part.description else ""
            yield Text(f"[resource {part.name} at {part.uri}{about}; ReadMcpResource reads it]")
        case other:
            yield Text(f"[a block of type {other} that cannot be shown]")


def _resource_blocks(part: Any, folder: Path) -> Iterator[Block]:
    if hasattr(part, "text"):
        yield from _text_blocks(part.text, folder)
    else:
        yield _binary_block(part.blob, part.mime_type or "application/octet-stream", folder)


def _text_blocks(text: str, folder: Path) -> Iterator[Block]:
    """Split off data URIs: their base64 would flood the model."""
    if "base64," not in text:
        yield Text(text)
        return
    end = 0
    for match in _DATA_URI.finditer(text):
        if before := text[end : match.start()]:
            yield Text(before)
        yield _binary_block(match[2], match[1] or "application/octet-stream", folder)
        end = match.end()
    if rest := text[end:]:
        yield Text(rest)


def _binary_block(data: str, media_type: str, folder: Path) -> Block:
    kind = media_type.partition(";")[0].strip().lower()
    if kind in IMAGE_TYPES and len(data) <= MAX_IMAGE_CHARS:
        return Image(kind, data)
    try:
        raw = base64.b64decode(data, validate=False)
    except (binascii.Error, ValueError):
        return Text(f"[{kind}: data that is not base64]")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"mcp-{os.urandom(4).hex()}.{EXTENSIONS.get(kind, kind.rpartition('/')[2][:10] or 'bin')}"
    path.write_bytes(raw)
    return Text(f"[{kind}, {len(raw)} bytes, saved to {path}]")
