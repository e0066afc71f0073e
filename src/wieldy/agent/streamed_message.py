"""Deltas → the blocks of one message. A tool use is handed over the moment its block closes, while the model still speaks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Set
from functools import cache
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from wieldy.schema.json_repair import Read


NOTHING_USED = Usage()

_HALF = re.compile("[\ud800-\udfff]")


class OpenBlock:
    """A block that is still being written."""

    __slots__ = ("pieces", "start")

    def __init__(self, start: Mapping[str, Any]) -> None:
        self.start = start
        self.pieces: dict[str, list[Any]] = {}

    def grow(self, name: str, piece: Any) -> None:
        """Add a piece to one of its fields."""
        found = self.pieces.get(name)
        if found is None:
            self.pieces[name] = [piece]
        else:
            found.append(piece)

    def text(self, name: str) -> str:
        """What a field has come to."""
        text = "".join(self.pieces.get(name, ()))
        # Halves of one character may come in two pieces; a half that stays alone is no text.
        return text if text.isascii() or not _HALF.search(text) else _whole(text)


class StreamedMessage:
    """One message of the model's, as far as it has come. Blocks keep the order in which the model began them.

    `taken` are the ids of earlier calls: a model that repeats one gets it made unique.
    """

    __slots__ = ("blocks", "doubtful", "ids", "open", "stop_reason", "taken", "usage")

    def __init__(self, taken: Set[str] = frozenset()) -> None:
        self.taken = taken
        self.ids: set[str] = set()
        self.blocks: dict[int, dict[str, Any]] = {}
        self.open: dict[int, OpenBlock] = {}
        self.usage = NOTHING_USED
        self.stop_reason: StopReason | None = None
        self.doubtful: ToolCall | None = None

    def take(self, delta: Delta) -> ToolCall | None:
        """Add a delta; returns the call that may start now. Raises `ProviderFailure` for a stream that makes no sense."""
        if isinstance(delta, BlockDelta):
            opened = self.open.get(delta.index)
            if opened is None:
                raise _nonsense(f"block {delta.index} grows without having begun")
            opened.grow(delta.field, delta.piece)
            return None
        if isinstance(delta, BlockStarted):
            return self._begin(delta.index, delta.block)
        if isinstance(delta, BlockEnded):
            if delta.index not in self.open:
                raise _nonsense(f"block {delta.index} ends without having begun")
            return self._close(delta.index)
        if isinstance(delta, UsageReported):
            self.usage = delta.usage
            return None
        self.stop_reason = delta.reason
        return self._settled_doubt(cut=delta.reason == "max_tokens")

    def content(self) -> tuple[dict[str, Any], ...]:
        """The closed blocks that are worth keeping, in order."""
        blocks = self.blocks.values() if len(self.blocks) < 2 else [block for _, block in sorted(self.blocks.items())]
        return tuple([block for block in blocks if not _is_blank(block)])

    def cut_off(self) -> list[ToolCall]:
        """Close what the end of the message left open. Its tool uses are incomplete and will not run."""
        calls = []
        for index in sorted(self.open):
            self._close(index, cut=True)
            block = self.blocks[index]
            if block["type"] == "tool_use":
                calls.append(ToolCall(block["id"], block["name"], {}, complete=False))
        return calls

    def drop_open(self) -> None:
        """Forget what was still being written."""
        self.open.clear()

    def _begin(self, index: int, block: Mapping[str, Any]) -> ToolCall | None:
        if index in self.blocks or index in self.open:
            raise _nonsense(f"block {index} begins twice")
        if not isinstance(block.get("type"), str):
            raise _nonsense(f"block {index} has no type")
        self.open[index] = OpenBlock(self._with_unique_id(block) if block["type"] == "tool_use" else block)
        return self._settled_doubt(cut=False)

    def _close(self, index: int, *, cut: bool = False) -> ToolCall | None:
        opened = self.open.pop(index)
        start = opened.start
        match start["type"]:
            case "tool_use":
                return self._close_call(index, opened, cut=cut)
            case "text":
                block = {**start, "text": start.get("text", "") + opened.text("text")}
                if citations := opened.pieces.get("citation"):
                    block["citations"] = [*start.get("citations", ()), *citations]
            case "thinking":
                block = {**start, "thinking": start.get("thinking", "") + opened.text("thinking")}
                if signature := opened.text("signature"):
                    block["signature"] = signature
            case "server_tool_use":
                raw = opened.text("input")
                block = {**start, "input": _as_object(raw)[0] if raw else start.get("input") or {}}
            case _:
                block = dict(start)
        self.blocks[index] = block
        return None

    def _close_call(self, index: int, opened: OpenBlock, *, cut: bool) -> ToolCall | None:
        start = opened.start
        raw = opened.text("input")
        value, clean = _as_object(raw) if raw else (start.get("input") or {}, True)
        self.blocks[index] = {**start, "input": value}
        call = ToolCall(start["id"], start["name"], value if clean else raw)
        if raw or value or cut:
            return call
        # An input of nothing is either meant so or was cut off before it began: what comes next tells.
        waiting = self._settled_doubt(cut=False)
        self.doubtful = call
        return waiting

    def _settled_doubt(self, *, cut: bool) -> ToolCall | None:
        call, self.doubtful = self.doubtful, None
        if call is None or not cut:
            return call
        return ToolCall(call.id, call.name, {}, complete=False)

    def _with_unique_id(self, block: Mapping[str, Any]) -> Mapping[str, Any]:
        wanted = unique = block.get("id") or "call"
        count = 1
        while unique in self.taken or unique in self.ids:
            count += 1
            unique = f"{wanted}-{count}"
        self.ids.add(unique)
        if unique == block.get("id") and isinstance(block.get("name"), str):
            return block
        return {**block, "id": unique, "name": str(block.get("name") or "")}


def _as_object(raw: str) -> tuple[dict[str, Any], bool]:
    """What the history keeps of an input, an object even where the model wrote none; and whether it was written well."""
    read_object, unreadable = _reading()
    try:
        read = read_object(raw)
    except unreadable:
        return {}, False
    return read.value, not read.notes


@cache
def _reading() -> tuple[Callable[[str], Read], type[Exception]]:
    """How inputs are read, loaded with the first."""
    from wieldy.schema.json_repair import UnreadableJson, read_object

    return read_object, UnreadableJson


def _whole(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _is_blank(block: Mapping[str, Any]) -> bool:
    return block["type"] == "text" and not block["text"].strip()


def _nonsense(what: str) -> ProviderFailure:
    return ProviderFailure("protocol", f"the stream makes no sense: {what}")
