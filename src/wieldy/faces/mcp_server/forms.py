"""Forms for elicitation: permission questions and questions of tools as JSON Schema, and filled-in forms as answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from wieldy.core.decision import Answer, Question
from wieldy.core.text import escape_invisible
from wieldy.core.user_questions import UserAnswer, UserQuestion

ALLOW = "Allow once"
DENY = "Deny"
MAX_SHOWN_CHARS = 10_000


class Form(Struct, frozen=True):
    """A message and a JSON Schema to fill in. Forms with equal `subject` ask the same."""

    message: str
    schema: dict[str, Any]
    subject: Any


class FormResponse(Struct, frozen=True):
    """What the client returned: `accept` with the fields, `decline` or `cancel`."""

    action: str
    content: Mapping[str, Any] | None = None


def permission_form(question: Question) -> Form:
    """Build the form of a permission question: the whole input as far as it fits, and why the user is asked."""
    plan, decision = question.plan, question.decision
    lines = [f"{plan.tool.title or plan.tool.name} wants to run:"]
    for name, value in plan.input.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        lines.append(f"{name}: {make_visible(text)}")
    lines.append(f"Why you are asked: {make_visible(decision.explanation)}")
    choices = [ALLOW, *filter(None, (_always_choice(question),)), DENY]
    schema = {
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
    return Form("\n".join(lines), schema, (plan.tool.name, plan.input, decision.suggestions))


def parse_permission(question: Question, response: FormResponse) -> Answer:
    """Convert a response to a permission form. Only an explicit choice is a yes."""
    content = response.content or {}
    words = str(content.get("words") or "").strip()
    if response.action == "cancel":
        return Answer(False, words or "the question was dismissed without an answer")
    choice = content.get("decision") if response.action == "accept" else None
    if choice == ALLOW:
        return Answer(True)
    if choice is not None and choice == _always_choice(question):
        return Answer(True, remember=question.decision.suggestions)
    return Answer(False, words)


def _always_choice(question: Question) -> str | None:
    """Return the choice that saves rules; None where no rule would help."""
    rules = question.decision.suggestions
    return f"Always allow {make_visible(', '.join(rules))}" if rules else None


def question_form(questions: Sequence[UserQuestion], *, allow_lists: bool) -> Form:
    """Build one form for all questions. Without `allow_lists` (older clients) only one option of each can be chosen."""
    fields: dict[str, Any] = {}
    required: list[str] = []
    for number, question in enumerate(questions, start=1):
        title = make_visible(question.question)
        options = [*dict.fromkeys(map(make_visible, question.options))]
        if options:
            choice: dict[str, Any] = {"type": "string", "enum": options}
            if question.several and allow_lists:
                choice = {"type": "array", "items": choice}
            fields[f"choice_{number}"] = {"title": title, **choice}
        else:
            required.append(f"words_{number}")
        fields[f"words_{number}"] = {"type": "string", "title": "In your own words" if options else title}
    titles = [make_visible(question.question) for question in questions]
    numbered = (f"{number}. {title}" for number, title in enumerate(titles, start=1))
    message = "\n".join(numbered) if len(titles) > 1 else titles[0]
    return Form(message, {"type": "object", "properties": fields, "required": required}, tuple(questions))


def parse_answers(questions: Sequence[UserQuestion], response: FormResponse) -> list[UserAnswer] | None:
    """Convert a response to a question form; None where the user did not answer."""
    if response.action != "accept":
        return None
    content = response.content or {}
    answers = [_parse_answer(question, content, number) for number, question in enumerate(questions, start=1)]
    return answers if any(map(str, answers)) else None


def _parse_answer(question: UserQuestion, content: Mapping[str, Any], number: int) -> UserAnswer:
    choice, words = content.get(f"choice_{number}"), content.get(f"words_{number}")
    choices = choice if isinstance(choice, list) else [choice]
    options = {make_visible(option): option for option in question.options}
    return UserAnswer(
        tuple(options[each] for each in choices if isinstance(each, str) and each in options),
        words.strip() if isinstance(words, str) else "",
    )


def make_visible(text: str) -> str:
    """Truncate a long text and escape invisible characters, so that nothing hides in a question."""
    if len(text) > MAX_SHOWN_CHARS:
        text = f"{text[:MAX_SHOWN_CHARS]}… ({len(text) - MAX_SHOWN_CHARS:,} more characters)"
    return escape_invisible(text)
