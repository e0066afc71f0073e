"""The hook events. The fields of each class are its payload; its class variables say what a hook may do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct, field
from msgspec.structs import asdict


class HookEvent(Struct, frozen=True, kw_only=True):
    """The fields every hook gets.

    `matched_on` is the field a matcher is compared with. A hook of an event that `can_block` may stop what is about to happen;
    one of an event that `fails_closed` blocks when it fails, unless its `on_error` says otherwise. What a hook of an event that
    `takes_text` prints as plain text is added for the model.
    """

    event: ClassVar[str] = ""
    matched_on: ClassVar[str] = ""
    can_block: ClassVar[bool] = False
    fails_closed: ClassVar[bool] = False
    takes_text: ClassVar[bool] = False

    session_id: str = ""
    transcript_path: str = ""
    cwd: str = ""
    permission_mode: str = "default"
    agent_id: str | None = None
    agent_type: str | None = None

    @property
    def subject(self) -> str:
        """The value a matcher is compared with."""
        return str(getattr(self, self.matched_on)) if self.matched_on else ""

    def payload(self) -> dict[str, Any]:
        """The JSON object the hook reads on stdin."""
        fields = {name: value for name, value in asdict(self).items() if value is not None}
        return {"hook_event_name": self.event, **fields}


class ToolHookEvent(HookEvent, frozen=True, kw_only=True):
    """An event about one call."""

    matched_on: ClassVar[str] = "tool_name"

    tool_name: str
    tool_input: Mapping[str, Any]
    tool_use_id: str


class PreToolUse(ToolHookEvent, frozen=True, kw_only=True):
    """Before a call is decided: allow, deny, ask, or rewrite its input."""

    event: ClassVar[str] = "PreToolUse"
    can_block: ClassVar[bool] = True
    fails_closed: ClassVar[bool] = True


class PermissionRequest(ToolHookEvent, frozen=True, kw_only=True):
    """Before a person is asked: answer for them."""

    event: ClassVar[str] = "PermissionRequest"
    fails_closed: ClassVar[bool] = True

    permission_suggestions: list[dict[str, Any]] = field(default_factory=list)


class PostToolUse(ToolHookEvent, frozen=True, kw_only=True):
    """After a tool ran: add to its result, or replace it."""

    event: ClassVar[str] = "PostToolUse"
    can_block: ClassVar[bool] = True

    tool_response: Any = None
    duration_ms: int = 0


class PostToolUseFailure(ToolHookEvent, frozen=True, kw_only=True):
    """After a tool failed: add to its result."""

    event: ClassVar[str] = "PostToolUseFailure"
    can_block: ClassVar[bool] = True

    error: str = ""
    is_interrupt: bool = False
    duration_ms: int = 0


class UserPromptSubmit(HookEvent, frozen=True, kw_only=True):
    """Before a prompt is sent: block it, or add to it."""

    event: ClassVar[str] = "UserPromptSubmit"
    can_block: ClassVar[bool] = True
    fails_closed: ClassVar[bool] = True
    takes_text: ClassVar[bool] = True

    prompt: str


class SessionStart(HookEvent, frozen=True, kw_only=True):
    """A session starts: add to its first prompt."""

    event: ClassVar[str] = "SessionStart"
    matched_on: ClassVar[str] = "source"
    takes_text: ClassVar[bool] = True

    source: str = "startup"
    model: str | None = None


class SessionEnd(HookEvent, frozen=True, kw_only=True):
    """A session ends."""

    event: ClassVar[str] = "SessionEnd"
    matched_on: ClassVar[str] = "reason"

    reason: str = "other"


class Stop(HookEvent, frozen=True, kw_only=True):
    """The model has finished: let it stop, or make it continue, with a reason."""

    event: ClassVar[str] = "Stop"
    can_block: ClassVar[bool] = True

    stop_hook_active: bool = False
    last_assistant_message: str = ""


class SubagentStart(HookEvent, frozen=True, kw_only=True):
    """A subagent starts: add to its task."""

    event: ClassVar[str] = "SubagentStart"
    matched_on: ClassVar[str] = "agent_type"
    takes_text: ClassVar[bool] = True

    agent_id: str
    agent_type: str


class SubagentStop(HookEvent, frozen=True, kw_only=True):
    """A subagent has finished: let it stop, or make it continue, with a reason."""

    event: ClassVar[str] = "SubagentStop"
    matched_on: ClassVar[str] = "agent_type"
    can_block: ClassVar[bool] = True

    agent_id: str
    agent_type: str
    agent_transcript_path: str = ""
    stop_hook_active: bool = False
    last_assistant_message: str = ""


class PreCompact(HookEvent, frozen=True, kw_only=True):
    """Before the conversation is compacted."""

    event: ClassVar[str] = "PreCompact"
    matched_on: ClassVar[str] = "trigger"
    can_block: ClassVar[bool] = True

    trigger: str = "auto"
    custom_instructions: str = ""


class Notification(HookEvent, frozen=True, kw_only=True):
    """A session waits for the person: a permission prompt, a question, or idle at the prompt."""

    event: ClassVar[str] = "Notification"
    matched_on: ClassVar[str] = "notification_type"

    message: str
    notification_type: str = ""


HOOK_EVENTS: Mapping[str, type[HookEvent]] = {
    event.event: event
    for event in (
        PreToolUse,
        PostToolUse,
        PostToolUseFailure,
        PermissionRequest,
        UserPromptSubmit,
        SessionStart,
        SessionEnd,
        Stop,
        SubagentStart,
        SubagentStop,
        PreCompact,
        Notification,
    )
}
