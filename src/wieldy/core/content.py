"""The content of a result: text and images."""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct


class Text(Struct, frozen=True):
    text: str

    def as_wire(self) -> dict[str, Any]:
        """The block in a `tool_result` of the Anthropic Messages API."""
        return {"type": "text", "text": self.text}


class Image(Struct, frozen=True):
    """An image, base64-encoded."""

    media_type: str
    data: str

    def as_wire(self) -> dict[str, Any]:
        """The block in a `tool_result` of the Anthropic Messages API."""
        return {"type": "image", "source": {"type": "base64", "media_type": self.media_type, "data": self.data}}


Block: TypeAlias = Text | Image
Content: TypeAlias = tuple[Block, ...]


def text_of(content: Content) -> str:
    """Join the text blocks by line breaks."""
    return "\n".join(block.text for block in content if isinstance(block, Text))
