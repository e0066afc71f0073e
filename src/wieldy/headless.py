"""A session without anybody watching: one prompt or a stream of them in, one format out, and an exit code that says it all."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from wieldy.core.event import (
    AgentEvent,
    Compacted,
    Event,
    HookEnded,
    ModelAnswered,
    ModelCalls,
    ModelSaid,
    Notice,
    Retried,
    RunEnded,
    ToolEnded,
    ToolFailed,
)
from wieldy.core.outcome import Refused
from wieldy.core.result import ToolResult
from wieldy.engine.output import plain
from wieldy.session.session import Prompt, Session

DONE, ERROR, DENIED, LIMIT, INTERRUPTED = 0, 1, 3, 4, 130
SUBTYPES = {
    "done": "success",
    "max_turns": "error_max_turns",
    "max_cost": "error_max_budget_usd",
}
USAGE = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
    "cache_write_tokens": "cache_creation_input_tokens",
}

Write = Callable[[str], object]


class Tally:
    """What a session without a watcher has come to: denials, tokens, time with the model."""

    def __init__(self) -> None:
        self.denials: list[dict[str, Any]] = []
        self.usage: dict[str, int] = dict.fromkeys(USAGE.values(), 0)
        self.model_seconds = 0.0
        self.turns = 0
        self.stop_reason: str | None = None
        self._inputs: dict[str, Mapping[str, Any]] = {}

    def take(self, event: Event) -> None:
        """Count an event. What sub-agents use and are denied counts; their turns are their own."""
        inner = event.event if isinstance(event, AgentEvent) else event
        if isinstance(inner, ModelAnswered):
            self.model_seconds += inner.seconds
            if inner is event:
                self.stop_reason = inner.stop_reason
                self.turns += 1
            for own, name in USAGE.items():
                self.usage[name] += getattr(inner.usage, own)
            self._inputs.update((b["id"], b["input"]) for b in inner.content if b["type"] == "tool_use")
        elif isinstance(inner, ToolFailed) and _denied(inner.result):
            self.denials.append({"tool_name": inner.name, "tool_use_id": inner.call_id})

    def denied(self) -> list[dict[str, Any]]:
        """Every call that was not permitted, with its input."""
        return [{**denial, "tool_input": dict(self._inputs.get(denial["tool_use_id"], {}))} for denial in self.denials]


class Lines:
    """`stream-json`: every step of a session as one JSON object a line. With a `parent`, those of the sub-agent of a call."""

    def __init__(self, session: Session, write: Write, *, partial: bool = False, parent: str | None = None) -> None:
        self._session = session
        self._write = write
        self._partial = partial
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
        match event:
            case AgentEvent():
                self._from_agent(event)
            case ModelAnswered():
                self._answered(event)
            case ToolEnded() if event.call_id in self._asked:
                self._ended(event.result)
            case ToolEnded():
                self._early.append(event.result)
            case ModelSaid() if self._partial:
                kind = "thinking" if event.thinking else "text"
                self._delta(event.index, {"type": f"{kind}_delta", kind: event.text})
            case ModelCalls() if self._partial and not event.piece:
                block = {"type": "tool_use", "id": event.call_id, "name": event.name, "input": {}}
                self._raw({"type": "content_block_start", "index": event.index, "content_block": block})
            case ModelCalls() if self._partial:
                self._delta(event.index, {"type": "input_json_delta", "partial_json": event.piece})
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
                name = {"hook_name": event.hook, "hook_event": event.moment}
                self._say("system", subtype="hook_response", **name, outcome=event.outcome, output=event.detail)
            case Notice():
                self._say("system", subtype="informational", content=event.text)

    def end(self, result: Mapping[str, Any]) -> None:
        """The last line of a run."""
        self._write(_line(result))

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
        usage = {name: getattr(event.usage, own) for own, name in USAGE.items()}
        message = {
            "id": f"msg_{os.urandom(12).hex()}",
            "type": "message",
            "role": "assistant",
            "model": self._session.provider.model,
            "content": [dict(block) for block in event.content],
            "stop_reason": event.stop_reason,
            "stop_sequence": None,
            "usage": usage,
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
        self._say("user", message=message, parent_tool_use_id=self._parent, tool_use_result=plain(result.data))
        if _denied(result):
            told = {"tool_name": result.name, "tool_use_id": result.call_id, "message": result.text}
            self._say("system", subtype="permission_denied", **told)

    def _delta(self, index: int, delta: Mapping[str, Any]) -> None:
        self._raw({"type": "content_block_delta", "index": index, "delta": delta})

    def _raw(self, event: Mapping[str, Any]) -> None:
        """An event in the form of the Messages API's own stream."""
        self._say("stream_event", event=event, parent_tool_use_id=None)

    def _say(self, kind: str, **fields: Any) -> None:
        self._write(_line({"type": kind, **fields, "session_id": self._session.id, "uuid": _uuid()}))


