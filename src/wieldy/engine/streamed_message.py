"""A message of a model while it streams in: deltas go in, blocks and the calls that can start come out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from typing import Any

from wieldy.core.call import ToolCall
from wieldy.core.provider import (
    BlockDelta,
    BlockEnded,
    BlockStarted,
    Delta,
    ProviderFailure,
    StopReason,
    Usage,
    UsageReported,
)
from wieldy.core.schema.json_repair import UnreadableJson, read_object

# Some servers send an empty object for arguments that are still to come.
_PLACEHOLDERS = re.compile(r"\A(\s*\{\s*\})+(?=\s*\{)")
_SURROGATE = re.compile("[\ud800-\udfff]")


class StreamedMessage:
    """A message of the model as far as it has arrived. Blocks keep the order in which the model began them.

    `used_ids` are the ids of earlier calls: an id that the model repeats is made unique.
    """

    __slots__ = ("_ids", "_undecided", "_used_ids", "blocks", "open", "stop_reason", "usage")

    def __init__(self, used_ids: Set[str] = frozenset()) -> None:
        self.blocks: dict[int, dict[str, Any]] = {}
        self.open: dict[int, OpenBlock] = {}
        self.usage = Usage()
        self.stop_reason: StopReason | None = None
        self._used_ids = used_ids
        self._ids: set[str] = set()
        self._undecided: ToolCall | None = None

    def add(self, delta: Delta) -> ToolCall | None:
        """Add a delta; returns the call that can start now. Raises `ProviderFailure` for an inconsistent stream."""
        match delta:
            case BlockDelta():
                if (block := self.open.get(delta.index)) is None:
                    raise _inconsistent(f"block {delta.index} grows without having begun")
                block.pieces.setdefault(delta.field, []).append(delta.piece)
            case BlockStarted():
                return self._start_block(delta.index, delta.block)
            case BlockEnded():
                if delta.index not in self.open:
                    raise _inconsistent(f"block {delta.index} ends without having begun")
                return self._close_block(delta.index)
            case UsageReported():
                self.usage = delta.usage
            case _:
                self.stop_reason = delta.reason
                return self.take_undecided(cut_off=delta.reason == "max_tokens")
        return None

    def content(self) -> tuple[dict[str, Any], ...]:
        """The closed blocks in order, without blank texts."""
        blocks = [block for _, block in sorted(self.blocks.items())]
        return tuple([block for block in blocks if block["type"] != "text" or block["text"].strip()])

    def text(self) -> str:
        """The text blocks, joined."""
        return join_texts(self.content())

    def close_open_blocks(self) -> list[ToolCall]:
        """Close the blocks that the end of the message left open; returns their calls, which are incomplete."""
        calls = []
        for index in sorted(self.open):
            self._close_block(index, cut_off=True)
            block = self.blocks[index]
            if block["type"] == "tool_use":
                calls.append(ToolCall(block["id"], block["name"], {}, complete=False))
        return calls

    def take_undecided(self, *, cut_off: bool) -> ToolCall | None:
        """Return the last call if it had an empty input, now that it is known whether that was cut off."""
        call, self._undecided = self._undecided, None
        if call is None or not cut_off:
            return call
        return ToolCall(call.id, call.name, {}, complete=False)

    def _start_block(self, index: int, block: Mapping[str, Any]) -> ToolCall | None:
        if index in self.blocks or index in self.open:
            raise _inconsistent(f"block {index} begins twice")
        if not isinstance(block.get("type"), str):
            raise _inconsistent(f"block {index} has no type")
        self.open[index] = OpenBlock(self._with_unique_id(block) if block["type"] == "tool_use" else block)
        return self.take_undecided(cut_off=False)

    def _close_block(self, index: int, *, cut_off: bool = False) -> ToolCall | None:
        opened = self.open.pop(index)
        start = opened.start
        match start["type"]:
            case "tool_use":
                return self._close_call(index, opened, cut_off=cut_off)
            case "text":
                block = {**start, "text": start.get("text", "") + opened.text("text")}
                if citations := opened.pieces.get("citation"):
                    block["citations"] = [*start.get("citations", ()), *citations]
            case "thinking":
                block = {**start, "thinking": start.get("thinking", "") + opened.text("thinking")}
                if signature := opened.text("signature"):
                    block["signature"] = signature
                if items := opened.pieces.get("item"):
                    block["item"] = items[-1]
            case "server_tool_use":
                raw = opened.text("input")
                block = {**start, "input": _parse_input(raw)[0] if raw else start.get("input") or {}}
            case _:
                block = dict(start)
        self.blocks[index] = block
        return None

    def _close_call(self, index: int, opened: OpenBlock, *, cut_off: bool) -> ToolCall | None:
        start = opened.start
        raw = _PLACEHOLDERS.sub("", opened.text("input"), count=1)
        value, is_valid = _parse_input(raw) if raw else (start.get("input") or {}, True)
        self.blocks[index] = {**start, "input": value}
        call = ToolCall(start["id"], start["name"], value if is_valid else raw)
        if raw or value or cut_off:
            return call
        # An empty input is either complete or was cut off before it began: the next delta tells.
        previous = self.take_undecided(cut_off=False)
        self._undecided = call
        return previous

    def _with_unique_id(self, block: Mapping[str, Any]) -> Mapping[str, Any]:
        id = unique = block.get("id") or "call"
        count = 1
        while unique in self._used_ids or unique in self._ids:
            count += 1
            unique = f"{id}-{count}"
        self._ids.add(unique)
        if unique == block.get("id") and isinstance(block.get("name"), str):
            return block
        return {**block, "id": unique, "name": str(block.get("name") or "")}


class OpenBlock:
    """A block that is still arriving: the block as announced, and the pieces of its fields."""

    __slots__ = ("pieces", "start")

    def __init__(self, start: Mapping[str, Any]) -> None:
        self.start = start
        self.pieces: dict[str, list[Any]] = {}

    def text(self, field: str) -> str:
        text = "".join(self.pieces.get(field, ()))
        # The halves of a surrogate pair may come in two pieces; one that stays alone is replaced.
        if text.isascii() or not _SURROGATE.search(text):
            return text
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _parse_input(raw: str) -> tuple[dict[str, Any], bool]:
    """The input for the history, an object in any case, and whether the model wrote valid JSON."""
    try:
        parsed = read_object(raw)
    except UnreadableJson:
        return {}, False
    return parsed.value, not parsed.notes


def join_texts(content: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join([block["text"] for block in content if block["type"] == "text"])


def _inconsistent(what: str) -> ProviderFailure:
    return ProviderFailure("protocol", f"the stream makes no sense: {what}")
