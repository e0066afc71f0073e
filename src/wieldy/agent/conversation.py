"""The conversation as a fold over the transcript's records: messages, activated tools, cost, and what was said last."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from wieldy.agent.repair import repair
from wieldy.core.messages import ContentBlock, Message


class Conversation:
    """What the next request is made of. Blocks wait for their message to end, results for their siblings.

    The first `sound` messages have passed repair; `seen` are the ids of their calls. `tokens` is how full the last request
    was, as the provider counted.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.blocks: dict[int, ContentBlock] = {}
        self.results: list[ContentBlock] = []
        self.activated: dict[str, None] = {}
        self.ids: set[str] = set()
        self.cost = 0.0
        self.turns = 0
        self.tokens = 0
        self.header: Mapping[str, Any] = {}
        self.sound = 0
        self.seen: set[str] = set()

    def take(self, record: Mapping[str, Any]) -> None:
        """Fold one record in. Unknown and damaged ones are passed over."""
        kind = record.get("type")
        folder = _FOLDERS.get(kind) if type(kind) is str else None
        if folder is not None:
            folder(self, record)

    def settled(self) -> list[Message]:
        """The messages as the API takes them, with nothing left waiting; each is repaired once.

        A message that never ended counts only if a tool of it may have run.
        """
        self._settle()
        if self.sound < len(self.messages):
            tail = repair(self.messages[self.sound :], self.seen, whole=self.sound == 0)
            self.messages[self.sound :] = tail
            self.sound = len(self.messages)
        return self.messages

    def copy(self) -> Conversation:
        """A conversation that can be settled without touching this one."""
        other = Conversation()
        other.messages, other.blocks, other.results = list(self.messages), dict(self.blocks), list(self.results)
        other.sound, other.seen = self.sound, set(self.seen)
        return other

    def restart(self, messages: Iterable[Message]) -> None:
        """Go on from other messages; they are repaired like any others."""
        self._settle()
        self.messages = list(messages)
        self.sound, self.seen = 0, set()

    def _user(self, record: Mapping[str, Any]) -> None:
        content = record.get("content")
        if isinstance(content, list):
            self._settle()
            self._say(Message("user", _blocks(content)))

    def _block(self, record: Mapping[str, Any]) -> None:
        block, index = record.get("block"), record.get("index")
        if _is_block(block):
            if not self.blocks:
                self._settle_results()
            self.blocks[index if isinstance(index, int) else len(self.blocks)] = block  # type: ignore[assignment]

    def _answered(self, record: Mapping[str, Any]) -> None:
        self._close_message(whole=record.get("stop_reason") not in ("broken", "interrupted"))
        self.turns += 1
        self._spend(record.get("cost"))
        usage = record.get("usage")
        if isinstance(usage, dict):
            self.tokens = _total(usage) or self.tokens

    def _dropped(self, record: Mapping[str, Any]) -> None:
        self.blocks.clear()

    def _result(self, record: Mapping[str, Any]) -> None:
        block = record.get("block")
        if _is_block(block) and isinstance(block.get("tool_use_id"), str):  # type: ignore[union-attr]
            self.results.append(block)  # type: ignore[arg-type]

    def _activated(self, record: Mapping[str, Any]) -> None:
        tools = record.get("tools")
        if isinstance(tools, list):
            self.activated.update((name, None) for name in tools if isinstance(name, str))

    def _compacted(self, record: Mapping[str, Any]) -> None:
        messages = record.get("messages")
        if isinstance(messages, list):
            self.restart(filter(None, map(_message, messages)))
            self.ids.update([str(block.get("id")) for message in self.messages for block in message.calls()])
            used = record.get("ids")
            self.ids.update(filter(_is_text, used) if isinstance(used, list) else ())
            self._spend(record.get("cost"))
            self.tokens = 0

    def _shortened(self, record: Mapping[str, Any]) -> None:
        results = record.get("results")
        if isinstance(results, Mapping):
            from wieldy.agent.compaction import with_results

            self.restart(with_results(self.settled(), results))
            self.tokens = 0

    def _withheld(self, record: Mapping[str, Any]) -> None:
        digests, why = record.get("digests"), record.get("why")
        if isinstance(digests, list):
            from wieldy.agent.compaction import without_media

            self.restart(without_media(self.settled(), frozenset(map(str, digests)), str(why)))

    def _another_model(self, record: Mapping[str, Any]) -> None:
        from wieldy.agent.compaction import without_thoughts

        self.header = {**self.header, "model": record.get("model")}
        self.restart(without_thoughts(self.settled()))

    def _forgot(self, record: Mapping[str, Any]) -> None:
        from wieldy.agent.compaction import without_thoughts

        self.restart(without_thoughts(self.settled()))

    def _spend(self, cost: Any) -> None:
        if isinstance(cost, (int, float)):
            self.cost += cost

    def _aside(self, record: Mapping[str, Any]) -> None:
        self._spend(record.get("cost"))

    def _header(self, record: Mapping[str, Any]) -> None:
        self.header = record

    def _settle(self) -> None:
        if self.blocks:
            if any(block["type"] == "tool_use" for block in self.blocks.values()):
                self._close_message(whole=False)
            else:
                self.blocks.clear()
        self._settle_results()

    def _close_message(self, *, whole: bool) -> None:
        blocks, self.blocks = self.blocks, {}
        content = tuple(blocks.values()) if len(blocks) < 2 else tuple([block for _, block in sorted(blocks.items())])
        if not whole:
            content = _without_unanswered(content)
        if content:
            self._say(Message("assistant", content))
            for block in content:
                if block["type"] == "tool_use":
                    self.ids.add(str(block.get("id")))

    def _settle_results(self) -> None:
        """The results so far become the user's message, ordered by request."""
        if not self.results:
            return
        results = self.results
        if len(results) > 1:
            asked = [block.get("id") for block in self.messages[-1].calls()] if self.messages else []
            place = {call_id: number for number, call_id in enumerate(asked)}
            results.sort(key=lambda block: place.get(block["tool_use_id"], len(place)))
        self.results = []
        self._say(Message("user", tuple(results)))

    def _say(self, message: Message) -> None:
        if not self.messages or self.messages[-1].role != message.role:
            self.messages.append(message)
            return
        self._unsettle_last()
        self.messages[-1] = Message(message.role, (*self.messages[-1].content, *message.content))

    def _unsettle_last(self) -> None:
        """The last message is about to grow: it, and the calls it may answer, must pass repair again."""
        last = len(self.messages) - 1
        if last >= self.sound:
            return
        if self.messages[last].role == "user" and last > 0:
            last -= 1
        self.sound = last
        self.seen.difference_update(block["id"] for block in self.messages[last].calls())


