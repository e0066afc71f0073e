"""`stream-json`: every step of a session as one JSON object a line."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

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
from wieldy.core.outcome import ToolResult
from wieldy.engine.results import to_json_value
from wieldy.headless.summary import line, usage_of, uuid, was_denied

Say = Callable[[Mapping[str, Any]], None]


class Partial:
    """Turns what a session tells of an answer into the events of a stream. Blocks are opened and closed as the model does."""

    def __init__(self, session: Session, say: Say) -> None:
        self._session = session
        self._say = say
        self._begun = False
        self.message = ""  # the id of the last one that began

    def take(self, event: Event) -> None:
        """Say what an event is in a stream, if anything."""
        match event:
            case ModelBlockDelta(start=start) if start is not None:
                self._begin()
                self._say({"type": "content_block_start", "index": event.index, "content_block": dict(start)})
            case ModelBlockDelta(delta=delta) if delta is not None:
                self._delta(event.index, delta)
            case ModelBlockDelta():
                self._say({"type": "content_block_stop", "index": event.index})
            case ModelTextDelta():
                kind = "thinking" if event.thinking else "text"
                self._delta(event.index, {"type": f"{kind}_delta", kind: event.text})
            case ToolInputDelta() if event.piece:
                self._delta(event.index, {"type": "input_json_delta", "partial_json": event.piece})
            case ModelAnswered():
                self._end(event)
            case Retried() | RunEnded():
                self._begun = False  # what broke off is never ended: the next answer begins anew

    def _begin(self) -> None:
        if self._begun:
            return
        self._begun, self.message = True, message_id()
        message: dict[str, Any] = {
            "id": self.message,
            "type": "message",
            "role": "assistant",
            "model": self._session.provider.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage_of(None),
        }
        self._say({"type": "message_start", "message": message})

    def _end(self, event: ModelAnswered) -> None:
        self._begin()
        self._begun = False
        delta = {"stop_reason": event.stop_reason, "stop_sequence": None}
        self._say({"type": "message_delta", "delta": delta, "usage": usage_of(event.usage)})
        self._say({"type": "message_stop"})

    def _delta(self, index: int, delta: Mapping[str, Any]) -> None:
        self._say({"type": "content_block_delta", "index": index, "delta": dict(delta)})


def message_id() -> str:
    """A new id for a message, like those of the Messages API."""
    return f"msg_{os.urandom(12).hex()}"


Write = Callable[[str], object]


class Lines:
    """`stream-json`: every step of a session as one JSON object a line. With a `parent`, those of the sub-agent of a call."""

    def __init__(self, session: Session, write: Write, *, partial: bool = False, parent: str | None = None) -> None:
        self._session = session
        self._write = write
        self._partial = Partial(session, self._raw) if partial else None
        self._parent = parent
        self._asked: set[str] = set()
        self._early: list[ToolResult] = []
        self._agents: dict[str, Lines] = {}
        self._held: list[AgentEvent] = []

    def begin(self) -> None:
        """What is there: the folder, the tools, the model, the mode."""
        from wieldy import __version__

        box = self._session.box
        self._say(
            "system",
            subtype="init",
            cwd=box.workspace.cwd,
            tools=self._session.offered,
            mcp_servers=_servers(self._session),
            model=self._session.provider.model,
            permissionMode=box.policy.mode,
            slash_commands=[],
            apiKeySource="none",
            output_style="default",
            agents=_agents(self._session),
            skills=[],
            plugins=[],
            wieldy_version=__version__,
        )

    def take(self, event: Event) -> None:
        """Say what an event is to somebody who reads lines."""
        if self._partial is not None:
            self._partial.take(event)
        match event:
            case AgentEvent():
                self._from_agent(event)
            case ModelAnswered():
                self._answered(event)
            case ToolEnded() if event.call_id in self._asked:
                self._ended(event.result)
            case ToolEnded():
                self._early.append(event.result)
            case Retried():
                self._say(
                    "system",
                    subtype="api_retry",
                    attempt=event.attempt,
                    max_retries=event.most,
                    retry_delay_ms=round(event.seconds * 1000),
                    error_status=event.status,
                    error=event.why,
                )
            case Compacted():
                told = {"trigger": event.trigger, "pre_tokens": event.tokens_before, "post_tokens": event.tokens_after}
                self._say("system", subtype="compact_boundary", compact_metadata=told)
            case HookEnded():
                name = {"hook_name": event.hook, "hook_event": event.hook_event}
                self._say("system", subtype="hook_response", **name, outcome=event.outcome, output=event.detail)
            case Notice():
                self._say("system", subtype="informational", content=event.text)

    def end(self, result: Mapping[str, Any]) -> None:
        """The last line of a run."""
        self._write(line(result))

    def _from_agent(self, event: AgentEvent) -> None:
        """Messages and results of a sub-agent; those that come before the call is told wait for it."""
        if not isinstance(event.event, ModelAnswered | ToolEnded):
            return
        if event.call_id in self._asked:
            inner = self._agents.get(event.agent_id)
            if inner is None:
                inner = self._agents[event.agent_id] = Lines(self._session, self._write, parent=event.call_id)
            inner.take(event.event)
            if not inner._asked <= self._asked:
                self._asked |= inner._asked
                self._release()
        else:
            self._held.append(event)

    def _release(self) -> None:
        held, self._held = self._held, []
        for event in held:
            self._from_agent(event)

    def _answered(self, event: ModelAnswered) -> None:
        message = {
            "id": self._partial.message if self._partial is not None else message_id(),
            "type": "message",
            "role": "assistant",
            "model": self._session.provider.model,
            "content": [dict(block) for block in event.content],
            "stop_reason": event.stop_reason,
            "stop_sequence": None,
            "usage": usage_of(event.usage),
        }
        self._say("assistant", message=message, parent_tool_use_id=self._parent)
        self._asked.update(block["id"] for block in event.content if block["type"] == "tool_use")
        # Results follow the message that asked for them, even where a tool was faster than the model.
        early, self._early = self._early, []
        for result in early:
            self._ended(result)
        self._release()

    def _ended(self, result: ToolResult) -> None:
        message = {"role": "user", "content": [result.as_wire()]}
        self._say("user", message=message, parent_tool_use_id=self._parent, tool_use_result=to_json_value(result.data))
        if was_denied(result):
            told = {"tool_name": result.name, "tool_use_id": result.call_id, "message": result.text}
            self._say("system", subtype="permission_denied", **told)

    def _raw(self, event: Mapping[str, Any]) -> None:
        self._say("stream_event", event=event, parent_tool_use_id=None)

    def _say(self, kind: str, **fields: Any) -> None:
        self._write(line({"type": kind, **fields, "session_id": self._session.id, "uuid": uuid()}))


def _agents(session: Session) -> list[str]:
    """The kinds of sub-agent that can be sent."""
    if "Agent" not in session.offered:
        return []
    from wieldy.subagents.definitions import AgentTypes

    return list(session.box.workspace.service(AgentTypes).definitions)


def _servers(session: Session) -> list[dict[str, str]]:
    """The MCP servers of a session, and how each of them stands."""
    if not session.box.settings.get("mcpServers"):
        return []
    from wieldy.mcp.client.manager import McpServers

    states = session.box.workspace.service(McpServers).states()
    return [{"name": name, "status": state.name} for name, state in states.items()]
