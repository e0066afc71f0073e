"""What a sub-agent does, as it happens: told to whoever watches its parent, and counted for its report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from wieldy.core.event import AgentEvent, Event, ModelAnswered, ToolFailed, ToolProgress, ToolStarted
from wieldy.core.outcome import Refused
from wieldy.core.record import record
from wieldy.core.tool import Tool
from wieldy.engine.events import Events

MOST_STEPS = 1_000
MOST_DENIED = 20
LONGEST_LINE = 200


@record
class Identity:
    """Which sub-agent it is: its id, its kind, and the call of its parent that it works for."""

    id: str
    type: str
    call_id: str


class Watch(Events):
    """The events of a sub-agent. Each goes on to the parent's with the agent's name on it; the rest is a tally."""

    def __init__(self, above: Events, agent: Identity, find: Callable[[str], Tool | None]) -> None:
        super().__init__()
        self.heard = True
        self.closely = above.closely
        self._above = above
        self._agent = agent
        self._find = find
        self.steps: list[str] = []
        self.denied: list[str] = []
        self.usage: dict[str, int] = {}
        self.turns = 0
        self.said = ""

    def emit(self, event: Event) -> None:
        """Take an event into account, and pass it on."""
        inner = event.event if isinstance(event, AgentEvent) else event
        self._count(inner, own=inner is event)
        if self._above.heard:
            self._above.emit(event if isinstance(event, AgentEvent) else self._named(event))

    def _named(self, event: Event) -> AgentEvent:
        agent = self._agent
        return AgentEvent(call_id=agent.call_id, agent_id=agent.id, agent_type=agent.type, event=event)

    def _count(self, event: Event, *, own: bool) -> None:
        match event:
            case ModelAnswered():
                for name, number in vars(event.usage).items():
                    self.usage[name] = self.usage.get(name, 0) + number
                if own:
                    self.turns += 1
                    self.said = _words(event) or self.said
            case ToolFailed() if isinstance(event.result.outcome, Refused):
                if event.result.outcome.stage in ("permission", "hook") and len(self.denied) < MOST_DENIED:
                    self.denied.append(_one_line(event.result.text))
            case ToolStarted() if own:
                self._step(_one_line(self._shown(event.name, event.input)))

    def _step(self, step: str) -> None:
        if len(self.steps) < MOST_STEPS:
            self.steps.append(step)
        if self._above.heard:
            text = f"{self._agent.type}: {step}"
            self._above.emit(ToolProgress(call_id=self._agent.call_id, name="Agent", text=text))

    def _shown(self, name: str, input: Mapping[str, Any]) -> str:
        tool = self._find(name)
        return tool.show_use(input) if tool is not None else name


def _words(event: ModelAnswered) -> str:
    return "\n".join(block["text"] for block in event.content if block["type"] == "text").strip()


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…"
