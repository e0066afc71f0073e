"""The moments a hook can be told of. What each one's payload holds is its fields; what a hook may do about it is the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct, field
from msgspec.structs import asdict


class HookEvent(Struct, frozen=True, kw_only=True):
    """What every hook is told: which session, where, in which mode; inside a sub-agent, which one."""

    event: ClassVar[str] = ""
    matched_on: ClassVar[str] = ""
    blocks: ClassVar[bool] = False
    guards: ClassVar[bool] = False
    takes_text: ClassVar[bool] = False

    session_id: str = ""
    transcript_path: str = ""
    cwd: str = ""
    permission_mode: str = "default"
    agent_id: str | None = None
    agent_type: str | None = None

    @property
    def subject(self) -> str:
        """What a matcher is held against."""
        return str(getattr(self, self.matched_on)) if self.matched_on else ""

    def payload(self) -> dict[str, Any]:
        """What the hook reads on stdin."""
        told = {name: value for name, value in asdict(self).items() if value is not None}
        return {"hook_event_name": self.event, **told}


class ToolHookEvent(HookEvent, frozen=True, kw_only=True):
    """About one call."""

    matched_on: ClassVar[str] = "tool_name"

    tool_name: str
    tool_input: Mapping[str, Any]
    tool_use_id: str


class PreToolUse(ToolHookEvent, frozen=True, kw_only=True):
    """A call is about to be judged: allow, deny, ask, or rewrite its input."""

    event: ClassVar[str] = "PreToolUse"
    blocks: ClassVar[bool] = True
    guards: ClassVar[bool] = True


class PermissionRequest(ToolHookEvent, frozen=True, kw_only=True):
    """A person is about to be asked: answer in their place."""

    event: ClassVar[str] = "PermissionRequest"
    guards: ClassVar[bool] = True

    permission_suggestions: list[dict[str, Any]] = field(default_factory=list)


class PostToolUse(ToolHookEvent, frozen=True, kw_only=True):
    """A tool has run: add to what the model reads of it, or replace it."""

    event: ClassVar[str] = "PostToolUse"
    blocks: ClassVar[bool] = True

    tool_response: Any = None
    duration_ms: int = 0


class PostToolUseFailure(ToolHookEvent, frozen=True, kw_only=True):
    """A tool has failed: add to what the model reads of it."""

    event: ClassVar[str] = "PostToolUseFailure"
    blocks: ClassVar[bool] = True

    error: str = ""
    is_interrupt: bool = False
    duration_ms: int = 0


class UserPromptSubmit(HookEvent, frozen=True, kw_only=True):
    """The person has said something: block it, or add to it."""

    event: ClassVar[str] = "UserPromptSubmit"
    blocks: ClassVar[bool] = True
    guards: ClassVar[bool] = True
    takes_text: ClassVar[bool] = True

    prompt: str


class SessionStart(HookEvent, frozen=True, kw_only=True):
    """A session begins: add to what the model knows from the start."""

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
    """The model wants to stop: let it, or send it on with a reason."""

    event: ClassVar[str] = "Stop"
    blocks: ClassVar[bool] = True

    stop_hook_active: bool = False
    last_assistant_message: str = ""


class SubagentStart(HookEvent, frozen=True, kw_only=True):
    """A sub-agent begins: add to what it knows."""

    event: ClassVar[str] = "SubagentStart"
    matched_on: ClassVar[str] = "agent_type"
    takes_text: ClassVar[bool] = True

    agent_id: str
    agent_type: str


class SubagentStop(HookEvent, frozen=True, kw_only=True):
    """A sub-agent wants to stop: let it, or send it on with a reason."""

    event: ClassVar[str] = "SubagentStop"
    matched_on: ClassVar[str] = "agent_type"
    blocks: ClassVar[bool] = True

    agent_id: str
    agent_type: str
    agent_transcript_path: str = ""
    stop_hook_active: bool = False
    last_assistant_message: str = ""


class PreCompact(HookEvent, frozen=True, kw_only=True):
    """The conversation is about to be shortened."""

    event: ClassVar[str] = "PreCompact"
    matched_on: ClassVar[str] = "trigger"
    blocks: ClassVar[bool] = True

    trigger: str = "auto"
    custom_instructions: str = ""


class Notification(HookEvent, frozen=True, kw_only=True):
    """A person is being told something."""

    event: ClassVar[str] = "Notification"
    matched_on: ClassVar[str] = "notification_type"

    message: str
    notification_type: str = ""


HOOK_EVENTS: Mapping[str, type[HookEvent]] = {
    kind.event: kind
    for kind in (
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
