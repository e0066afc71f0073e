"""Questions to the person through the client: which clients can show forms, the form of each question, and the answers."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeAlias

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from msgspec import Struct

from wieldy.core.decision import Answer, Question
from wieldy.core.errors import Refusal
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


Context: TypeAlias = ServerRequestContext[Any, Any]

MAX_PENDING_CALLS = 1_000
LISTS_SINCE = "2025-11-25"


class UserUnreachable(Exception):
    """No person can be asked; the message says why."""


class Elicitor(Protocol):
    """Has a form filled in for one call."""

    async def elicit(self, form: Form) -> FormResponse:
        """Return the response. Raises `UserUnreachable`, or `Refusal` where the call must end for it."""
        ...


class NoElicitor:
    """For a client that cannot ask its user."""

    async def elicit(self, form: Form) -> FormResponse:
        raise UserUnreachable("this MCP client cannot ask its user (it does not offer elicitation)")


class DirectElicitor:
    """Asks the client while the call waits."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    async def elicit(self, form: Form) -> FormResponse:
        try:
            result = await self._ctx.session.elicit_form(
                form.message, form.schema, related_request_id=self._ctx.request_id
            )
        except (MCPError, ValueError) as error:  # ValueError: the response is not an elicitation result
            reason = " ".join(str(error).split())[:200]
            raise UserUnreachable(f"the MCP client could not ask its user ({reason})") from None
        return FormResponse(result.action, result.content)


class InputRequired(Struct, frozen=True):
    """The data of a call that ended because this form must be filled in first."""

    form: Form

    def as_request(self) -> types.ElicitRequest:
        return types.ElicitRequest(
            params=types.ElicitRequestFormParams(message=self.form.message, requested_schema=self.form.schema)
        )


class RetryElicitor:
    """Ends the call with the question; the client repeats the call with the answer."""

    def __init__(self, form: Form | None = None, result: types.ElicitResult | None = None) -> None:
        self._form = form
        self._result = result

    async def elicit(self, form: Form) -> FormResponse:
        """Return the answer that came with the call if it answers this very question; else end the call."""
        result, self._result = self._result, None
        if self._form is None or result is None or self._form.subject != form.subject:
            raise Refusal("permission", "The user is being asked.", data=InputRequired(form))
        return FormResponse(result.action, result.content)


class CallSlots:
    """Bounds the calls that run side by side: those of one client, and those of all."""

    def __init__(self, own: asyncio.Semaphore, shared: asyncio.Semaphore) -> None:
        self._own = own
        self._shared = shared

    async def __aenter__(self) -> None:
        await self._own.acquire()
        try:
            await self._shared.acquire()
        except BaseException:
            self._own.release()
            raise

    async def __aexit__(self, *error: object) -> None:
        self._shared.release()
        self._own.release()


class SlotFreeElicitor:
    """Asks without a slot: clients whose users do not answer hold up no other."""

    def __init__(self, elicitor: Elicitor, slots: CallSlots) -> None:
        self._elicitor = elicitor
        self._slots = slots

    async def elicit(self, form: Form) -> FormResponse:
        await self._slots.__aexit__()
        try:
            return await self._elicitor.elicit(form)
        finally:
            await self._slots.__aenter__()


class PendingCall(Struct, frozen=True):
    """A call that was sent back for input: a form, or the client's roots."""

    name: str
    arguments: Mapping[str, Any]
    form: Form | None = None


class PendingCalls:
    """Calls that were sent back, by the token each must return with. A token is valid once, for the same call."""

    def __init__(self, max_calls: int = MAX_PENDING_CALLS) -> None:
        self._max_calls = max_calls
        self._calls: OrderedDict[str, PendingCall] = OrderedDict()

    def add(self, call: PendingCall) -> str:
        """Return a token for a call; the oldest becomes invalid when there are too many."""
        token = secrets.token_urlsafe(16)
        self._calls[token] = call
        while len(self._calls) > self._max_calls:
            self._calls.popitem(last=False)
        return token

    def pop(self, token: str, name: str, arguments: Mapping[str, Any]) -> PendingCall | None:
        """Return the call of a token; None for an unknown token or one of another call."""
        call = self._calls.pop(token, None)
        if call is None or call.name != name or call.arguments != arguments:
            return None
        return call


def supports_elicitation(capabilities: types.ClientCapabilities | None) -> bool:
    """Return whether a client can show a form. One that names no kind of elicitation means forms."""
    elicitation = capabilities.elicitation if capabilities else None
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


# A tool that asks runs in a task of its call, so the call's elicitor travels in the context.
_elicitor: ContextVar[Elicitor | None] = ContextVar("elicitor", default=None)


class ClientQuestions:
    """Asks permission questions and questions of tools, each through the elicitor of its call."""

    def __init__(self) -> None:
        self._elicitors: dict[str, Elicitor] = {}
        self._allow_lists = False
        self.available = False

    def use_client(self, ctx: Context) -> None:
        """Learn from a request what its client supports; tools that ask are offered only if it can."""
        self._allow_lists = ctx.protocol_version >= LISTS_SINCE
        self.available = supports_elicitation(ctx.session.client_capabilities)

    @contextmanager
    def use_elicitor(self, call_id: str, elicitor: Elicitor) -> Iterator[None]:
        """Send the questions of a call through this elicitor while the block lasts."""
        self._elicitors[call_id] = elicitor
        token = _elicitor.set(elicitor)
        try:
            yield
        finally:
            _elicitor.reset(token)
            del self._elicitors[call_id]

    async def ask(self, question: Question) -> Answer:
        """Ask a permission question. Raises `Refusal` where no person can be reached."""
        elicitor = self._elicitors.get(question.plan.call.id) or NoElicitor()
        try:
            return parse_permission(question, await elicitor.elicit(permission_form(question)))
        except UserUnreachable as error:
            decision, name = question.decision, question.plan.tool.name
            rule = f" The user can allow it with the rule `{decision.suggestions[0]}`." if decision.suggestions else ""
            problem = f"Permission denied for {name}: {decision.why}, and {error}.{rule}"
            next_step = "Continue without it, or say what you would need."
            person = f"not permitted: {decision.explanation}, and {error}"
            raise Refusal("permission", problem, next_step, person=person, data=decision) from None

    async def answer(self, questions: Sequence[UserQuestion]) -> Sequence[UserAnswer] | None:
        """Ask the questions of a tool. Raises `Refusal` where no person can be reached."""
        elicitor = _elicitor.get() or NoElicitor()
        try:
            form = question_form(questions, allow_lists=self._allow_lists)
            return parse_answers(questions, await elicitor.elicit(form))
        except UserUnreachable as error:
            raise Refusal(
                "permission",
                f"No answer is possible: {error}.",
                "Choose what is safest, continue, and say what you assumed.",
            ) from None
