"""Format the events of a run for the terminal. Pure: the same events give the same text."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from textwrap import wrap
from typing import Any, Literal, TextIO, TypeAlias

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

Style: TypeAlias = Literal["bold", "dim", "red", "green", "yellow", "cyan"]
_CODES: Mapping[Style, str] = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Painter:
    """Adds ANSI styles to text, or leaves it as it is."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled

    @classmethod
    def for_stream(cls, stream: TextIO | None = None, env: Mapping[str, str] = os.environ) -> Painter:
        """Enable styles on a terminal, unless `NO_COLOR` is set or the terminal is dumb."""
        stream = stream or sys.stdout
        return cls(stream.isatty() and not env.get("NO_COLOR") and env.get("TERM") != "dumb")

    def __call__(self, text: str, *styles: Style) -> str:
        """Return the text in these styles."""
        if not self.enabled or not styles:
            return text
        return f"\x1b[{';'.join(_CODES[style] for style in styles)}m{text}\x1b[0m"


class View:
    """Turns the events of a run into text. `find` returns the tool of a name, which formats its own calls and results."""

    def __init__(self, find: Callable[[str], Tool | None], paint: Painter) -> None:
        self._find = find
        self._paint = paint
        self._streaming = ""

    def show(self, event: Event) -> str:
        """Return what an event adds to the screen."""
        if isinstance(event, ModelTextDelta):
            return self._show_delta(event)
        line = self._format(event)
        if line is None:
            return ""
        before = "\n" if self._streaming else ""
        self._streaming = ""
        return f"{before}{line}\n"

    def _show_delta(self, event: ModelTextDelta) -> str:
        kind = "thinking" if event.thinking else "text"
        before = "" if self._streaming in ("", kind) else "\n"
        self._streaming = kind
        return before + (self._paint(event.text, "dim") if event.thinking else event.text)

    def _format(self, event: Event) -> str | None:
        match event:
            case AgentEvent():
                return self._format_subagent(event)
            case ToolStarted(name="AskUser"):
                return None  # the questions are on the screen already
            case ToolStarted():
                return self._paint("● ", "cyan") + self._paint(self._format_call(event.name, event.input), "bold")
            case ToolCancelled():
                return self._indent(event.result.text, "yellow")
            case ToolFailed() if isinstance(event.result.outcome, Refused):
                return self._format_denial(event)
            case ToolFailed():
                return self._indent(event.result.text, "red")
            case ToolEnded():
                return self._format_result(event.name, event.result)
            case PermissionDecided() if event.answer is not None and event.answer.allowed:
                return self._paint("  allowed", "dim")
            case Retried():
                return self._paint(f"  {event.why}; retrying in {event.seconds:.0f} s", "yellow")
            case Compacted():
                text = f"  the conversation was compacted: {event.tokens_before:,} → {event.tokens_after:,} tokens"
                return self._paint(text, "dim")
            case Notice():
                return self._paint(f"  {event.text}", "dim")
            case RunEnded() if event.is_error:
                return self._paint(f"stopped: {event.detail or event.why}", "red")
            case RunEnded() if event.why == "interrupted":
                return self._paint("interrupted", "yellow")
        return None

    def _format_subagent(self, event: AgentEvent) -> str | None:
        """Show the calls, denials and notices of a subagent; the rest is in its report."""
        match event.event:
            case ToolStarted(name=name, input=input):
                return self._paint(f"  ↳ {event.agent_type}: {self._format_call(name, input)}", "dim")
            case ToolFailed(result=result) if isinstance(result.outcome, Refused):
                return self._paint(f"  ↳ {event.agent_type}: {_one_line(result.text)}", "red")
            case Notice(text=text):
                return self._paint(f"  ↳ {event.agent_type}: {_one_line(text)}", "dim")
        return None

    def _format_call(self, name: str, input: Mapping[str, Any]) -> str:
        tool = self._find(name)
        return _one_line(tool.show_use(input) if tool else name)

    def _format_denial(self, event: ToolFailed) -> str:
        tool, why = self._find(event.name), event.result.text
        if tool is None or event.input is None:
            return f"{self._paint('● ', 'red')}{event.name}\n{self._indent(why, 'red')}"
        lines = [part for line in tool.show_rejection(event.input, why).splitlines() for part in wrap(line, WIDTH)]
        first = self._paint("● ", "red") + self._paint(lines[0], "red")
        return "\n".join((first, *([self._indent("\n".join(lines[1:]), "red")] if lines[1:] else [])))

    def _format_result(self, name: str, result: ToolResult) -> str:
        if _HUNK.search(result.text):
            return self._format_diff(result.text)
        tool = self._find(name)
        return self._indent(tool.show_result(result) if tool else result.text, "dim")

    def _format_diff(self, text: str) -> str:
        first, _, rest = text.partition("\n")
        lines = [f"  {_one_line(first)}"]
        body = [line for line in rest.splitlines() if line.startswith(("+", "-", "@@", " "))]
        for line in body[:MAX_DIFF_LINES]:
            if line.startswith(("+++", "---")):
                continue
            added, removed = line.startswith("+"), line.startswith("-")
            text = _one_line(line)
            lines.append("  " + (self._paint(text, "green" if added else "red") if added or removed else text))
        if len(body) > MAX_DIFF_LINES:
            lines.append(self._paint(f"  … {len(body) - MAX_DIFF_LINES} more lines", "dim"))
        return "\n".join(lines)

    def _indent(self, text: str, style: Any) -> str:
        lines = text.splitlines() or [""]
        indented = [self._paint(f"  {_one_line(line)}", style) for line in lines[:MAX_LINES]]
        if len(lines) > MAX_LINES:
            indented.append(self._paint(f"  … {len(lines) - MAX_LINES} more lines", "dim"))
        return "\n".join(indented)


def _one_line(text: str) -> str:
    text = text.replace("\t", "    ").replace("\n", "⏎")
    return truncate(text, WIDTH)
