"""Content of MCP results, resources and prompts as blocks that the model reads; other binary data is saved to files."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from wieldy.core.outcome import Block, Content, Image, Text
from wieldy.core.tool import Output
from wieldy.files.detection import media_type_of

MAX_IMAGE_CHARS = 5 * 1024 * 1024 * 4 // 3
SIGNATURE_CHARS = 64
SHORT_TEXT_CHARS = 10_000
EXTENSIONS = {
    "audio/wav": "wav",
    "audio/mpeg": "mp3",
    "audio/ogg": "ogg",
    "application/pdf": "pdf",
    "image/svg+xml": "svg",
}
_NO_LETTER = re.compile(r"[^a-z0-9]")
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
    """An image that models can see, known by its signature; anything else is saved."""
    kind = media_type.partition(";")[0].strip().lower()
    image_type = media_type_of(_decode(data[:SIGNATURE_CHARS]) or b"") if kind.startswith("image/") else None
    if image_type is not None and len(data) <= MAX_IMAGE_CHARS:
        return Image(image_type, data)
    raw = _decode(data)
    if raw is None:
        return Text(f"[{kind}: data that is not base64]")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    extension = EXTENSIONS.get(kind) or _NO_LETTER.sub("", kind.rpartition("/")[2])[:10] or "bin"
    path = folder / f"mcp-{os.urandom(4).hex()}.{extension}"
    path.write_bytes(raw)
    return Text(f"[{kind}, {len(raw)} bytes, saved to {path}]")


def _decode(data: str) -> bytes | None:
    try:
        return base64.b64decode(data, validate=False)
    except ValueError:
        return None
