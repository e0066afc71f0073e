"""Events: everything a user interface, a log or a transcript can observe. They inform and never change what happens."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct, field

from wieldy.core.decision import Answer, Decision
from wieldy.core.outcome import ToolResult


class Event(Struct, frozen=True, kw_only=True):
    """The base of all events; `at` is in seconds since the epoch."""

    kind: ClassVar[str] = "event"
    at: float = field(default_factory=time.time)


class CallEvent(Event, frozen=True, kw_only=True):
    """The base of events about one call."""

    call_id: str
    name: str


class ToolRequested(CallEvent, frozen=True, kw_only=True):
    """A call arrived."""

    kind: ClassVar[str] = "tool.requested"


class ToolStarted(CallEvent, frozen=True, kw_only=True):
    """The tool begins to run with this input."""

    kind: ClassVar[str] = "tool.started"
    input: Mapping[str, Any]


class ToolProgress(CallEvent, frozen=True, kw_only=True):
    """For people only, never sent to the model."""

    kind: ClassVar[str] = "tool.progress"
    text: str
    data: Any = None


class ToolEnded(CallEvent, frozen=True, kw_only=True):
    """A call has its result. `input` is what was called, as far as it could be read."""

    result: ToolResult
    seconds: float
    input: Mapping[str, Any] | None = None


class ToolSucceeded(ToolEnded, frozen=True, kw_only=True):
    """The tool returned a result."""

    kind: ClassVar[str] = "tool.succeeded"


class ToolFailed(ToolEnded, frozen=True, kw_only=True):
    """The call was refused, or the tool failed."""

    kind: ClassVar[str] = "tool.failed"


class ToolCancelled(ToolEnded, frozen=True, kw_only=True):
    """The user interrupted the call."""

    kind: ClassVar[str] = "tool.cancelled"


class PermissionAsked(CallEvent, frozen=True, kw_only=True):
    """A person is being asked."""

    kind: ClassVar[str] = "permission.asked"
    decision: Decision


class PermissionDecided(CallEvent, frozen=True, kw_only=True):
    """The call was allowed or denied, by rule or by answer."""

    kind: ClassVar[str] = "permission.decided"
    decision: Decision
    answer: Answer | None = None


class HookStarted(Event, frozen=True, kw_only=True):
    """A hook starts."""

    kind: ClassVar[str] = "hook.started"
    hook_event: str
    hook: str


class HookEnded(Event, frozen=True, kw_only=True):
    """A hook ended; `outcome` is one word."""

    kind: ClassVar[str] = "hook.ended"
    hook_event: str
    hook: str
    outcome: str
    detail: str = ""


class EventsDropped(Event, frozen=True, kw_only=True):
    """A subscriber was too slow: this many events were not delivered to it."""

    kind: ClassVar[str] = "events.dropped"
    count: int


class Notice(Event, frozen=True, kw_only=True):
    """A message for people that belongs to no call, such as the end of a background shell."""

    kind: ClassVar[str] = "notice"
    text: str
    data: Any = None


class AgentEvent(Event, frozen=True, kw_only=True):
    """An event inside a subagent; `call_id` is the Agent call that started it."""

    kind: ClassVar[str] = "agent.event"
    call_id: str
    agent_id: str
    agent_type: str
    event: Event


class ModelRequested(Event, frozen=True, kw_only=True):
    """A request goes out to the model."""

    kind: ClassVar[str] = "model.requested"
    model: str
    turn: int


class ModelTextDelta(Event, frozen=True, kw_only=True):
    """The model streamed a piece of text or thinking."""

    kind: ClassVar[str] = "model.said"
    text: str
    thinking: bool = False
    index: int = 0


class ToolInputDelta(Event, frozen=True, kw_only=True):
    """The model streamed a piece of the JSON of a tool call."""

    kind: ClassVar[str] = "model.calls"
    call_id: str
    name: str
    piece: str = ""
    index: int = 0


class ModelBlockDelta(Event, frozen=True, kw_only=True):
    """A block begins (`start`), grows by something that is not shown (`delta`), or has ended."""

    kind: ClassVar[str] = "model.block"
    index: int
    start: Mapping[str, Any] | None = None
    delta: Mapping[str, Any] | None = None


class ModelAnswered(Event, frozen=True, kw_only=True):
    """The model's message is complete; `content` has the format of the API."""

    kind: ClassVar[str] = "model.answered"
    content: tuple[Mapping[str, Any], ...]
    stop_reason: str
    usage: Any
    seconds: float
    cost: float | None = None


class Retried(Event, frozen=True, kw_only=True):
    """A request failed and will be retried after `seconds`."""

    kind: ClassVar[str] = "retry"
    attempt: int
    most: int
    seconds: float
    why: str
    status: int | None = None


class Compacted(Event, frozen=True, kw_only=True):
    """The conversation was compacted."""

    kind: ClassVar[str] = "compact"
    trigger: str
    tokens_before: int
    tokens_after: int


class Steered(Event, frozen=True, kw_only=True):
    """What the person said while the run went on is now part of the conversation."""

    kind: ClassVar[str] = "run.steered"
    text: str


class RunEnded(Event, frozen=True, kw_only=True):
    """A run is over; `why` is one word, `text` the model's last text, `failure` the kind of a provider's failure.

    `unsent` is what the person said too late for the model to hear, `data` the answer as JSON where a type was asked for.
    """

    kind: ClassVar[str] = "run.ended"
    why: str
    text: str
    turns: int
    cost: float
    seconds: float
    is_error: bool = False
    detail: str = ""
    failure: str = ""
    unsent: tuple[str, ...] = ()
    data: Any = None
