"""The records of a transcript, one JSON object a line, told apart by `type`.

Writing, folding, resuming, compaction, export and replay use these types. A reader skips records of a type it does not know
and ignores fields it does not know, so that an older version can read what a newer one wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, TypeAlias, Union

import msgspec
from msgspec import Struct

from wieldy.engine.results import clean

VERSION = 2  # since 2, the start of each call that must not be made twice is recorded

Block: TypeAlias = dict[str, Any]


class TranscriptRecord(Struct, frozen=True, tag_field="type", omit_defaults=True):
    """Anything that is appended to a transcript."""


class SessionHeader(TranscriptRecord, frozen=True, tag="session"):
    """Begins a transcript. `fork` counts the forks since the first session.

    `configured` is the model as it was named, with its provider, and `base_url` its address: a resumed session uses them.
    `agent`, `parent` and `parent_call` are set in that of a subagent, and `tools` if its task narrowed them.
    """

    v: int
    id: str
    root: str = ""
    model: str = ""
    at: float | None = None
    fork_of: str | None = None
    fork: int = 0
    agent: str | None = None
    parent: str | None = None
    parent_call: str | None = None
    configured: str = ""
    base_url: str = ""
    tools: list[str] | None = None


class UserMessage(TranscriptRecord, frozen=True, tag="user"):
    """A prompt, with what hooks added to it, or another message that is not a tool result. `at` is set for a prompt."""

    content: list[Any]
    at: float | None = None


class AssistantBlock(TranscriptRecord, frozen=True, tag="block"):
    """A block of the model's message that has closed."""

    block: Block
    index: int | None = None


class AssistantMessageEnded(TranscriptRecord, frozen=True, tag="answered"):
    """The model's message is over; the blocks since the last one belong to it."""

    stop_reason: str | None = None
    usage: dict[str, int] = {}
    cost: float | None = None
    at: float | None = None
    unpriced: str = ""


class MessageDiscarded(TranscriptRecord, frozen=True, tag="dropped"):
    """The blocks of the message so far do not count: it is requested again, or said nothing."""


class ToolResultRecord(TranscriptRecord, frozen=True, tag="result"):
    """The result of a call; `refused` names the stage that refused to run it, `person` is what a person reads of an error."""

    block: Block
    refused: str | None = None
    person: str = ""


class CallStarted(TranscriptRecord, frozen=True, tag="started"):
    """A call that must not be made twice is about to start. `replay` says what becomes of it if it has no result."""

    id: str
    replay: str = "never"


class SeenFile(Struct, frozen=True, omit_defaults=True):
    """A file as the model knows it: its content by digest, the lines shown; `forgotten` if it is no longer known."""

    path: str
    forgotten: bool = False
    stamp: tuple[int, int, int, int] = (0, 0, 0, 0)
    seen_at: int = 0
    size: int = 0
    digest: bytes | None = None
    lines: list[tuple[int, int]] = []
    whole: bool = False
    written_by_us: bool = False
    encoding: dict[str, Any] | None = None
    told: tuple[int, int, int, int] | None = None


class FilesSeen(TranscriptRecord, frozen=True, tag="seen"):
    """What the model knows of files since the last such record."""

    files: list[SeenFile]


class ToolsActivated(TranscriptRecord, frozen=True, tag="activated"):
    """Deferred tools that the model has loaded."""

    tools: list[str]


class SentPrompt(Struct, frozen=True):
    """A prompt of the person, and when it was sent."""

    text: str
    at: float


class HistoryReplaced(TranscriptRecord, frozen=True, tag="compacted"):
    """The conversation continues from these messages: a summary, the copy that a fork begins with, or after a rewind.

    `prompts` are those that a rewind leaves.
    """

    messages: list[Any]
    trigger: str = ""
    cost: float | None = None
    ids: Any = None
    prompts: list[SentPrompt] | None = None
    unpriced: str = ""


class ResultsShortened(TranscriptRecord, frozen=True, tag="shortened"):
    """Old tool results, by call id, and the text that replaces each."""

    results: dict[str, Any]
    trigger: str = ""


class MediaWithheld(TranscriptRecord, frozen=True, tag="withheld"):
    """Images and documents, by digest, that the provider did not accept."""

    digests: list[str]
    why: str = ""


