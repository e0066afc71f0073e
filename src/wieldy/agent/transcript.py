"""The transcript of a session: an append-only log of records, one JSON object a line, and the conversation they make.

A record is written before `append` returns, so that a killed process loses nothing that it did. It is brought to disk in the
background; `flush` waits for that, before something lasting is done and before the model is told of it.
"""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from wieldy.agent.background_fsync import BackgroundFsync
from wieldy.agent.payloads import PAYLOAD_CHARS, PayloadStore, may_hold_reference
from wieldy.agent.records import (
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
    convert_record,
    decode_record,
)
from wieldy.agent.repair import repair
from wieldy.core.call import ToolCall
from wieldy.core.errors import SessionError
from wieldy.core.messages import ContentBlock, Message
from wieldy.core.state_dirs import make_private_folder
from wieldy.core.threads import in_thread
from wieldy.engine.results import clean

NAME = "transcript.jsonl"
SUBAGENT_FOLDER = "agents"
OWNER_NAME = "owner"


OnAppend: TypeAlias = Callable[[TranscriptRecord], None]


class TranscriptLocked(SessionError):
    """Another process has the session open."""


class Transcript:
    """Writes records to a log and folds them into `conversation`.

    The log and its folder are made with the first record, and one process at a time can open it. Without a folder,
    nothing is written. `on_append` hears of each record when it is written, before it changes the conversation.
    """

    def __init__(
        self, folder: Path | None, conversation: Conversation | None = None, *, on_append: OnAppend | None = None
    ) -> None:
        self._on_append = on_append
        self.conversation = Conversation() if conversation is None else conversation
        self.path = None if folder is None else folder / NAME
        self._payloads = None if folder is None else PayloadStore(folder)
        self._file = -1
        self._fsyncs: BackgroundFsync | None = None
        self._last_result = 0
        self._is_torn = False  # whether a write failed, and may have left half a line
        self._has_failed = False

    def append(self, record: TranscriptRecord) -> None:
        """Write a record. Raises `SessionError` when that fails: a run that cannot be resumed must not go on."""
        if self._payloads is not None:
            self._write(record, self._payloads)
        if self._on_append is not None:
            self._on_append(record)
        self.conversation.apply(record)

    def for_subagent(self, agent_id: str, folder: Path, conversation: Conversation, on_append: OnAppend) -> Transcript:
        """The transcript of a subagent, kept where this one is."""
        return Transcript(None if self.path is None else folder, conversation, on_append=on_append)

    async def read_subagent(self, agent_id: str, folder: Path) -> Conversation | None:
        """The conversation of an earlier subagent; None where there is none. Raises `SessionError`."""
        if self.path is None:
            return None
        conversation = await in_thread(lambda: fold(records(folder), keep_lost=True))
        return None if conversation.header is None else conversation

    def _write(self, record: TranscriptRecord, payloads: PayloadStore) -> None:
        if self._fsyncs is None:
            self.open()
        assert self._fsyncs is not None
        try:
            line = encode_record(record) + b"\n"
            if len(line) > PAYLOAD_CHARS or may_hold_reference(line):
                line = encode_record(payloads.extract(msgspec.to_builtins(record))) + b"\n"
            _write_all(self._file, b"\n" + line if self._is_torn else line)
        except OSError as error:
            self._is_torn = True
            raise self._write_error(error) from None
        self._is_torn = False
        count = self._fsyncs.note_write()
        if isinstance(record, ToolResultRecord):
            self._last_result = count

    async def load(self, folder: Path) -> None:
        """Replace the conversation by that of the log in a folder."""
        if self.path == folder / NAME:
            self.open()  # before it is read, so that no other process can add to it meanwhile
        self.conversation = await in_thread(lambda: fold(records(folder), keep_lost=True))
        if self.conversation.agents and self.path is not None and self.path.parent != folder:
            # A fork: its subagents go on in copies of their own.
            copy = self.path.parent / SUBAGENT_FOLDER
            try:
                await in_thread(shutil.copytree, folder / SUBAGENT_FOLDER, copy, dirs_exist_ok=True)
            except FileNotFoundError:
                pass  # a subagent whose transcript is gone cannot go on, and says so when it is to
            except OSError as error:
                raise self._write_error(error) from None

    def open(self) -> None:
        """Open and lock the log. Raises `SessionError`."""
        if self._fsyncs is not None or self.path is None or self._payloads is None:
            return
        folder = self.path.parent
        try:
            make_private_folder(folder)
            file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _lock(file, folder)
                size = os.fstat(file).st_size
                if size and os.pread(file, 1, size - 1) != b"\n":
                    _write_all(file, b"\n")  # a torn last line must not swallow the next record
            except BaseException:
                os.close(file)
                raise
        except OSError as error:
            raise self._write_error(error) from None
        self._file, self._fsyncs = file, BackgroundFsync(file, folder, self._payloads.fsync)

    async def flush(self, *, results: bool = False) -> None:
        """Wait until all records are on disk, or the last tool result and those before it. Raises `SessionError`."""
        if self._fsyncs is not None:
            try:
                await self._fsyncs.wait(self._last_result if results else None)
            except OSError as error:
                raise self._write_error(error) from None

    async def aclose(self) -> None:
        """Flush and close. Raises `SessionError` where that fails and no error was raised before."""
        if self._fsyncs is None:
            return
        was_reported = self._has_failed
        try:
            await self.flush()
        except SessionError:
            if not was_reported:
                raise
        finally:
            self._fsyncs.close_file()
            self._file, self._fsyncs = -1, None

    def _write_error(self, error: OSError) -> SessionError:
        self._has_failed = True
        return SessionError(
            f"the transcript {self.path} cannot be written: {error.strerror or error}; this session cannot be resumed from "
            "here on. Set WIELDY_HOME to a folder that can be written, or use --no-session-persistence"
        )


