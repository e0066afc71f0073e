"""Deltas → the blocks of one message. A tool use is handed over the moment its block closes, while the model still speaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from wieldy.core.call import ToolCall
from wieldy.core.provider import BlockEnded, BlockGrew, BlockStarted, Delta, Metered, Stopped, StopReason, Usage
from wieldy.schema.mend import Unreadable, read_object


@dataclass(slots=True)
class OpenBlock:
    """A block that is still being written."""

    start: Mapping[str, Any]
    pieces: dict[str, list[Any]] = field(default_factory=dict)

    def grow(self, name: str, piece: Any) -> None:
        """Add a piece to one of its fields."""
        self.pieces.setdefault(name, []).append(piece)

    def text(self, name: str) -> str:
        """What a field has come to."""
        return "".join(self.pieces.get(name, ()))


@dataclass(slots=True)
class Answer:
    """One message of the model's, as far as it has come. Blocks keep the order in which the model began them."""

    taken: set[str] = field(default_factory=set)
    blocks: dict[int, dict[str, Any]] = field(default_factory=dict)
    open: dict[int, OpenBlock] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    stop_reason: StopReason | None = None

    def take(self, delta: Delta) -> ToolCall | None:
        """Add a delta; returns the call when this closed one."""
        match delta:
            case BlockStarted(index, block):
                self.open[index] = OpenBlock(self._with_unique_id(block))
            case BlockGrew(index, name, piece):
                self.open[index].grow(name, piece)
            case BlockEnded(index):
                return self._close(index)
            case Metered(usage):
                self.usage = usage
            case Stopped(reason):
                self.stop_reason = reason
        return None

    def content(self) -> tuple[dict[str, Any], ...]:
        """The closed blocks that are worth keeping, in order."""
        return tuple(block for _, block in sorted(self.blocks.items()) if not _is_blank(block))

    def cut_off(self) -> list[ToolCall]:
        """Close what the end of the message left open. Its tool uses are incomplete and will not run."""
        calls = []
        for index in sorted(self.open):
            block = self.open[index].start
            self._close(index)
            if block["type"] == "tool_use":
                calls.append(ToolCall(block["id"], block["name"], {}, complete=False))
        return calls

    def drop_open(self) -> None:
        """Forget what was still being written."""
        self.open.clear()

    def _close(self, index: int) -> ToolCall | None:
        opened = self.open.pop(index)
        start = opened.start
        match start["type"]:
            case "text":
                block = {**start, "text": start.get("text", "") + opened.text("text")}
                if citations := opened.pieces.get("citation"):
                    block["citations"] = citations
            case "thinking":
                block = {**start, "thinking": start.get("thinking", "") + opened.text("thinking")}
                if signature := opened.text("signature"):
                    block["signature"] = signature
            case "tool_use" | "server_tool_use":
                raw = opened.text("input")
                value, clean = _as_object(raw) if raw else (start.get("input") or {}, True)
                self.blocks[index] = {**start, "input": value}
                if start["type"] == "tool_use":
                    return ToolCall(start["id"], start["name"], value if clean else raw)
                return None
            case _:
                block = dict(start)
        self.blocks[index] = block
        return None

    def _with_unique_id(self, block: Mapping[str, Any]) -> Mapping[str, Any]:
        if block["type"] != "tool_use":
            return block
        wanted = unique = block["id"] or "call"
        count = 1
        while unique in self.taken:
            count += 1
            unique = f"{wanted}-{count}"
        self.taken.add(unique)
        return block if unique == block["id"] else {**block, "id": unique}


def _as_object(raw: str) -> tuple[dict[str, Any], bool]:
    """What the history keeps of an input, an object even where the model wrote none; and whether it was written well."""
    try:
        read = read_object(raw)
    except Unreadable:
        return {}, False
    return read.value, not read.notes


def _is_blank(block: Mapping[str, Any]) -> bool:
    return block["type"] == "text" and not block["text"].strip()