class ThinkingRemoved(TranscriptRecord, frozen=True, tag="forgot"):
    """All thinking blocks are removed, because the provider did not accept one."""

    why: str = ""


class ModelChanged(TranscriptRecord, frozen=True, tag="model"):
    """The session continues with another model; `configured` and `base_url` as in the header."""

    model: str
    configured: str = ""
    base_url: str = ""


class SideRequestMade(TranscriptRecord, frozen=True, tag="aside"):
    """A request beside the conversation, or one of a subagent, whose cost counts."""

    cost: float | None = None
    model: str | None = None
    agent: str | None = None
    unpriced: str = ""


class ApprovalRequested(TranscriptRecord, frozen=True, tag="asked"):
    """The user was asked whether to permit a call."""

    id: str


class QuestionDeferred(TranscriptRecord, frozen=True, tag="question"):
    """A question that is answered later: about the permission of a call (`decision`), or one that a call asks (`questions`).

    `id` is that of the call, `name` its tool. Where a subagent made the call, `agent` names it, and `call` is the call in this
    conversation that waits for the subagent. `cwd` is the folder that the call was judged for.
    """

    id: str
    name: str = ""
    input: dict[str, Any] = {}
    decision: dict[str, Any] | None = None
    questions: list[dict[str, Any]] | None = None
    agent: str = ""
    call: str = ""
    cwd: str = ""

    @property
    def kind(self) -> Literal["permission", "user"]:
        """Whether permission is asked for, or something about the task."""
        return "permission" if self.questions is None else "user"

    def as_dict(self) -> dict[str, Any]:
        """The question as JSON, for the one who answers it."""
        data = {"id": self.id, "kind": self.kind, "name": self.name}
        if self.questions is not None:
            return {**data, "questions": self.questions}
        agent = {"agent": self.agent} if self.agent else {}
        return {**data, "input": self.input, "decision": self.decision, **agent}


class CallsWaiting(TranscriptRecord, frozen=True, tag="waiting"):
    """The run has ended; these calls run when their questions, or those of the calls before them, are answered."""

    ids: list[str]


class QuestionSettled(TranscriptRecord, frozen=True, tag="settled"):
    """The call of a subagent that a question was about has started or has a result."""

    id: str


class TaskDelegated(TranscriptRecord, frozen=True, tag="delegated"):
    """The program itself, not the model, made this call of a subagent."""

    call: str


class SubagentStarted(TranscriptRecord, frozen=True, tag="agent"):
    """A subagent was started by a call, or continues after its questions were answered."""

    id: str
    agent: str = ""
    call: str = ""
    transcript: str | None = None
    background: bool = False
    description: str = ""


class SubagentEnded(TranscriptRecord, frozen=True, tag="agent_ended"):
    """A subagent has ended. Its cost is already in the `aside` records."""

    id: str
    call: str = ""
    why: str = ""
    turns: int = 0
    usage: dict[str, int] = {}
    cost_of_agent: float = 0.0


RECORDS: Mapping[str, type[TranscriptRecord]] = {
    str(kind.__struct_config__.tag): kind for kind in TranscriptRecord.__subclasses__()
}
AnyRecord: Any = Union[tuple(RECORDS.values())]  # noqa: UP007


@cache
def _decoder() -> msgspec.json.Decoder[AnyRecord]:
    return msgspec.json.Decoder(AnyRecord)


def decode_record(line: bytes) -> TranscriptRecord | None:
    """Decode a line of a transcript; None for a torn line or a record of unknown type."""
    try:
        record: TranscriptRecord = _decoder().decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return record


def convert_record(data: Any) -> TranscriptRecord | None:
    """Convert decoded JSON to a record; None for one of unknown type."""
    try:
        record: TranscriptRecord = msgspec.convert(data, AnyRecord)
    except msgspec.ValidationError:
        return None
    return record


def clean_texts(value: Any) -> Any:
    """A JSON value whose strings can all be encoded and sent."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean_texts(key): clean_texts(item) for key, item in value.items()}
    return [clean_texts(item) for item in value] if isinstance(value, list | tuple) else value
