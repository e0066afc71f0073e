"""Questions of substance as a form that an MCP client shows its user, and the filled-in form as replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wieldy.core.user_questions import UserAnswer, UserQuestion
from wieldy.mcp.server.permission_form import Form, shown


def form_of(inquiries: Sequence[UserQuestion], *, lists: bool) -> Form:
    """One form for all questions. Without `lists`, which older clients do not know, one option can be chosen of each."""
    fields: dict[str, Any] = {}
    required: list[str] = []
    for number, inquiry in enumerate(inquiries, start=1):
        question = shown(inquiry.question)
        options = [*dict.fromkeys(map(shown, inquiry.options))]
        if options:
            fields[_choice(number)] = {"title": question, **_choices(options, several=inquiry.several and lists)}
        title = "In your own words" if options else question
        fields[_words(number)] = {"type": "string", "title": title}
        if not options:
            required.append(_words(number))
    asked = "\n".join(f"{number}. {shown(each.question)}" for number, each in enumerate(inquiries, start=1))
    message = asked if len(inquiries) > 1 else shown(inquiries[0].question)
    return Form(message, {"type": "object", "properties": fields, "required": required}, tuple(inquiries))


def replies(
    inquiries: Sequence[UserQuestion], action: str, content: Mapping[str, Any] | None
) -> list[UserAnswer] | None:
    """What the user said, or None where they did not want to answer. Only options that were there count as chosen."""
    if action != "accept":
        return None
    said = content or {}
    found = [_reply(inquiry, said, number) for number, inquiry in enumerate(inquiries, start=1)]
    return found if any(map(str, found)) else None


def _reply(inquiry: UserQuestion, said: Mapping[str, Any], number: int) -> UserAnswer:
    chosen = said.get(_choice(number))
    wanted = chosen if isinstance(chosen, list) else [chosen]
    options = {shown(option): option for option in inquiry.options}
    words = said.get(_words(number))
    return UserAnswer(
        tuple(options[each] for each in wanted if isinstance(each, str) and each in options),
        words.strip() if isinstance(words, str) else "",
    )


def _choices(options: list[str], *, several: bool) -> dict[str, Any]:
    if several:
        return {"type": "array", "items": {"type": "string", "enum": options}}
    return {"type": "string", "enum": options}


def _choice(number: int) -> str:
    return f"choice_{number}"


def _words(number: int) -> str:
    return f"words_{number}"
