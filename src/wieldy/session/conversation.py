"""The conversation as a fold over the transcript's records: messages, activated tools, cost, and what was said last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wieldy.core.message import ContentBlock, Message
from wieldy.session.repair import repair


@dataclass(slots=True)
class Conversation:
    """What the next request is made of. Blocks wait for their message to end, results for their siblings."""

    messages: list[Message] = field(default_factory=list)
    blocks: dict[int, ContentBlock] = field(default_factory=dict)
    results: list[ContentBlock] = field(default_factory=list)
    activated: dict[str, None] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)
    cost: float = 0.0
    turns: int = 0
    header: Mapping[str, Any] = field(default_factory=dict)

    def take(self, record: Mapping[str, Any]) -> None:
        """Fold one record in. Unknown ones are passed over."""
        match record.get("type"):
            case "session":
                self.header = record
            case "user" if isinstance(record.get("content"), list):
                self._settle()
                self._say(Message("user", _blocks(record["content"])))
            case "block" if _is_block(record.get("block")):
                self._settle_results()
                self.blocks[int(record.get("index", len(self.blocks)))] = record["block"]
            case "answered":
                self._close_message()
                self.cost += float(record.get("cost") or 0)
                self.turns += 1
            case "dropped":
                self.blocks.clear()
            case "result" if isinstance(record.get("block"), Mapping) and "tool_use_id" in record["block"]:
                self.results.append(record["block"])
            case "activated":
                self.activated.update(dict.fromkeys(record.get("tools", ())))
            case "compacted" if isinstance(record.get("messages"), list):
                self._settle()
                self.messages = [Message(m["role"], _blocks(m["content"])) for m in record["messages"]]

    def settled(self) -> list[Message]:
        """The messages, with nothing left waiting. A message that never ended counts only if a tool of it may have run."""
        self._settle()
        return self.messages

    def _settle(self) -> None:
        if self.blocks:
            if any(block["type"] == "tool_use" for block in self.blocks.values()):
                self._close_message()
            else:
                self.blocks.clear()
        self._settle_results()

    def _close_message(self) -> None:
        content = tuple(block for _, block in sorted(self.blocks.items()))
        self.blocks = {}
        if content:
            self._say(Message("assistant", content))
            self.ids.update(block["id"] for block in content if block["type"] == "tool_use")

    def _settle_results(self) -> None:
        """The results so far become the user's message, ordered by request."""
        if not self.results or self.blocks:
            return
        asked = [block["id"] for block in self.messages[-1].calls()] if self.messages else []
        place = {call_id: number for number, call_id in enumerate(asked)}
        self.results.sort(key=lambda block: place.get(block["tool_use_id"], len(place)))
        self._say(Message("user", tuple(self.results)))
        self.results = []

    def _say(self, message: Message) -> None:
        if self.messages and self.messages[-1].role == message.role:
            self.messages[-1] = Message(message.role, (*self.messages[-1].content, *message.content))
        else:
            self.messages.append(message)


def fold(records: Iterable[Mapping[str, Any]]) -> Conversation:
    """The conversation that some records tell of, made acceptable to an API."""
    told = Conversation()
    for record in records:
        told.take(record)
    told.messages = repair(told.settled())
    return told


def _blocks(content: Iterable[Any]) -> tuple[ContentBlock, ...]:
    return tuple(block for block in content if _is_block(block))


def _is_block(block: Any) -> bool:
    return isinstance(block, Mapping) and isinstance(block.get("type"), str)
