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
from wieldy.core.state_dirs import make_private_folder
from wieldy.core.tool import Output
from wieldy.files.detection import media_type_of

MAX_IMAGE_CHARS = 5 * 1024 * 1024 * 4 // 3
SIGNATURE_CHARS = 64
SHORT_TEXT_CHARS = 10_000
MAX_FILES = 100  # images and others in one answer; server-everything: 1
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
    blocks = convert_parts(result.content, folder)
    structured = result.structured_content
    if structured is not None and not any(isinstance(block, Text) and block.text.strip() for block in blocks):
        blocks = (*blocks, Text(json.dumps(structured, ensure_ascii=False)))
    return Output(blocks or (Text(""),), structured, is_error=bool(result.is_error))


def convert_parts(parts: Iterable[Any], folder: Path) -> Content:
    """Convert the parts of a result or of a prompt's messages."""
    converter = _Converter(folder)
    return (*(block for part in parts for block in converter.convert(part)), *converter.left_out())


def convert_resource(contents: Iterable[Any], folder: Path) -> Content:
    """Convert the contents of a resource that was read."""
    converter = _Converter(folder)
    return (*(block for part in contents for block in converter.convert_resource(part)), *converter.left_out())


class _Converter:
    """Converts the parts of one answer, and counts the files that are saved for it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file_count = 0

    def convert(self, part: Any) -> Iterator[Block]:
        match part.type:
            case "text":
                yield from self._text_blocks(part.text)
            case "image" | "audio":
                yield from self._binary_blocks(part.data, part.mime_type)
            case "resource":
                yield Text(f"[resource {part.resource.uri}]")
                yield from self.convert_resource(part.resource)
            case "resource_link":
                about = f": {part.description}" if part.description else ""
                yield Text(f"[resource {part.name} at {part.uri}{about}; ReadMcpResource reads it]")
            case other:
                yield Text(f"[a block of type {other} that cannot be shown]")

    def convert_resource(self, part: Any) -> Iterator[Block]:
        if hasattr(part, "text"):
            yield from self._text_blocks(part.text)
        else:
            yield from self._binary_blocks(part.blob, part.mime_type or "application/octet-stream")

    def left_out(self) -> Iterator[Block]:
        if (count := self._file_count - MAX_FILES) > 0:
            yield Text(f"[{count:,} more files are left out: {MAX_FILES} of an answer are taken]")

    def _text_blocks(self, text: str) -> Iterator[Block]:
        """Split off data URIs: their base64 would flood the model."""
        end = 0
        for match in _DATA_URI.finditer(text) if "base64," in text else ():
            if before := text[end : match.start()]:
                yield Text(before)
            yield from self._binary_blocks(match[2], match[1] or "application/octet-stream")
            end = match.end()
        if (rest := text[end:]) or not end:
            yield Text(rest)

    def _binary_blocks(self, data: str, media_type: str) -> Iterator[Block]:
        """An image that models can see, known by its signature; anything else is saved."""
        self._file_count += 1
        if self._file_count > MAX_FILES:
            return
        kind = media_type.partition(";")[0].strip().lower()
        image_type = media_type_of(_decode(data[:SIGNATURE_CHARS]) or b"") if kind.startswith("image/") else None
        if image_type is not None and len(data) <= MAX_IMAGE_CHARS:
            yield Image(image_type, data)
            return
        raw = _decode(data)
        if raw is None:
            yield Text(f"[{kind}: data that is not base64]")
            return
        make_private_folder(self._folder)
        extension = EXTENSIONS.get(kind) or _NO_LETTER.sub("", kind.rpartition("/")[2])[:10] or "bin"
        path = self._folder / f"mcp-{os.urandom(4).hex()}.{extension}"
        path.write_bytes(raw)
        yield Text(f"[{kind}, {len(raw)} bytes, saved to {path}]")


def _decode(data: str) -> bytes | None:
    try:
        return base64.b64decode(data, validate=False)
    except ValueError:
        return None