_FOLDERS: Mapping[str, Callable[[Conversation, Mapping[str, Any]], None]] = {
    "session": Conversation._header,
    "user": Conversation._user,
    "block": Conversation._block,
    "answered": Conversation._answered,
    "dropped": Conversation._dropped,
    "result": Conversation._result,
    "activated": Conversation._activated,
    "compacted": Conversation._compacted,
    "shortened": Conversation._shortened,
    "withheld": Conversation._withheld,
    "model": Conversation._another_model,
    "forgot": Conversation._forgot,
    "aside": Conversation._aside,
}


def fold(records: Iterable[Mapping[str, Any]]) -> Conversation:
    """The conversation that some records tell of, made acceptable to an API."""
    told = Conversation()
    collecting = gc.isenabled()
    gc.disable()  # nearly all that is made here stays: looking through it for garbage would take as long again
    try:
        for record in records:
            told.take(record)
        told.settled()
    finally:
        if collecting:
            gc.enable()
    return told


def _total(usage: Mapping[str, Any]) -> int:
    try:
        if isinstance(total := sum(usage.values()), int):
            return total
    except TypeError:
        pass
    return sum([count for count in usage.values() if isinstance(count, int)])  # of what is damaged, what can be added


def _without_unanswered(content: tuple[ContentBlock, ...]) -> tuple[ContentBlock, ...]:
    """A message that broke off, without those server tools whose result never came."""
    if not any(block["type"] == "server_tool_use" for block in content):
        return content
    answered = {block.get("tool_use_id") for block in content if block["type"].endswith("_tool_result")}
    return tuple(block for block in content if block["type"] != "server_tool_use" or block.get("id") in answered)


def _message(told: Any) -> Message | None:
    if not isinstance(told, Mapping) or told.get("role") not in ("user", "assistant"):
        return None
    return Message(told["role"], _blocks(told.get("content")))


def _blocks(content: Any) -> tuple[ContentBlock, ...]:
    if isinstance(content, str):
        return ({"type": "text", "text": content},)
    return tuple(block for block in content if _is_block(block)) if isinstance(content, list) else ()


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_block(block: Any) -> bool:
    return (type(block) is dict or isinstance(block, Mapping)) and isinstance(block.get("type"), str)
