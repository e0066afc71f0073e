"""The conversation as a fold over the records of a transcript: messages, activated tools, cost and token count."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from wieldy.agent.records import (
    AssistantBlock,
    AssistantMessageEnded,
    HistoryReplaced,
    MediaWithheld,
    MessageDiscarded,
    ModelChanged,
    ResultsShortened,
    SessionHeader,
    SideRequestMade,
    ThinkingRemoved,
    ToolResultRecord,
    ToolsActivated,
    TranscriptRecord,
    UserMessage,
)
from wieldy.agent.repair import repair
from wieldy.core.messages import ContentBlock, Message


def fold(records: Iterable[TranscriptRecord]) -> Conversation:
    """Build the conversation that some records describe, repaired so that an API accepts it."""
    conversation = Conversation()
    gc_was_enabled = gc.isenabled()
    gc.disable()  # nearly all objects made here stay; collections would take as long as the fold itself
    try:
        for record in records:
            conversation.apply(record)
        conversation.settle()
    finally:
        if gc_was_enabled:
            gc.enable()
    return conversation


class Conversation:
    """The messages of the next request. Blocks wait here until their message has ended, results until all calls have one.

    The first `repaired` messages are repaired; `repaired_ids` are the ids of their calls. `tokens` is the size of the last
    request and its answer as the provider counted it; `ids` are all call ids that were ever used.
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
        self.header: SessionHeader | None = None
        self.repaired = 0
        self.repaired_ids: set[str] = set()

    def apply(self, record: TranscriptRecord) -> None:
        """Fold one record in. Records that are of no concern here are skipped."""
        if (handler := _HANDLERS.get(type(record))) is not None:
            handler(self, record)

    def settle(self) -> list[Message]:
        """Return the messages as an API accepts them, with nothing left waiting; each is repaired once.

        A message that never ended counts only if it calls a tool, which may have run.
        """
        self._close_open_message()
        if self.repaired < len(self.messages):
            tail = repair(self.messages[self.repaired :], self.repaired_ids, whole=self.repaired == 0)
            self.messages[self.repaired :] = tail
            self.repaired = len(self.messages)
        return self.messages

    def copy(self) -> Conversation:
        """A copy that can be settled without changing this one."""
        other = Conversation()
        other.messages, other.blocks, other.results = list(self.messages), dict(self.blocks), list(self.results)
        other.repaired, other.repaired_ids = self.repaired, set(self.repaired_ids)
        return other

    def _replace(self, messages: Iterable[Message]) -> None:
        """Go on from other messages, which are still to be repaired."""
        self._close_open_message()
        self.messages = list(messages)
        self.repaired, self.repaired_ids = 0, set()

    def _on_header(self, record: SessionHeader) -> None:
        self.header = record

    def _on_user_message(self, record: UserMessage) -> None:
        self._close_open_message()
        self._append(Message("user", _blocks(record.content)))

    def _on_block(self, record: AssistantBlock) -> None:
        if isinstance(record.block.get("type"), str):
            if not self.blocks:
                self._close_results()
            self.blocks[len(self.blocks) if record.index is None else record.index] = record.block

    def _on_message_ended(self, record: AssistantMessageEnded) -> None:
        self._close_message(complete=record.stop_reason not in ("broken", "interrupted"))
        self.turns += 1
        self.cost += record.cost or 0.0
        self.tokens = sum(record.usage.values()) or self.tokens

    def _on_discarded(self, record: MessageDiscarded) -> None:
        self.blocks.clear()

    def _on_result(self, record: ToolResultRecord) -> None:
        if isinstance(record.block.get("type"), str) and isinstance(record.block.get("tool_use_id"), str):
            self.results.append(record.block)

    def _on_activated(self, record: ToolsActivated) -> None:
        self.activated.update(dict.fromkeys(record.tools))

    def _on_replaced(self, record: HistoryReplaced) -> None:
        self._replace([message for data in record.messages if (message := _message(data)) is not None])
        self.ids.update([str(block.get("id")) for message in self.messages for block in message.calls()])
        if isinstance(record.ids, list):
            self.ids.update(id for id in record.ids if isinstance(id, str))
        self.cost += record.cost or 0.0
        self.tokens = 0

    def _on_shortened(self, record: ResultsShortened) -> None:
        from wieldy.agent.compaction import with_results

        self._replace(with_results(self.settle(), record.results))
        self.tokens = 0

    def _on_withheld(self, record: MediaWithheld) -> None:
        from wieldy.agent.compaction import without_media

        self._replace(without_media(self.settle(), frozenset(record.digests), record.why))

    def _on_model_changed(self, record: ModelChanged) -> None:
        from wieldy.agent.compaction import without_thinking

        if self.header is not None:
            self.header = replace(self.header, model=record.model)
        self._replace(without_thinking(self.settle()))

    def _on_thinking_removed(self, record: ThinkingRemoved) -> None:
        from wieldy.agent.compaction import without_thinking

        self._replace(without_thinking(self.settle()))

    def _on_side_request(self, record: SideRequestMade) -> None:
        self.cost += record.cost or 0.0

    def _close_open_message(self) -> None:
        if self.blocks:
            if any(block["type"] == "tool_use" for block in self.blocks.values()):
                self._close_message(complete=False)
            else:
                self.blocks.clear()
        self._close_results()

    def _close_message(self, *, complete: bool) -> None:
        blocks, self.blocks = self.blocks, {}
        content = tuple([block for _, block in sorted(blocks.items())])
        if not complete:
            content = _without_unanswered(content)
        if content:
            self._append(Message("assistant", content))
            self.ids.update([str(block.get("id")) for block in content if block["type"] == "tool_use"])

    def _close_results(self) -> None:
        """Make the results so far a user message, in the order of their calls."""
        if not self.results:
            return
        results, self.results = self.results, []
        if len(results) > 1:
            calls = self.messages[-1].calls() if self.messages else ()
            position = {block.get("id"): number for number, block in enumerate(calls)}
            results.sort(key=lambda block: position.get(block["tool_use_id"], len(position)))
        self._append(Message("user", tuple(results)))

    def _append(self, message: Message) -> None:
        if not self.messages or self.messages[-1].role != message.role:
            self.messages.append(message)
            return
        self._mark_last_unrepaired()
        self.messages[-1] = Message(message.role, (*self.messages[-1].content, *message.content))

    def _mark_last_unrepaired(self) -> None:
        """The last message is about to grow: it, and the calls it may answer, must be repaired again."""
        last = len(self.messages) - 1
        if last >= self.repaired:
            return
        if self.messages[last].role == "user" and last > 0:
            last -= 1
        self.repaired = last
        self.repaired_ids.difference_update(block["id"] for block in self.messages[last].calls())


