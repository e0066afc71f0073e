"""The conversation that the records of a transcript make: the messages of the next request, and what waits for an answer."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from wieldy.agent.records import (
    RECORDS,
    AssistantBlock,
    AssistantMessageEnded,
    CallStarted,
    CallsWaiting,
    FilesSeen,
    HistoryReplaced,
    MediaWithheld,
    MessageDiscarded,
    ModelChanged,
    QuestionDeferred,
    QuestionSettled,
    ResultsShortened,
    SeenFile,
    SentPrompt,
    SessionHeader,
    SideRequestMade,
    SubagentEnded,
    SubagentStarted,
    TaskDelegated,
    ThinkingRemoved,
    ToolResultRecord,
    ToolsActivated,
    TranscriptRecord,
    UserMessage,
)
from wieldy.agent.repair import repair
from wieldy.core.call import ToolCall
from wieldy.core.messages import ContentBlock, Message


def fold(records: Iterable[TranscriptRecord], *, keep_lost: bool = False) -> Conversation:
    """Build the conversation that some records describe, repaired so that an API accepts it.

    With `keep_lost`, calls whose result was lost keep none for now: see `Conversation.lost`.
    """
    conversation = Conversation()
    gc_was_enabled = gc.isenabled()
    gc.disable()  # nearly all objects made here stay; collections would take as long as the fold itself
    try:
        for record in records:
            conversation.apply(record)
        conversation.recover_agents()
        conversation.find_lost()
        if not conversation.waiting and not (keep_lost and conversation.lost):
            conversation.settle()
    finally:
        if gc_was_enabled:
            gc.enable()
    return conversation


NOT_RUN = "Not run: the process ended before this call had done anything. Make it again if it is still needed."
UNKNOWN = (
    "Unknown: the process ended while this call ran. It may have happened, in whole or in part, or not at all. "
    "Find out before you make it again."
)
UNKNOWN_FOR_PERSON = "unknown: wieldy ended while this call ran; it may or may not have happened, and is not repeated"


def lost_text(started: CallStarted | None) -> str:
    """What the model reads as the result of a call whose result was lost."""
    return NOT_RUN if started is None else UNKNOWN


class CallError(NamedTuple):
    """What a person reads of a call that failed; `refused` names the stage that refused it."""

    person: str
    refused: str | None


class Conversation:
    """The messages of the next request. Blocks wait here until their message has ended, results until all calls have one.

    The first `repaired` messages are repaired; `repaired_ids` are the ids of their calls. `tokens` is the size of the last
    request and its answer as the provider counted it, `usage` all tokens by kind. `ids` are all call ids that were ever used.
    `prompts` are those of the person, also where their messages have been compacted. `waiting` are the ids of calls that have
    not run because questions are answered later, `pending` those questions, of subagents too. `agents` are the subagents that
    have not ended, by the call that started them; `waiting_agents` are the calls of those that wait for answers, `delegated`
    the calls that the program made itself. `errors` is what a person reads of calls that failed, by call id. `seen` are the
    files that the model knows; a compaction does not change them, as it changes no file. `started` are the calls without a
    result that had begun to do what must not be done twice; `lost` are the calls whose result a dead process left unrecorded.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.blocks: dict[int, ContentBlock] = {}
        self.results: list[ContentBlock] = []
        self.activated: dict[str, None] = {}
        self.ids: set[str] = set()
        self.cost = 0.0
        self.unpriced: Counter[str] = Counter()
        self.turns = 0
        self.tokens = 0
        self.usage: dict[str, int] = {}
        self.header: SessionHeader | None = None
        self.prompts: list[SentPrompt] = []
        self.repaired = 0
        self.repaired_ids: set[str] = set()
        self.pending: dict[str, QuestionDeferred] = {}
        self.waiting: list[str] = []
        self.agents: dict[str, SubagentStarted] = {}
        self.waiting_agents: set[str] = set()
        self.continued_agents: set[str] = set()
        self.delegated: set[str] = set()
        self.errors: dict[str, CallError] = {}
        self.seen: dict[str, SeenFile] = {}
        self.started: dict[str, CallStarted] = {}
        self.lost: dict[str, ToolCall] = {}

    def apply(self, record: TranscriptRecord) -> None:
        """Fold one record in, by the method `_fold_…` that is named after its `type`. Other records are skipped."""
        if (handler := _HANDLERS.get(type(record))) is not None:
            handler(self, record)

    def settle(self) -> list[Message]:
        """Return the messages as an API accepts them, with nothing left waiting; each is repaired once.

        A message that never ended counts only if it calls a tool, which may have run.
        """
        self._close_open_message()
        if self.repaired < len(self.messages):
            lost = {id: lost_text(self.started.get(id)) for id in self.lost}
            tail = repair(self.messages[self.repaired :], self.repaired_ids, whole=self.repaired == 0, missing=lost)
            self.messages[self.repaired :] = tail
            self.repaired = len(self.messages)
        return self.messages

    def copy(self) -> Conversation:
        """A copy that can be settled without changing this one."""
        other = Conversation()
        other.messages, other.blocks, other.results = list(self.messages), dict(self.blocks), list(self.results)
        other.repaired, other.repaired_ids = self.repaired, set(self.repaired_ids)
        other.started, other.lost = self.started, self.lost
        return other

    def as_records(self) -> list[TranscriptRecord]:
        """The records that a copy of this conversation begins with: its messages, and its calls that wait for answers."""
        messages = [message.as_dict() for message in (self.messages if self.waiting else self.settle())]
        records: list[TranscriptRecord] = [HistoryReplaced(messages, "fork", ids=sorted(self.ids), prompts=[])]
        if self.seen:
            records.append(FilesSeen(list(self.seen.values())))
        records += [ToolResultRecord(dict(block)) for block in self.results if self.waiting]
        records += map(TaskDelegated, sorted(self.delegated))
        for agent in self.agents.values():
            records.append(agent)
            if agent.call in self.waiting_agents:
                records.append(SubagentEnded(agent.id, agent.call, "waiting"))
        records += self.open_questions()
        if self.waiting:
            records.append(CallsWaiting(list(self.waiting)))
        return records

    def _replace(self, messages: Iterable[Message]) -> None:
        """Continue from other messages, which are still to be repaired."""
        self._close_open_message()
        self.messages = list(messages)
        self.repaired, self.repaired_ids = 0, set()

    def _fold_session(self, record: SessionHeader) -> None:
        self.header = record

    def _fold_question(self, record: QuestionDeferred) -> None:
        self.pending[record.id] = record
        self.ids.add(record.id)

    def _fold_settled(self, record: QuestionSettled) -> None:
        self.pending.pop(record.id, None)

    def _fold_waiting(self, record: CallsWaiting) -> None:
        self.waiting = list(record.ids)

    def _forget_waiting(self) -> None:
        """Forget the calls that wait, with their questions. Subagents that no call waits for keep theirs, also those at work."""
        for call in self.waiting:
            self._forget_agent(call)
        self.pending = {id: question for id, question in self.pending.items() if question.call in self.agents}
        self.waiting = []

    def _forget_agent(self, call: str) -> None:
        self.agents.pop(call, None)
        for calls in (self.waiting_agents, self.continued_agents, self.delegated):
            calls.discard(call)
        for id in [id for id, question in self.pending.items() if question.call == call]:
            del self.pending[id]

    def _fold_agent(self, record: SubagentStarted) -> None:
        if record.call in self.agents:
            self.continued_agents.add(record.call)
        self.agents[record.call] = record
        self.waiting_agents.discard(record.call)

    def _fold_delegated(self, record: TaskDelegated) -> None:
        self.delegated.add(record.call)

    def recover_agents(self) -> None:
        """Have subagents wait that were at work when the process ended, after or before the answer to a question."""
        self.waiting_agents.update(question.call for question in self.pending.values() if question.call in self.agents)
        self.waiting_agents.update(self.continued_agents)

    def open_questions(self) -> list[QuestionDeferred]:
        """The questions that calls or subagents are waiting for."""
        waiting = self.waiting_agents.union(self.waiting)
        return [question for question in self.pending.values() if (question.call or question.id) in waiting]

    def answered_agents(self) -> set[str]:
        """The calls of subagents that have all answers and were stopped by the end of a process; not those that a call awaits."""
        asking = {question.call for question in self.pending.values()}
        return self.waiting_agents.difference(self.waiting, asking)

    @property
    def awaits_model(self) -> bool:
        """Whether the last word are results that the model has not heard of."""
        last = self.messages[-1] if self.messages else None
        return bool(self.results) or (
            last is not None and all(block["type"] == "tool_result" for block in last.content)
        )

    def background_agents(self) -> set[str]:
        """The calls of subagents that wait for answers, and whose reports the model gets."""
        return self.waiting_agents.difference(self.waiting, self.delegated)

    def find_lost(self) -> None:
        """Find the calls of the last answer that have no result, in the transcript of a process that has ended.

        Transcripts of the first version do not tell which calls had started: nothing is known of those.
        """
        if self.header is None or self.header.v < 2:
            return
        if not self.waiting:
            self._close_open_message()
        last = [message for message in self.messages[-2:] if message.role == "assistant"][-1:]
        blocks = [*self.results, *(self.messages[-1].content if self.messages else ())]
        done = {block.get("tool_use_id") for block in blocks}.union(self.waiting)
        calls = [block for message in last for block in message.calls() if block["id"] not in done]
        self.lost = {block["id"]: ToolCall(block["id"], block["name"], block["input"]) for block in calls}
        for id in self.lost:
            if id in self.started:
                self.errors[id] = CallError(UNKNOWN_FOR_PERSON, None)

    def waiting_calls(self) -> list[ToolCall]:
        """The calls that have not run because they, or calls before them, wait for an answer."""
        blocks = self.messages[-1].calls() if self.messages else ()
        return [ToolCall(block["id"], block["name"], block["input"]) for block in blocks if block["id"] in self.waiting]

    def _fold_user(self, record: UserMessage) -> None:
        self._forget_waiting()
        self._close_open_message()
        content = _blocks(record.content)
        if record.at is not None:
            text = next((block["text"] for block in content if isinstance(block.get("text"), str)), "")
            self.prompts.append(SentPrompt(text, record.at))
        self._append(Message("user", content))

    def _fold_block(self, record: AssistantBlock) -> None:
        if isinstance(record.block.get("type"), str):
            if not self.blocks:
                self._close_results()
            self.blocks[len(self.blocks) if record.index is None else record.index] = record.block

    def _fold_answered(self, record: AssistantMessageEnded) -> None:
        self._close_message(complete=record.stop_reason not in ("broken", "interrupted"))
        self.turns += 1
        self._add_cost(record)
        self.tokens = sum(record.usage.values()) or self.tokens
        self._count(record.usage)

    def _fold_agent_ended(self, record: SubagentEnded) -> None:
        self._count(record.usage)
        if record.why == "waiting":
            self.waiting_agents.add(record.call)
            self.continued_agents.discard(record.call)
        else:
            self._forget_agent(record.call)

    def _count(self, usage: Mapping[str, int]) -> None:
        for name, number in usage.items():
            self.usage[name] = self.usage.get(name, 0) + number

    def _fold_dropped(self, record: MessageDiscarded) -> None:
        self.blocks.clear()

    def _fold_started(self, record: CallStarted) -> None:
        self.started[record.id] = record
        if record.id in self.waiting and record.id not in self.agents:  # a subagent continues from its own transcript
            self.waiting.remove(record.id)
            self.pending.pop(record.id, None)

    def _fold_result(self, record: ToolResultRecord) -> None:
        if isinstance(record.block.get("type"), str) and isinstance(record.block.get("tool_use_id"), str):
            self.results.append(record.block)
            id = record.block["tool_use_id"]
            self.started.pop(id, None)
            self.lost.pop(id, None)
            self.errors.pop(id, None)
            if record.person:
                self.errors[id] = CallError(record.person, record.refused)
            if self.waiting:
                self.pending.pop(id, None)
                self.waiting = [each for each in self.waiting if each != id]
            if id in self.agents and not self.agents[id].background:
                self._forget_agent(id)

    def _fold_seen(self, record: FilesSeen) -> None:
        for file in record.files:
            if file.forgotten:
                self.seen.pop(file.path, None)
            else:
                self.seen[file.path] = file

    def _fold_activated(self, record: ToolsActivated) -> None:
        self.activated.update(dict.fromkeys(record.tools))

    def _fold_compacted(self, record: HistoryReplaced) -> None:
        self._forget_waiting()
        self._replace([message for data in record.messages if (message := _message(data)) is not None])
        self.ids.update([str(block.get("id")) for message in self.messages for block in message.calls()])
        if isinstance(record.ids, list):
            self.ids.update(id for id in record.ids if isinstance(id, str))
        if record.prompts is not None:
            self.prompts = list(record.prompts)
        self._add_cost(record)
        self.tokens = 0

    def _fold_shortened(self, record: ResultsShortened) -> None:
        from wieldy.agent.compaction import with_results

        self._replace(with_results(self.settle(), record.results))
        self.tokens = 0

    def _fold_withheld(self, record: MediaWithheld) -> None:
        from wieldy.agent.compaction import without_media

        self._replace(without_media(self.settle(), frozenset(record.digests), record.why))

    def _fold_model(self, record: ModelChanged) -> None:
        from wieldy.agent.compaction import without_thinking

        if self.header is not None:
            self.header = replace(
                self.header, model=record.model, configured=record.configured, base_url=record.base_url
            )
        if self.waiting:  # calls are still to run: nothing may be settled
            self.messages = list(without_thinking(self.messages))
            self.repaired, self.repaired_ids = 0, set()
        else:
            self._replace(without_thinking(self.settle()))

    def _fold_forgot(self, record: ThinkingRemoved) -> None:
        from wieldy.agent.compaction import without_thinking

        self._replace(without_thinking(self.settle()))

    def _add_cost(self, record: AssistantMessageEnded | HistoryReplaced | SideRequestMade) -> None:
        self.cost += record.cost or 0.0
        if record.unpriced:
            self.unpriced[record.unpriced] += 1

    def _fold_aside(self, record: SideRequestMade) -> None:
        self._add_cost(record)

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
    kind: handler
    for tag, kind in RECORDS.items()
    if (handler := getattr(Conversation, f"_fold_{tag}", None)) is not None
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
