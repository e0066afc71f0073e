"""Format the events of a run for the terminal. Pure: the same events give the same text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from textwrap import wrap
from typing import Any, TypeAlias

from wieldy.console import Style, StyledText
from wieldy.core.events import (
    AgentEvent,
    Compacted,
    Event,
    ModelTextDelta,
    Notice,
    PermissionDecided,
    Retried,
    RunEnded,
    ToolCancelled,
    ToolEnded,
    ToolFailed,
    ToolStarted,
)
from wieldy.core.outcome import Refused, ToolResult
from wieldy.core.tool import Tool
from wieldy.core.truncate import truncate

MAX_LINES = 8
MAX_DIFF_LINES = 24
WIDTH = 110
_HUNK = re.compile(r"^@@ .* @@", re.MULTILINE)

# What an event adds to the screen; `console.write` escapes and colors it.
Shown: TypeAlias = list[StyledText]


class View:
    """Turns the events of a run into styled text. `find` returns the tool of a name, which formats its calls and results."""

    def __init__(self, find: Callable[[str], Tool | None]) -> None:
        self._find = find
        self._streaming = ""

    def show(self, event: Event) -> Shown:
        """Return what an event adds to the screen."""
        if isinstance(event, ModelTextDelta):
            return self._show_delta(event)
        lines = self._format(event)
        if lines is None:
            return []
        before = [StyledText("\n")] if self._streaming else []
        self._streaming = ""
        return [*before, *lines, StyledText("\n")]

    def _show_delta(self, event: ModelTextDelta) -> Shown:
        kind = "thinking" if event.thinking else "text"
        before = [] if self._streaming in ("", kind) else [StyledText("\n")]
        self._streaming = kind
        return [*before, StyledText(event.text, ("dim",) if event.thinking else ())]

    def _format(self, event: Event) -> Shown | None:
        match event:
            case AgentEvent():
                return self._format_subagent(event)
            case ToolStarted(name="AskUser"):
                return None  # the questions are on the screen already
            case ToolStarted():
                return [StyledText("● ", ("cyan",)), StyledText(self._format_call(event.name, event.input), ("bold",))]
            case ToolCancelled():
                return _indent(event.result.person_text, "yellow")
            case ToolFailed() if isinstance(event.result.outcome, Refused):
                return self._format_denial(event)
            case ToolFailed():
                return _indent(event.result.person_text, "red")
            case ToolEnded():
                return self._format_result(event.name, event.result)
            case PermissionDecided() if event.answer is not None and event.answer.allowed:
                return _line("  allowed", "dim")
            case Retried():
                return _line(f"  {event.why}; retrying in {event.seconds:.0f} s", "yellow")
            case Compacted():
                text = f"  the conversation was compacted: {event.tokens_before:,} → {event.tokens_after:,} tokens"
                return _line(text, "dim")
            case Notice():
                return _line("  " + event.text.replace("\n", "\n  "), "dim")
            case RunEnded() if event.is_error:
                return _line(f"stopped: {event.detail or event.why}", "red")
            case RunEnded() if event.why == "interrupted":
                return _line("interrupted", "yellow")
        return None

    def _format_subagent(self, event: AgentEvent) -> Shown | None:
        """Show the calls, denials and notices of a subagent; the rest is in its report."""
        match event.event:
            case ToolStarted(name=name, input=input):
                return _line(f"  ↳ {event.agent_type}: {self._format_call(name, input)}", "dim")
            case ToolFailed(result=result) if isinstance(result.outcome, Refused):
                return _line(f"  ↳ {event.agent_type}: {_one_line(result.person_text)}", "red")
            case Notice(text=text):
                return _line(f"  ↳ {event.agent_type}: {_one_line(text)}", "dim")
        return None

    def _format_call(self, name: str, input: Mapping[str, Any]) -> str:
        tool = self._find(name)
        return _one_line(tool.show_use(input) if tool else name)

    def _format_denial(self, event: ToolFailed) -> Shown:
        tool, why = self._find(event.name), event.result.person_text
        if tool is None or event.input is None:
            return [StyledText("● ", ("red",)), StyledText(f"{event.name}\n"), *_indent(why, "red")]
        lines = [part for line in tool.show_rejection(event.input, why).splitlines() for part in wrap(line, WIDTH)]
        rest = [StyledText("\n"), *_indent("\n".join(lines[1:]), "red")] if lines[1:] else []
        return [StyledText(f"● {lines[0]}", ("red",)), *rest]

    def _format_result(self, name: str, result: ToolResult) -> Shown:
        if _HUNK.search(result.text):
            return self._format_diff(result.text)
        tool = self._find(name)
        return _indent(tool.show_result(result) if tool else result.text, "dim")

    def _format_diff(self, text: str) -> Shown:
        first, _, rest = text.partition("\n")
        lines = _line(f"  {_one_line(first)}")
        body = [line for line in rest.splitlines() if line.startswith(("+", "-", "@@", " "))]
        for line in body[:MAX_DIFF_LINES]:
            if line.startswith(("+++", "---")):
                continue
            style: Style | None = "green" if line.startswith("+") else "red" if line.startswith("-") else None
            lines.append(StyledText(f"\n  {_one_line(line)}", (style,) if style else ()))
        if len(body) > MAX_DIFF_LINES:
            lines.append(StyledText(f"\n  … {len(body) - MAX_DIFF_LINES} more lines", ("dim",)))
        return lines


def _line(text: str, *styles: Style) -> Shown:
    return [StyledText(text, styles)]


def _indent(text: str, style: Style) -> Shown:
    lines = text.splitlines() or [""]
    indented = [StyledText("\n".join(f"  {_one_line(line)}" for line in lines[:MAX_LINES]), (style,))]
    if len(lines) > MAX_LINES:
        indented.append(StyledText(f"\n  … {len(lines) - MAX_LINES} more lines", ("dim",)))
    return indented


def _one_line(text: str) -> str:
    text = text.replace("\t", "    ").replace("\n", "⏎")
    return truncate(text, WIDTH)
