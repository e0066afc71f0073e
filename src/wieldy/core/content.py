"""What a result is made of: text for the model to read, pictures for it to look at."""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct


class Text(Struct, frozen=True):
    """A piece of text."""

    text: str

    def as_wire(self) -> dict[str, Any]:
        """This block as a `tool_result` carries it."""
        return {"type": "text", "text": self.text}


class Image(Struct, frozen=True):
    """A picture, base64-encoded."""

    media_type: str
    data: str

    def as_wire(self) -> dict[str, Any]:
        """This block as a `tool_result` carries it."""
        return {"type": "image", "source": {"type": "base64", "media_type": self.media_type, "data": self.data}}


Block: TypeAlias = Text | Image
Content: TypeAlias = tuple[Block, ...]


def text_of(content: Content) -> str:
    """The text blocks of a content, joined by line breaks."""
    return "\n".join(block.text for block in content if isinstance(block, Text))
