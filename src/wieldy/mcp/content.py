"""Results of servers as ours: text as text, pictures as pictures, everything else saved to a file and named."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from wieldy.core.content import Block, Content, Image, Text
from wieldy.core.tool import Output

PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
MOST_PICTURE_CHARS = 5 * 1024 * 1024 * 4 // 3
PLAIN_CHARS = 10_000
EXTENSIONS = {
    "audio/wav": "wav",
    "audio/mpeg": "mp3",
    "audio/ogg": "ogg",
    "application/pdf": "pdf",
    "image/svg+xml": "svg",
}

_DATA_URI = re.compile(r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w=.-]+)*;base64,([A-Za-z0-9+/=_-]{200,})")


def is_plain(result: Any) -> bool:
    """Whether a result is a little text, which takes no time to turn into ours and writes no file."""
    return all(part.type == "text" and len(part.text) < PLAIN_CHARS for part in result.content)


def output_of(result: Any, folder: Path) -> Output:
    """What the model reads of a `CallToolResult`; structured content is the data, and the text where there is no other."""
    blocks = tuple(block for part in result.content for block in _blocks(part, folder))
    structured = result.structured_content
    if structured is not None and not any(isinstance(block, Text) and block.text.strip() for block in blocks):
        blocks = (*blocks, Text(json.dumps(structured, ensure_ascii=False)))
    return Output(blocks or (Text(""),), structured, is_error=bool(result.is_error))


def resource_blocks(contents: Iterable[Any], folder: Path) -> Content:
    """What the model reads of a resource."""
    return tuple(block for part in contents for block in _resource(part, folder, head=False))


def message_blocks(content: Any, folder: Path) -> Content:
    """What a model reads of one message of a prompt."""
    return tuple(_blocks(content, folder))


def _blocks(part: Any, folder: Path) -> Iterator[Block]:
    match part.type:
        case "text":
            yield from _text(part.text, folder)
        case "image" | "audio":
            yield _binary(part.data, part.mime_type, folder)
        case "resource":
            yield from _resource(part.resource, folder, head=True)
        case "resource_link":
            about = f": {part.description}" if part.description else ""
            yield Text(f"[resource {part.name} at {part.uri}{about}; ReadMcpResource reads it]")
        case other:
            yield Text(f"[a block of type {other} that cannot be shown]")


def _resource(part: Any, folder: Path, *, head: bool) -> Iterator[Block]:
    if head:
        yield Text(f"[resource {part.uri}]")
    if hasattr(part, "text"):
        yield from _text(part.text, folder)
    else:
        yield _binary(part.blob, part.mime_type or "application/octet-stream", folder)


def _text(text: str, folder: Path) -> Iterator[Block]:
    """Text, with data that was written into it as a URI taken out."""
    if "base64," not in text:
        yield Text(text)
        return
    at = 0
    for found in _DATA_URI.finditer(text):
        if before := text[at : found.start()]:
            yield Text(before)
        yield _binary(found[2], found[1] or "application/octet-stream", folder)
        at = found.end()
    if rest := text[at:]:
        yield Text(rest)


def _binary(data: str, media_type: str, folder: Path) -> Block:
    kind = media_type.partition(";")[0].strip().lower()
    if kind in PICTURES and len(data) <= MOST_PICTURE_CHARS:
        return Image(kind, data)
    try:
        raw = base64.b64decode(data, validate=False)
    except (binascii.Error, ValueError):
        return Text(f"[{kind}: data that is not base64]")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"mcp-{os.urandom(4).hex()}.{EXTENSIONS.get(kind, kind.rpartition('/')[2][:10] or 'bin')}"
    path.write_bytes(raw)
    return Text(f"[{kind}, {len(raw)} bytes, saved to {path}]")