async def converse(
    session: Session, prompts: AsyncIterator[Prompt], form: str, write: Write, *, partial: bool = False
) -> int:
    """Run a session over some prompts, write what comes of it in one form, and return the exit code."""
    tally, lines = Tally(), Lines(session, write, partial=partial)
    code, begun = DONE, form != "stream-json"
    async for prompt in prompts:
        started = time.monotonic()
        last: RunEnded | None = None
        async for event in session.run(prompt):
            tally.take(event)
            if form == "stream-json":
                if not begun and session.ready:
                    lines.begin()
                    begun = True
                lines.take(event)
            if isinstance(event, RunEnded):
                last = event
        assert last is not None
        _report(session, last, tally, lines, form, write, time.monotonic() - started)
        code = exit_code(last, denied=bool(tally.denials))
        if code not in (DONE, DENIED):
            break
    return code


def exit_code(last: RunEnded, *, denied: bool) -> int:
    """What a run is to a shell: 0 done, 1 error, 3 something was denied, 4 limit reached, 130 interrupted."""
    match last.why:
        case "done":
            return DENIED if denied else DONE
        case "interrupted":
            return INTERRUPTED
        case "max_turns" | "max_cost" | "max_tokens":
            return LIMIT
    return ERROR


def _report(
    session: Session, last: RunEnded, tally: Tally, lines: Lines, form: str, write: Write, seconds: float
) -> None:
    if form == "text":
        if last.text:
            write(last.text if last.text.endswith("\n") else last.text + "\n")
        if last.why != "done":
            print(f"wieldy: {last.detail or last.why}", file=sys.stderr)
        for denial in tally.denied():
            print(f"wieldy: {denial['tool_name']} was not permitted", file=sys.stderr)
        return
    result = summary(session, last, tally, seconds)
    if form == "json":
        write(_line(result))
    else:
        lines.end(result)


def summary(session: Session, last: RunEnded, tally: Tally, seconds: float) -> dict[str, Any]:
    """The result of a run as one object."""
    success = last.why == "done"
    told: dict[str, Any] = {
        "type": "result",
        "subtype": SUBTYPES.get(last.why, "error_during_execution"),
        "is_error": not success,
        "duration_ms": round(seconds * 1000),
        "duration_api_ms": round(tally.model_seconds * 1000),
        "num_turns": last.turns,
        "stop_reason": tally.stop_reason,
        "session_id": session.id,
        "total_cost_usd": round(last.cost, 6),
        "usage": dict(tally.usage),
        "modelUsage": {session.model_name: {**tally.usage, "costUSD": round(last.cost, 6)}},
        "permission_denials": tally.denied(),
        "terminal_reason": last.why,
        "uuid": _uuid(),
    }
    return {**told, "result": last.text} if success else {**told, "errors": [last.detail or last.why]}


def _agents(session: Session) -> list[str]:
    """The kinds of sub-agent that can be sent."""
    if "Agent" not in session.offered:
        return []
    from wieldy.agents.find import AgentTypes

    return list(session.box.workspace.resident(AgentTypes).found)


def _servers(session: Session) -> list[dict[str, str]]:
    """The MCP servers of a session, and how each of them stands."""
    if not session.box.settings.get("mcpServers"):
        return []
    from wieldy.mcp.servers import McpServers

    states = session.box.workspace.resident(McpServers).states()
    return [{"name": name, "status": state.word} for name, state in states.items()]


def _denied(result: ToolResult) -> bool:
    return isinstance(result.outcome, Refused) and result.outcome.stage in ("permission", "hook")


def _uuid() -> str:
    """A random (version 4) UUID; the module of that name costs milliseconds to load."""
    digits = f"{(int.from_bytes(os.urandom(16)) & ~(0xF << 76) & ~(3 << 62)) | 4 << 76 | 2 << 62:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _line(value: Mapping[str, Any]) -> str:
    # Escapes for everything beyond ASCII: no reader's encoding, and no half of a character, can break a line.
    return json.dumps(value, default=str) + "\n"