def records(folder: Path) -> Iterator[TranscriptRecord]:
    """The records of a session in order. Torn lines and records of unknown type are skipped. Raises `SessionError`."""
    payloads = PayloadStore(folder)
    for line in _lines(folder):
        if may_hold_reference(line):
            record = next((convert_record(payloads.restore(data)) for data in _decode((line,))), None)
        else:
            record = decode_record(line)
        if record is not None:
            yield record


def raw_records(folder: Path) -> Iterator[dict[str, Any]]:
    """The records of a session as JSON objects, those of unknown type too. Raises `SessionError`."""
    payloads = PayloadStore(folder)
    for record in _decode(_lines(folder)):
        yield payloads.restore(record)


def _decode(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    decoder = msgspec.json.Decoder(dict[str, Any])
    for line in lines:
        try:
            yield decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue


def _lines(folder: Path) -> Iterator[bytes]:
    try:
        with (folder / NAME).open("rb") as file:
            yield from file
    except FileNotFoundError:
        return
    except OSError as error:
        raise SessionError(f"the transcript {folder / NAME} cannot be read: {error.strerror or error}") from None


def encode_record(record: Any) -> bytes:
    """Encode a record, or one as JSON, as a line without its end."""
    try:
        return msgspec.json.encode(record)
    except UnicodeEncodeError:
        return msgspec.json.encode(clean_texts(msgspec.to_builtins(record)))


def clean_texts(value: Any) -> Any:
    """A JSON value whose strings can all be encoded and sent."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean_texts(key): clean_texts(item) for key, item in value.items()}
    return [clean_texts(item) for item in value] if isinstance(value, list | tuple) else value


def _write_all(file: int, data: bytes) -> None:
    written = os.write(file, data)
    while written < len(data):
        data = data[written:]
        written = os.write(file, data)


def _lock(file: int, folder: Path) -> None:
    """Lock an open log until it is closed. Raises `TranscriptLocked`; does nothing where there are no such locks."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise TranscriptLocked(
            f"the session {folder.name} is open in {_lock_owner(folder)}; wait until that ends, "
            "or go on with a copy: --fork-session"
        ) from None
    except OSError:
        return
    try:
        (folder / OWNER_NAME).write_text(f"{os.getpid()}\n", encoding="utf-8")
    except OSError:
        return


