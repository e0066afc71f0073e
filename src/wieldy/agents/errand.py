"""What a sub-agent is sent to do, and what it reports: said so that whoever sent it can go on, however it ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wieldy.agents.definition import Definition
from wieldy.core.record import field, record

LAST_STEPS = 20


@record
class Errand:
    """A task for one sub-agent. `tools` narrows what its kind may use; `resumes` names an earlier one to go on with."""

    definition: Definition
    prompt: str
    description: str = ""
    tools: tuple[str, ...] | None = None
    resumes: str | None = None

    @property
    def title(self) -> str:
        """A few words for a person."""
        return self.description or " ".join(self.prompt.split())[:60]


@record
class Report:
    """How an errand ended, or how far it is: `why` is a word, `text` the agent's last words."""

    agent_id: str
    agent_type: str
    why: str
    detail: str = ""
    text: str = ""
    turns: int = 0
    steps: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    usage: Mapping[str, int] = field(default_factory=dict)
    cost: float = 0.0
    seconds: float = 0.0
    transcript: str | None = None

    @property
    def done(self) -> bool:
        """Whether the agent came to an end of its own."""
        return self.why == "done"

    def told(self) -> str:
        """What its parent reads."""
        if self.done:
            parts = [self.text or f"(the {self.agent_type} agent ended without a word)"]
        else:
            parts = [f"The {self.agent_type} agent did not finish: {self.detail or self.why}."]
            parts += [f"Its last words:\n{self.text}"] if self.text else []
            parts += [self._done_so_far()]
        if self.denied:
            parts.append("It was not permitted:\n" + "\n".join(f"- {line}" for line in self.denied))
        return "\n\n".join([*parts, f"[{self.summary()}]"])

    def summary(self) -> str:
        """One line: which agent, how much it did, what that cost, and how to go on with it."""
        again = "" if self.why == "running" else "; `agent_id` with a `prompt` goes on with it"
        return f"{self.account()}{again}"

    def account(self) -> str:
        """Which agent, how much it did, and what that cost."""
        spent = [_counted(self.turns, "turn"), _counted(len(self.steps), "tool use")]
        if tokens := sum(self.usage.values()):
            spent.append(f"{tokens:,} tokens")
        if self.cost:
            spent.append(f"${self.cost:.4f}")
        return f"{self.agent_type} agent {self.agent_id}: {', '.join(spent)}, {self.seconds:.1f} s"

    def data(self) -> dict[str, Any]:
        """The report for a program."""
        return {
            "agentId": self.agent_id,
            "agentType": self.agent_type,
            "status": self.why,
            "detail": self.detail,
            "result": self.text,
            "turns": self.turns,
            "toolUses": len(self.steps),
            "denied": list(self.denied),
            "usage": dict(self.usage),
            "costUSD": self.cost,
            "seconds": round(self.seconds, 3),
            "transcript": self.transcript,
        }

    def _done_so_far(self) -> str:
        if not self.steps:
            return "It had called no tool."
        shown = self.steps[-LAST_STEPS:]
        left_out = f"(the last {len(shown)} of {len(self.steps)})\n" if len(shown) < len(self.steps) else ""
        return f"What it had done until then:\n{left_out}" + "\n".join(f"- {step}" for step in shown)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
