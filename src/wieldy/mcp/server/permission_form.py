"""A permission question as a form that an MCP client shows its user, and the filled-in form as an answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from wieldy.core.decision import Answer, Question

ALLOW = "Allow once"
DENY = "Deny"
MOST_SHOWN = 10_000


class Form(Struct, frozen=True):
    """What a user is shown and may fill in. Two forms that are `about` the same ask the same."""

    message: str
    schema: dict[str, Any]
    about: Any


def form_of(question: Question) -> Form:
    """The form of a permission question."""
    plan, decision = question.plan, question.decision
    return Form(message(question), schema(question), (plan.tool.name, plan.input, decision.suggestions))


def message(question: Question) -> str:
    """What the user reads: the whole input as far as it fits, and why it is asked about."""
    plan = question.plan
    lines = [f"{plan.tool.title or plan.tool.name} wants to run:"]
    for name, value in plan.input.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        lines.append(f"{name}: {shown(text)}")
    lines.append(f"Why you are asked: {shown(question.decision.why)}")
    return "\n".join(lines)


def always(question: Question) -> str | None:
    """The choice that makes rules of a yes; None where no rule would do."""
    rules = question.decision.suggestions
    return f"Always allow {shown(', '.join(rules))}" if rules else None


def schema(question: Question) -> dict[str, Any]:
    """The form: one choice, and words for the model where it is a no."""
    choices = [ALLOW, *filter(None, (always(question),)), DENY]
    return {
        "type": "object",
        "properties": {
            "decision": {"type": "string", "title": "Decision", "enum": choices},
            "words": {
                "type": "string",
                "title": "Instead",
                "description": "If you deny: what should be done instead (the model reads it)",
            },
        },
        "required": ["decision"],
    }


def answer(question: Question, action: str, content: Mapping[str, Any] | None) -> Answer:
    """What the user said. Only a form that says so plainly is a yes."""
    said = content or {}
    words = str(said.get("words") or "").strip()
    if action == "cancel":
        return Answer(False, words or "the question was dismissed without an answer")
    if action != "accept":
        return Answer(False, words)
    match said.get("decision"):
        case str(choice) if choice == ALLOW:
            return Answer(True)
        case str(choice) if choice == always(question):
            return Answer(True, remember=question.decision.suggestions)
    return Answer(False, words)


def shown(text: str) -> str:
    """The text with what cannot be seen written out, so that nothing hides in a question."""
    cut = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}… ({len(text) - MOST_SHOWN:,} more characters)"
    return "".join(c if c.isprintable() or c in "\n\t" else f"⟨U+{ord(c):04X}⟩" for c in cut)
