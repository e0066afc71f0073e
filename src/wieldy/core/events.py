"""Everything a screen, a log or a transcript can observe, one frozen class a step. Events inform; they never steer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, ClassVar

from wieldy.core.decision import Answer, Decision
from wieldy.core.outcome import ToolResult
from wieldy.core.record import field, keyword_record


@keyword_record
class Event:
    """Something that happened, and when (seconds since the epoch)."""

    kind: ClassVar[str] = "event"
    at: float = field(default_factory=time.time)


@keyword_record
class CallEvent(Event):
    """Something that happened to one call."""

    call_id: str
    name: str


@keyword_record
class ToolRequested(CallEvent):
    """A call arrived."""

    kind: ClassVar[str] = "tool.requested"


@keyword_record
class ToolStarted(CallEvent):
    """The tool begins to run with this input."""

    kind: ClassVar[str] = "tool.started"
    input: Mapping[str, Any]


@keyword_record
class ToolProgress(CallEvent):
    """For people only, never sent to the model."""

    kind: ClassVar[str] = "tool.progress"
    text: str
    data: Any = None


@keyword_record
class ToolEnded(CallEvent):
    """A call has its result."""

    result: ToolResult
    seconds: float


@keyword_record
class ToolSucceeded(ToolEnded):
    """The tool gave a result."""

    kind: ClassVar[str] = "tool.succeeded"


@keyword_record
class ToolFailed(ToolEnded):
    """The call was refused, or the tool failed."""

    kind: ClassVar[str] = "tool.failed"


@keyword_record
class ToolCancelled(ToolEnded):
    """The call was interrupted."""

    kind: ClassVar[str] = "tool.cancelled"


@keyword_record
class PermissionAsked(CallEvent):
    """A person is being asked."""

    kind: ClassVar[str] = "permission.asked"
    decision: Decision


@keyword_record
class PermissionDecided(CallEvent):
    """The call was allowed or denied, by rule or by answer."""

    kind: ClassVar[str] = "permission.decided"
    decision: Decision
    answer: Answer | None = None


@keyword_record
class HookStarted(Event):
    """A hook begins."""

    kind: ClassVar[str] = "hook.started"
    moment: str
    hook: str


@keyword_record
class HookEnded(Event):
    """A hook ended: `outcome` says how, in a word."""

    kind: ClassVar[str] = "hook.ended"
    moment: str
    hook: str
    outcome: str
    detail: str = ""


@keyword_record
class EventsDropped(Event):
    """A subscriber was too slow: this many events were not delivered to it."""

    kind: ClassVar[str] = "events.dropped"
    count: int


@keyword_record
class Notice(Event):
    """Something a person should know that belongs to no call, such as the end of a background shell."""

    kind: ClassVar[str] = "notice"
    text: str
    data: Any = None


@keyword_record
class AgentEvent(Event):
    """Something that happened inside a sub-agent: `call_id` is the call that it works for."""

    kind: ClassVar[str] = "agent.event"
    call_id: str
    agent_id: str
    agent_type: str
    event: Event


@keyword_record
class ModelRequested(Event):
    """A request goes out to the model."""

    kind: ClassVar[str] = "model.requested"
    model: str
    turn: int


@keyword_record
class ModelSaid(Event):
    """The model said a piece of text, or thought it."""

    kind: ClassVar[str] = "model.said"
    text: str
    thinking: bool = False
    index: int = 0


@keyword_record
class ModelCalls(Event):
    """The model is writing a tool call; `piece` is the next piece of its JSON."""

    kind: ClassVar[str] = "model.calls"
    call_id: str
    name: str
    piece: str = ""
    index: int = 0


@keyword_record
class ModelBlock(Event):
    """A block of the model's message begins as `start`, grows by something nobody is shown (`grew`), or has ended."""

    kind: ClassVar[str] = "model.block"
    index: int
    start: Mapping[str, Any] | None = None
    grew: Mapping[str, Any] | None = None


@keyword_record
class ModelAnswered(Event):
    """A message of the model's is complete, in the API's own form."""

    kind: ClassVar[str] = "model.answered"
    content: tuple[Mapping[str, Any], ...]
    stop_reason: str
    usage: Any
    seconds: float
    cost: float | None = None


@keyword_record
class Retried(Event):
    """The model could not be heard and is asked again."""

    kind: ClassVar[str] = "retry"
    attempt: int
    most: int
    seconds: float
    why: str
    status: int | None = None


@keyword_record
class Compacted(Event):
    """The conversation was shortened."""

    kind: ClassVar[str] = "compact"
    trigger: str
    tokens_before: int
    tokens_after: int


@keyword_record
class RunEnded(Event):
    """A run is over: `why` is a word, `text` the model's last words."""

    kind: ClassVar[str] = "run.ended"
    why: str
    text: str
    turns: int
    cost: float
    seconds: float
    is_error: bool = False
    detail: str = ""
