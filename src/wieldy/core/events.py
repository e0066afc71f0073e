"""Events: everything a user interface, a log or a transcript can observe. They inform and never change what happens."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeAlias

from msgspec import Struct, field

from wieldy.core.decision import Answer, Decision
from wieldy.core.json_values import fields_to_json
from wieldy.core.outcome import ToolResult
from wieldy.core.provider import Usage


class Event(Struct, frozen=True, kw_only=True):
    """The base of all events; `at` is in seconds since the epoch."""

    kind: ClassVar[str] = "event"
    at: float = field(default_factory=time.time)

    def as_dict(self) -> dict[str, Any]:
        """The event as JSON: its `kind`, then its fields."""
        return {"kind": self.kind, **fields_to_json(self)}


class CallEvent(Event, frozen=True, kw_only=True):
    """The base of events about one call."""

    call_id: str
    name: str


class ToolRequested(CallEvent, frozen=True, kw_only=True):
    """A call arrived."""

    kind: ClassVar[Literal["tool.requested"]] = "tool.requested"


class ToolStarted(CallEvent, frozen=True, kw_only=True):
    """The tool begins to run with this input."""

    kind: ClassVar[Literal["tool.started"]] = "tool.started"
    input: Mapping[str, Any]


class ToolProgress(CallEvent, frozen=True, kw_only=True):
    """For people only, never sent to the model."""

    kind: ClassVar[Literal["tool.progress"]] = "tool.progress"
    text: str
    data: Any = None


class ToolEnded(CallEvent, frozen=True, kw_only=True):
    """A call has its result. `input` is what was called, as far as it could be read."""

    result: ToolResult
    seconds: float
    input: Mapping[str, Any] | None = None


class ToolSucceeded(ToolEnded, frozen=True, kw_only=True):
    """The tool returned a result."""

    kind: ClassVar[Literal["tool.succeeded"]] = "tool.succeeded"


class ToolFailed(ToolEnded, frozen=True, kw_only=True):
    """The call was refused, or the tool failed."""

    kind: ClassVar[Literal["tool.failed"]] = "tool.failed"


class ToolCancelled(ToolEnded, frozen=True, kw_only=True):
    """The user interrupted the call."""

    kind: ClassVar[Literal["tool.cancelled"]] = "tool.cancelled"


class PermissionAsked(CallEvent, frozen=True, kw_only=True):
    """A person is being asked."""

    kind: ClassVar[Literal["permission.asked"]] = "permission.asked"
    decision: Decision


class PermissionDecided(CallEvent, frozen=True, kw_only=True):
    """The call was allowed or denied, by rule or by answer."""

    kind: ClassVar[Literal["permission.decided"]] = "permission.decided"
    decision: Decision
    answer: Answer | None = None


class HookStarted(Event, frozen=True, kw_only=True):
    """A hook starts."""

    kind: ClassVar[Literal["hook.started"]] = "hook.started"
    hook_event: str
    hook: str


class HookEnded(Event, frozen=True, kw_only=True):
    """A hook ended; `outcome` is one word."""

    kind: ClassVar[Literal["hook.ended"]] = "hook.ended"
    hook_event: str
    hook: str
    outcome: str
    detail: str = ""


class EventsDropped(Event, frozen=True, kw_only=True):
    """A subscriber was too slow: this many events were not delivered to it."""

    kind: ClassVar[Literal["events.dropped"]] = "events.dropped"
    count: int


class Notice(Event, frozen=True, kw_only=True):
    """A message for people that belongs to no call, such as the end of a background shell."""

    kind: ClassVar[Literal["notice"]] = "notice"
    text: str
    data: Any = None


class AgentEvent(Event, frozen=True, kw_only=True):
    """An event inside a subagent; `call_id` is the Agent call that started it."""

    kind: ClassVar[Literal["agent.event"]] = "agent.event"
    call_id: str
    agent_id: str
    agent_type: str
    event: AnyEvent


class ModelRequested(Event, frozen=True, kw_only=True):
    """A request goes out to the model."""

    kind: ClassVar[Literal["model.requested"]] = "model.requested"
    model: str
    turn: int


class ModelTextDelta(Event, frozen=True, kw_only=True):
    """The model streamed a piece of text or thinking."""

    kind: ClassVar[Literal["model.said"]] = "model.said"
    text: str
    thinking: bool = False
    index: int = 0


class ToolInputDelta(Event, frozen=True, kw_only=True):
    """The model streamed a piece of the JSON of a tool call."""

    kind: ClassVar[Literal["model.calls"]] = "model.calls"
    call_id: str
    name: str
    piece: str = ""
    index: int = 0


class ModelBlockDelta(Event, frozen=True, kw_only=True):
    """A block begins (`start`), grows by something that is not shown (`delta`), or has ended."""

    kind: ClassVar[Literal["model.block"]] = "model.block"
    index: int
    start: Mapping[str, Any] | None = None
    delta: Mapping[str, Any] | None = None


class ModelAnswered(Event, frozen=True, kw_only=True):
    """The model's message is complete; `content` has the format of the API."""

    kind: ClassVar[Literal["model.answered"]] = "model.answered"
    content: tuple[Mapping[str, Any], ...]
    stop_reason: str
    usage: Usage
    seconds: float
    cost: float | None = None


class Retried(Event, frozen=True, kw_only=True):
    """A request failed and will be retried after `seconds`."""

    kind: ClassVar[Literal["retry"]] = "retry"
    attempt: int
    most: int
    seconds: float
    why: str
    status: int | None = None


class Compacted(Event, frozen=True, kw_only=True):
    """The conversation was compacted."""

    kind: ClassVar[Literal["compact"]] = "compact"
    trigger: str
    tokens_before: int
    tokens_after: int


class Steered(Event, frozen=True, kw_only=True):
    """What the person said while the run went on is now part of the conversation."""

    kind: ClassVar[Literal["run.steered"]] = "run.steered"
    text: str


class RunEnded(Event, frozen=True, kw_only=True):
    """A run is over; `why` is one word, `text` the model's last text, `failure` the kind of a provider's failure.

    `unsent` is what the person said too late for the model to hear, `data` the answer as JSON where a type was asked for.
    `usage` are the tokens of this run, with those of subagents. `cost` leaves out the models that `unpriced` names.
    """

    kind: ClassVar[Literal["run.ended"]] = "run.ended"
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
    usage: Usage = field(default_factory=Usage)
    unpriced: tuple[str, ...] = ()


AnyEvent: TypeAlias = (
    ToolRequested
    | ToolStarted
    | ToolProgress
    | ToolSucceeded
    | ToolFailed
    | ToolCancelled
    | PermissionAsked
    | PermissionDecided
    | HookStarted
    | HookEnded
    | EventsDropped
    | Notice
    | AgentEvent
    | ModelRequested
    | ModelTextDelta
    | ToolInputDelta
    | ModelBlockDelta
    | ModelAnswered
    | Retried
    | Compacted
    | Steered
    | RunEnded
)
"""Every event there is: `event.kind == "…"` or `isinstance` tells which."""
