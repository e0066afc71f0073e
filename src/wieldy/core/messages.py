"""The messages of a conversation, in the format of the Anthropic Messages API; each is encoded at most once per wire."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

Role: TypeAlias = Literal["user", "assistant"]
ContentBlock: TypeAlias = Mapping[str, Any]

THINKING_TYPES = frozenset({"thinking", "redacted_thinking"})
NO_TEXT = "(nothing)"  # what a message says that must not be empty


class Message(Struct, frozen=True, eq=False):
    """One message. The blocks of a model are kept verbatim: never edited, reordered or merged."""

    role: Role
    content: tuple[ContentBlock, ...]
    _wires: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def user(cls, text: str) -> Message:
        return cls("user", ({"type": "text", "text": text},))

    def encoded(self, wire: str, encode: Callable[[Message], bytes]) -> bytes:
        """Return the message encoded for a wire, from the cache if it was encoded before."""
        data = self._wires.get(wire)
        if data is None:
            data = self._wires[wire] = encode(self)
        return data

    def as_dict(self) -> dict[str, Any]:
        return {"role": self.role, "content": [dict(block) for block in self.content]}

    def calls(self) -> tuple[ContentBlock, ...]:
        """The tool_use blocks."""
        return tuple(block for block in self.content if block["type"] == "tool_use")


History: TypeAlias = Sequence[Message]


def encode_messages(history: History, wire: str, encode: Callable[[Message], bytes]) -> list[bytes]:
    """Encode every message for a wire; messages that were encoded before are taken from their caches."""
    return [message.encoded(wire, encode) for message in history]


def join_json_array(before: bytes, items: list[bytes], after: bytes) -> bytes:
    """Join items with commas between two texts, copying once: a history may be megabytes. Changes the list."""
    if not items:
        return before + after
    items[0] = before + items[0]
    items[-1] += after
    return b",".join(items)
