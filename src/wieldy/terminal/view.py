"""Events → what is written on the screen, one after the other. Pure: the same events always give the same text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

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
from wieldy.terminal.questions import Paint

MOST_LINES = 8
MOST_DIFF_LINES = 24
WIDTH = 110
_HUNK = re.compile(r"^@@ .* @@", re.MULTILINE)


class View:
    """Follows a run. `find` gives the tool of a name, for its own way of being shown."""

    def __init__(self, find: Callable[[str], Tool | None], paint: Paint) -> None:
        self._find = find
        self._paint = paint
        self._speaking = ""

    def show(self, event: Event) -> str:
        """What an event adds to the screen; empty for those a person need not see."""
        if isinstance(event, ModelTextDelta):
            return self._said(event)
        shown = self._line(event)
        if shown is None:
            return ""
        before = "\n" if self._speaking else ""
        self._speaking = ""
        return f"{before}{shown}\n"

    def _said(self, event: ModelTextDelta) -> str:
        kind = "thinking" if event.thinking else "text"
        before = "" if self._speaking in ("", kind) else "\n"
        self._speaking = kind
        return before + (self._paint(event.text, "dim") if event.thinking else event.text)

    def _line(self, event: Event) -> str | None:
        match event:
            case AgentEvent():
                return self._inside(event)
            case ToolStarted(name="AskUser"):
                return None  # the questions stand on the screen already
            case ToolStarted():
                return self._paint("● ", "cyan") + self._paint(self._use(event.name, event.input), "bold")
            case ToolCancelled():
                return self._indented(event.result.text, "yellow")
            case ToolFailed() if isinstance(event.result.outcome, Refused):
                return self._refused(event)
            case ToolFailed():
                return self._indented(event.result.text, "red")
            case ToolEnded():
                return self._result(event.name, event.result)
            case PermissionDecided() if event.answer is not None and event.answer.allowed:
                return self._paint("  allowed", "dim")
            case Retried():
                return self._paint(f"  {event.why}; once more in {event.seconds:.0f} s", "yellow")
            case Compacted():
                text = f"  the conversation was shortened: {event.tokens_before:,} → {event.tokens_after:,} tokens"
                return self._paint(text, "dim")
            case Notice():
                return self._paint(f"  {event.text}", "dim")
            case RunEnded() if event.is_error:
                return self._paint(f"stopped: {event.detail or event.why}", "red")
            case RunEnded() if event.why == "interrupted":
                return self._paint("interrupted", "yellow")
        return None

    def _inside(self, event: AgentEvent) -> str | None:
        """What a sub-agent does: its tools and what was denied to it, a line each; the rest is in its report."""
        match event.event:
            case ToolStarted(name=name, input=input):
                return self._paint(f"  ↳ {event.agent_type}: {self._use(name, input)}", "dim")
            case ToolFailed(result=result) if isinstance(result.outcome, Refused):
                return self._paint(f"  ↳ {event.agent_type}: {_one_line(result.text)}", "red")
            case Notice(text=text):
                return self._paint(f"  ↳ {event.agent_type}: {_one_line(text)}", "dim")
        return None

    def _use(self, name: str, input: Mapping[str, Any]) -> str:
        tool = self._find(name)
        return _one_line(tool.show_use(input) if tool else name)

    def _refused(self, event: ToolFailed) -> str:
        return f"{self._paint('● ', 'red')}{event.name}\n{self._indented(event.result.text, 'red')}"

    def _result(self, name: str, result: ToolResult) -> str:
        if _HUNK.search(result.text):
            return self._diff(result.text)
        tool = self._find(name)
        return self._indented(tool.show_result(result) if tool else result.text, "dim")

    def _diff(self, text: str) -> str:
        first, _, rest = text.partition("\n")
        lines = [f"  {_one_line(first)}"]
        body = [line for line in rest.splitlines() if line.startswith(("+", "-", "@@", " "))]
        for line in body[:MOST_DIFF_LINES]:
            if line.startswith(("+++", "---")):
                continue
            added, removed = line.startswith("+"), line.startswith("-")
            painted = _one_line(line)
            lines.append("  " + (self._paint(painted, "green" if added else "red") if added or removed else painted))
        if len(body) > MOST_DIFF_LINES:
            lines.append(self._paint(f"  … {len(body) - MOST_DIFF_LINES} more lines", "dim"))
        return "\n".join(lines)

    def _indented(self, text: str, style: Any) -> str:
        lines = text.splitlines() or [""]
        shown = [self._paint(f"  {_one_line(line)}", style) for line in lines[:MOST_LINES]]
        if len(lines) > MOST_LINES:
            shown.append(self._paint(f"  … {len(lines) - MOST_LINES} more lines", "dim"))
        return "\n".join(shown)


def _one_line(text: str) -> str:
    text = text.replace("\t", "    ").replace("\n", "⏎")
    return truncate(text, WIDTH)
