"""wieldy: the tool-calling system of a terminal coding agent. Public names are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from wieldy.agent.records import QuestionDeferred
    from wieldy.agent.runs import EventStream, TypedEventStream
    from wieldy.agent.session import Session
    from wieldy.agent.transcript import Store
    from wieldy.core.backend import Backend, BackendProcess, FileInfo, FolderEntry
    from wieldy.core.call import ToolCall
    from wieldy.core.decision import Answer, Decision, Question, Reason
    from wieldy.core.effects import Fetches, Opaque, Reads, Runs, Writes
    from wieldy.core.errors import (
        ClosedError,
        Refusal,
        SessionError,
        SettingsError,
        StaleFileError,
        ToolDefinitionError,
        ToolFailure,
        WieldyError,
    )
    from wieldy.core.events import (
        AgentEvent,
        AnyEvent,
        CallEvent,
        Compacted,
        Event,
        EventsDropped,
        HookEnded,
        HookStarted,
        ModelAnswered,
        ModelBlockDelta,
        ModelRequested,
        ModelTextDelta,
        Notice,
        PermissionAsked,
        PermissionDecided,
        Retried,
        RunEnded,
        Steered,
        ToolCancelled,
        ToolEnded,
        ToolFailed,
        ToolInputDelta,
        ToolProgress,
        ToolRequested,
        ToolStarted,
        ToolSucceeded,
    )
    from wieldy.core.outcome import Done, Failed, Image, Interrupted, Refused, Text, ToolResult, Waiting
    from wieldy.core.provider import Provider, Usage
    from wieldy.core.schema.fields import Param
    from wieldy.core.tool import Doubt, Options, Output, Progress, Tool, ToolContext
    from wieldy.core.tool_decorator import tool
    from wieldy.core.user_questions import UserAnswer, UserQuestion
    from wieldy.engine.tool_limits import Cached, Logged, RateLimited, TimeLimited
    from wieldy.engine.toolbox import Toolbox
    from wieldy.engine.turn import Turn, Wire
    from wieldy.engine.workspace_services import HostServices
    from wieldy.faces.mcp_server import serve_mcp
    from wieldy.files.journal.undo import CannotUndo
    from wieldy.models.anthropic import Anthropic
    from wieldy.models.openai_chat import OpenAIChat
    from wieldy.models.openai_responses import OpenAIResponses
    from wieldy.models.script import Script
    from wieldy.policy.hooks.config import python_hook
    from wieldy.shell.backends.local import LocalBackend
    from wieldy.shell.backends.overlay import OverlayBackend, OverlayChange, OverlayError
    from wieldy.shell.effects.analysis import classify
    from wieldy.tools.subagents import AgentType

_MODULE_NAMES: dict[str, str] = {
    "agent.runs": "EventStream TypedEventStream",
    "agent.records": "QuestionDeferred",
    "agent.session": "Session",
    "agent.transcript": "Store",
    "shell.backends.local": "LocalBackend",
    "shell.backends.overlay": "OverlayBackend OverlayChange OverlayError",
    "core.backend": "Backend BackendProcess FileInfo FolderEntry",
    "core.call": "ToolCall",
    "core.decision": "Answer Decision Question Reason",
    "core.effects": "Fetches Opaque Reads Runs Writes",
    "core.errors": (
        "ClosedError Refusal SessionError SettingsError StaleFileError ToolDefinitionError ToolFailure WieldyError"
    ),
    "core.events": (
        "AgentEvent AnyEvent CallEvent Compacted Event EventsDropped HookEnded HookStarted ModelAnswered "
        "ModelBlockDelta ModelRequested ModelTextDelta Notice PermissionAsked PermissionDecided Retried "
        "RunEnded Steered ToolCancelled ToolEnded ToolFailed ToolInputDelta ToolProgress ToolRequested "
        "ToolStarted ToolSucceeded"
    ),
    "core.outcome": "Done Failed Image Interrupted Refused Text ToolResult Waiting",
    "core.provider": "Provider Usage",
    "core.tool": "Doubt Options Output Progress Tool ToolContext",
    "core.tool_decorator": "tool",
    "core.user_questions": "UserAnswer UserQuestion",
    "engine.tool_limits": "Cached Logged RateLimited TimeLimited",
    "files.journal.undo": "CannotUndo",
    "policy.hooks.config": "python_hook",
    "faces.mcp_server": "serve_mcp",
    "models.anthropic": "Anthropic",
    "models.openai_chat": "OpenAIChat",
    "models.openai_responses": "OpenAIResponses",
    "models.script": "Script",
    "core.schema.fields": "Param",
    "shell.effects.analysis": "classify",
    "tools.subagents": "AgentType",
    "engine.toolbox": "Toolbox",
    "engine.turn": "Turn Wire",
    "engine.workspace_services": "HostServices",
}
_MODULE_OF = {name: module for module, names in _MODULE_NAMES.items() for name in names.split()}

__all__ = [
    "AgentEvent",
    "AgentType",
    "Answer",
    "Anthropic",
    "AnyEvent",
    "Backend",
    "BackendProcess",
    "Cached",
    "CallEvent",
    "CannotUndo",
    "ClosedError",
    "Compacted",
    "Decision",
    "Done",
    "Doubt",
    "Event",
    "EventStream",
    "EventsDropped",
    "Failed",
    "Fetches",
    "FileInfo",
    "FolderEntry",
    "HookEnded",
    "HookStarted",
    "HostServices",
    "Image",
    "Interrupted",
    "LocalBackend",
    "Logged",
    "ModelAnswered",
    "ModelBlockDelta",
    "ModelRequested",
    "ModelTextDelta",
    "Notice",
    "Opaque",
    "OpenAIChat",
    "OpenAIResponses",
    "Options",
    "Output",
    "OverlayBackend",
    "OverlayChange",
    "OverlayError",
    "Param",
    "PermissionAsked",
    "PermissionDecided",
    "Progress",
    "Provider",
    "Question",
    "QuestionDeferred",
    "RateLimited",
    "Reads",
    "Reason",
    "Refusal",
    "Refused",
    "Retried",
    "RunEnded",
    "Runs",
    "Script",
    "Session",
    "SessionError",
    "SettingsError",
    "StaleFileError",
    "Steered",
    "Store",
    "Text",
    "TimeLimited",
    "Tool",
    "ToolCall",
    "ToolCancelled",
    "ToolContext",
    "ToolDefinitionError",
    "ToolEnded",
    "ToolFailed",
    "ToolFailure",
    "ToolInputDelta",
    "ToolProgress",
    "ToolRequested",
    "ToolResult",
    "ToolStarted",
    "ToolSucceeded",
    "Toolbox",
    "Turn",
    "TypedEventStream",
    "Usage",
    "UserAnswer",
    "UserQuestion",
    "Waiting",
    "WieldyError",
    "Wire",
    "Writes",
    "__version__",
    "classify",
    "python_hook",
    "serve_mcp",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'wieldy' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"wieldy.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