def _lock_owner(folder: Path) -> str:
    try:
        pid = int((folder / OWNER_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "another process"
    return "this process" if pid == os.getpid() else f"another process (pid {pid})"


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
        """Fold one record in. Records that are of no concern here are skipped."""
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

    def _replace(self, messages: Iterable[Message]) -> None:
        """Go on from other messages, which are still to be repaired."""
        self._close_open_message()
        self.messages = list(messages)
        self.repaired, self.repaired_ids = 0, set()

    def _on_header(self, record: SessionHeader) -> None:
        self.header = record

    def _on_question(self, record: QuestionDeferred) -> None:
        self.pending[record.id] = record
        self.ids.add(record.id)

    def _on_settled(self, record: QuestionSettled) -> None:
        self.pending.pop(record.id, None)

    def _on_waiting(self, record: CallsWaiting) -> None:
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

    def _on_subagent_started(self, record: SubagentStarted) -> None:
        if record.call in self.agents:
            self.continued_agents.add(record.call)
        self.agents[record.call] = record
        self.waiting_agents.discard(record.call)

    def _on_delegated(self, record: TaskDelegated) -> None:
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
        """The calls of subagents that wait for answers, and that the model hears of when they report."""
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

    def _on_user_message(self, record: UserMessage) -> None:
        self._forget_waiting()
        self._close_open_message()
        content = _blocks(record.content)
        if record.at is not None:
            text = next((block["text"] for block in content if isinstance(block.get("text"), str)), "")
            self.prompts.append(SentPrompt(text, record.at))
        self._append(Message("user", content))

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
        self._count(record.usage)

    def _on_subagent_ended(self, record: SubagentEnded) -> None:
        self._count(record.usage)
        if record.why == "waiting":
            self.waiting_agents.add(record.call)
            self.continued_agents.discard(record.call)
        else:
            self._forget_agent(record.call)

    def _count(self, usage: Mapping[str, int]) -> None:
        for name, number in usage.items():
            self.usage[name] = self.usage.get(name, 0) + number

    def _on_discarded(self, record: MessageDiscarded) -> None:
        self.blocks.clear()

    def _on_started(self, record: CallStarted) -> None:
        self.started[record.id] = record
        if record.id in self.waiting and record.id not in self.agents:  # a subagent goes on from its own transcript
            self.waiting.remove(record.id)
            self.pending.pop(record.id, None)

    def _on_result(self, record: ToolResultRecord) -> None:
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

    def _on_seen(self, record: FilesSeen) -> None:
        for file in record.files:
            if file.forgotten:
                self.seen.pop(file.path, None)
            else:
                self.seen[file.path] = file

    def _on_activated(self, record: ToolsActivated) -> None:
        self.activated.update(dict.fromkeys(record.tools))

    def _on_replaced(self, record: HistoryReplaced) -> None:
        self._forget_waiting()
        self._replace([message for data in record.messages if (message := _message(data)) is not None])
        self.ids.update([str(block.get("id")) for message in self.messages for block in message.calls()])
        if isinstance(record.ids, list):
            self.ids.update(id for id in record.ids if isinstance(id, str))
        if record.prompts is not None:
            self.prompts = list(record.prompts)
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
            self.header = replace(
                self.header, model=record.model, configured=record.configured, base_url=record.base_url
            )
        if self.waiting:  # calls are still to run: nothing may be settled
            self.messages = list(without_thinking(self.messages))
            self.repaired, self.repaired_ids = 0, set()
        else:
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
    FilesSeen: Conversation._on_seen,
    CallStarted: Conversation._on_started,
    SubagentEnded: Conversation._on_subagent_ended,
    QuestionDeferred: Conversation._on_question,
    CallsWaiting: Conversation._on_waiting,
    QuestionSettled: Conversation._on_settled,
    TaskDelegated: Conversation._on_delegated,
    SubagentStarted: Conversation._on_subagent_started,
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