_HANDLERS: Mapping[type[TranscriptRecord], Callable[[Conversation, Any], None]] = {
    SessionHeader: Conversation._on_header,
    UserMessage: Conversation._on_user_message,
    AssistantBlock: Conversation._on_block,
    AssistantMessageEnded: Conversation._on_message_ended,
    MessageDiscarded: Conversation._on_discarded,
    ToolResultRecord: Conversation._on_result,
    ToolsActivated: Conversation._on_activated,
    HistoryReplaced: Conversation._on_replaced,
    ResultsShortened: Conversation._on_shortened,
    MediaWithheld: Conversation._on_withheld,
    ModelChanged: Conversation._on_model_changed,
    ThinkingRemoved: Conversation._on_thinking_removed,
    SideRequestMade: Conversation._on_side_request,
}


def _without_unanswered(content: tuple[ContentBlock, ...]) -> tuple[ContentBlock, ...]:
    """The content of a message that broke off, without server tools whose result never came."""
    if not any(block["type"] == "server_tool_use" for block in content):
        return content
    answered = {block.get("tool_use_id") for block in content if block["type"].endswith("_tool_result")}
    return tuple(block for block in content if block["type"] != "server_tool_use" or block.get("id") in answered)


def _message(data: Any) -> Message | None:
    if not isinstance(data, Mapping) or data.get("role") not in ("user", "assistant"):
        return None
    return Message(data["role"], _blocks(data.get("content")))


def _blocks(content: Any) -> tuple[ContentBlock, ...]:
    if isinstance(content, str):
        return ({"type": "text", "text": content},)
    blocks = content if isinstance(content, list) else []
    return tuple([block for block in blocks if isinstance(block, Mapping) and isinstance(block.get("type"), str)])
