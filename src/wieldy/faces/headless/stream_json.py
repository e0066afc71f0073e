"""`stream-json`: every step of a session as one JSON object per line, in the format of Claude Code.

The lines are made from events, not from transcript records: decision 41 says why.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

from wieldy.agent.run_totals import encode_line, is_denied, usage_as_dict
from wieldy.agent.session import Session
from wieldy.core.events import (
    AgentEvent,
    Compacted,
    Event,
    HookEnded,
    ModelAnswered,
    ModelBlockDelta,
    ModelTextDelta,
    Notice,
    Retried,
    RunEnded,
    ToolEnded,
    ToolInputDelta,
)
from wieldy.core.json_values import to_json
from wieldy.core.outcome import ToolResult

# Hosts read what they may expect from this: the version of Claude Code whose stream-json we follow.
CLAUDE_CODE_VERSION = "2.1.248"


class StreamJsonWriter:
    """Writes the events of a session as lines; with a `parent`, those of the subagent that this call started."""

    def __init__(
        self, session: Session, write: Callable[[str], object], *, partial: bool = False, parent: str | None = None
    ) -> None:
        self._session = session
        self._write = write
        self._partial = PartialMessages(session, self._write_stream_event) if partial else None
        self._parent = parent
        self._has_init = parent is not None
        self._written_calls: set[str] = set()
        self._early_results: list[ToolResult] = []
        self._subagents: dict[str, StreamJsonWriter] = {}
        self._early_subagent_events: list[AgentEvent] = []

    def write_event(self, event: Event) -> None:
        """Write what corresponds to an event, if anything; the first line is `system/init`."""
        if not self._has_init and self._session.ready:
            self._has_init = True
            self._write_init()
        if self._partial is not None:
            self._partial.convert(event)
        match event:
            case AgentEvent():
                self._write_subagent_event(event)
            case ModelAnswered():
                self._write_answer(event)
            case ToolEnded() if event.call_id in self._written_calls:
                self._write_result(event.result)
            case ToolEnded():
                self._early_results.append(event.result)
            case Retried():
                self._write_line(
                    "system",
                    subtype="api_retry",
                    attempt=event.attempt,
                    max_retries=event.most,
                    retry_delay_ms=round(event.seconds * 1000),
                    error_status=event.status,
                    error=event.why,
                )
            case Compacted():
                metadata = {
                    "trigger": event.trigger,
                    "pre_tokens": event.tokens_before,
                    "post_tokens": event.tokens_after,
                }
                self._write_line("system", subtype="compact_boundary", compact_metadata=metadata)
            case HookEnded():
                hook = {"hook_name": event.hook, "hook_event": event.hook_event}
                self._write_line("system", subtype="hook_response", **hook, outcome=event.outcome, output=event.detail)
            case Notice():
                self._write_line("system", subtype="informational", content=event.text)

    def _write_init(self) -> None:
        from wieldy import __version__

        box = self._session.box
        self._write_line(
            "system",
            subtype="init",
            cwd=box.workspace.cwd,
            tools=self._session.offered,
            mcp_servers=_mcp_servers(self._session),
            model=self._session.provider.model,
            permissionMode=box.policy.mode,
            slash_commands=[],
            apiKeySource=getattr(self._session.provider, "key_source", "none"),
            output_style="default",
            agents=_agent_types(self._session),
            skills=[],
            plugins=[],
            claude_code_version=CLAUDE_CODE_VERSION,
            wieldy_version=__version__,
        )

    def _write_answer(self, event: ModelAnswered) -> None:
        message = {
            "id": self._partial.message_id if self._partial is not None else new_message_id(),
            "type": "message",
            "role": "assistant",
            "model": self._session.provider.model,
            "content": [_block(block) for block in event.content],
            "stop_reason": event.stop_reason,
            "stop_sequence": None,
            "usage": usage_as_dict(event.usage),
        }
        self._write_line("assistant", message=message, parent_tool_use_id=self._parent)
        self._written_calls.update(block["id"] for block in event.content if block["type"] == "tool_use")
        # A tool may end before the model does; its result still follows the message with the call.
        results, self._early_results = self._early_results, []
        for result in results:
            self._write_result(result)
        self._write_early_subagent_events()

    def _write_result(self, result: ToolResult) -> None:
        message = {"role": "user", "content": [result.as_wire()]}
        data = to_json(result.data)
        self._write_line("user", message=message, parent_tool_use_id=self._parent, tool_use_result=data)
        if is_denied(result):
            denial = {"tool_name": result.name, "tool_use_id": result.call_id, "message": result.text}
            self._write_line("system", subtype="permission_denied", **denial)

    def _write_subagent_event(self, event: AgentEvent) -> None:
        """Write messages and results of a subagent, but not before the message with the call that started it."""
        if not isinstance(event.event, ModelAnswered | ToolEnded):
            return
        if event.call_id not in self._written_calls:
            self._early_subagent_events.append(event)
            return
        writer = self._subagents.get(event.agent_id)
        if writer is None:
            writer = StreamJsonWriter(self._session, self._write, parent=event.call_id)
            self._subagents[event.agent_id] = writer
        writer.write_event(event.event)
        if not writer._written_calls <= self._written_calls:
            self._written_calls |= writer._written_calls
            self._write_early_subagent_events()

    def _write_early_subagent_events(self) -> None:
        events, self._early_subagent_events = self._early_subagent_events, []
        for event in events:
            self._write_subagent_event(event)

    def _write_stream_event(self, event: Mapping[str, Any]) -> None:
        self._write_line("stream_event", event=event, parent_tool_use_id=None)

    def _write_line(self, kind: str, **fields: Any) -> None:
        self._write(encode_line({"type": kind, **fields, "session_id": self._session.id, "uuid": str(uuid4())}))


class PartialMessages:
    """Converts deltas of an answer into stream events of the Messages API."""

    def __init__(self, session: Session, emit: Callable[[Mapping[str, Any]], None]) -> None:
        self._session = session
        self._emit = emit
        self._is_open = False
        self.message_id = ""  # of the last message that was started

    def convert(self, event: Event) -> None:
        match event:
            case ModelBlockDelta(start=start) if start is not None:
                self._start_message()
                self._emit({"type": "content_block_start", "index": event.index, "content_block": dict(start)})
            case ModelBlockDelta(delta=delta) if delta is not None:
                self._emit_delta(event.index, delta)
            case ModelBlockDelta():
                self._emit({"type": "content_block_stop", "index": event.index})
            case ModelTextDelta():
                kind = "thinking" if event.thinking else "text"
                self._emit_delta(event.index, {"type": f"{kind}_delta", kind: event.text})
            case ToolInputDelta() if event.piece:
                self._emit_delta(event.index, {"type": "input_json_delta", "partial_json": event.piece})
            case ModelAnswered():
                self._end_message(event)
            case Retried() | RunEnded():
                self._is_open = False  # a broken message gets no end: the next answer starts a new one

    def _start_message(self) -> None:
        if self._is_open:
            return
        self._is_open, self.message_id = True, new_message_id()
        message: dict[str, Any] = {
            "id": self.message_id,
            "type": "message",
            "role": "assistant",
            "model": self._session.provider.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage_as_dict(None),
        }
        self._emit({"type": "message_start", "message": message})

    def _end_message(self, event: ModelAnswered) -> None:
        self._start_message()
        self._is_open = False
        delta = {"stop_reason": event.stop_reason, "stop_sequence": None}
        self._emit({"type": "message_delta", "delta": delta, "usage": usage_as_dict(event.usage)})
        self._emit({"type": "message_stop"})

    def _emit_delta(self, index: int, delta: Mapping[str, Any]) -> None:
        self._emit({"type": "content_block_delta", "index": index, "delta": dict(delta)})


def _block(block: Mapping[str, Any]) -> dict[str, Any]:
    """A block as hosts expect it: a thought without signature has an empty one."""
    return {"signature": "", **block} if block["type"] == "thinking" else dict(block)


def new_message_id() -> str:
    """Return a random message id in the form of the Messages API."""
    return f"msg_{os.urandom(12).hex()}"


def _agent_types(session: Session) -> list[str]:
    if "Agent" not in session.offered:
        return []

    return list(session.box.workspace.services.agent_types.definitions)


def _mcp_servers(session: Session) -> list[dict[str, str]]:
    if not session.box.settings.get("mcpServers"):
        return []

    reports = session.box.workspace.services.mcp_servers.reports()
    return [{"name": report.name, "status": report.state} for report in reports.values()]
