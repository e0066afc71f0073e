"""A conversation: messages in the form of the Anthropic Messages API, each encoded for a wire at most once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

Role: TypeAlias = Literal["user", "assistant"]
ContentBlock: TypeAlias = Mapping[str, Any]


class Message(Struct, frozen=True, eq=False):
    """One message. What a model said is kept verbatim: its blocks are never edited, reordered or merged."""

    role: Role
    content: tuple[ContentBlock, ...]
    _wires: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def user(cls, text: str) -> Message:
        """A message of the person's."""
        return cls("user", ({"type": "text", "text": text},))

    def encoded(self, wire: str, encode: Callable[[Message], bytes]) -> bytes:
        """This message on a wire, encoded the first time it is asked for."""
        found = self._wires.get(wire)
        if found is None:
            found = self._wires[wire] = encode(self)
        return found

    def as_dict(self) -> dict[str, Any]:
        """This message as the API takes it."""
        return {"role": self.role, "content": [dict(block) for block in self.content]}

    def calls(self) -> tuple[ContentBlock, ...]:
        """The tool uses in it."""
        return tuple(block for block in self.content if block["type"] == "tool_use")


History: TypeAlias = Sequence[Message]


def encoded_all(history: History, wire: str, encode: Callable[[Message], bytes]) -> list[bytes]:
    """Every message on a wire. All but the newest have mostly been encoded before, and are only looked up."""
    old, new = history[:-2], history[-2:]
    try:
        looked_up = [message._wires[wire] for message in old]
    except KeyError:
        looked_up = [message.encoded(wire, encode) for message in old]
    return [*looked_up, *(message.encoded(wire, encode) for message in new)]


def listed(before: bytes, items: list[bytes], after: bytes) -> bytes:
    """Items with commas between them and something around, copied once: a history may be megabytes. Changes the list."""
    if not items:
        return before + after
    items[0] = before + items[0]
    items[-1] += after
    return b",".join(items)
