"""What the encoders of all model APIs share: tools, the body around a history, pictures and results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from wieldy.core.messages import ContentBlock, join_json_array
from wieldy.core.provider import ToolSpec
from wieldy.core.schema.strict_json import encode_json

REASONING_MODELS = ("o1", "o3", "o4", "gpt-5", "gpt-6")


def encode_tool(tool: ToolSpec, wire: str, define: Callable[[ToolSpec], Mapping[str, Any]]) -> bytes:
    """Encode a tool definition, once for each wire."""
    encoded = tool.encoded.get(wire)
    if encoded is None:
        encoded = tool.encoded[wire] = encode_json(define(tool))
    return encoded


def encode_body(head: Mapping[str, Any], tools: Iterable[bytes], history: str, items: list[bytes]) -> bytes:
    """Join a request from its fields, its tools and its history, which are encoded already; `history` names that field."""
    pieces = [encode_json(head)[:-1]]
    if encoded := b",".join(tools):
        pieces += [b',"tools":[', encoded, b"]"]
    return join_json_array(b"".join([*pieces, b',"', history.encode(), b'":[']), items, b"]}")


def image_url(block: ContentBlock) -> str:
    """The address of a picture; a `data:` URL for one that is sent along."""
    source = block["source"]
    return source["url"] if source["type"] == "url" else f"data:{source['media_type']};base64,{source['data']}"


def is_reasoning_model(model: str) -> bool:
    """Whether a model of OpenAI thinks before it answers, as far as its name tells."""
    return model.startswith(REASONING_MODELS) and "-chat" not in model
