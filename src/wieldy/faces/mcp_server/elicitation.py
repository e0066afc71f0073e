"""Elicitation: how the questions of a running call reach the user behind an MCP client.

`DirectElicitor` asks while the call waits. `RetryElicitor` ends the call, and the client repeats it with the answer, as protocol
versions since 2026 do. `NoElicitor` is for a client that cannot ask.
"""

from __future__ import annotations

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
from wieldy.core.user_questions import UserAnswer, UserQuestion
from wieldy.faces.mcp_server.forms import (
    Form,
    FormResponse,
    parse_answers,
    parse_permission,
    permission_form,
    question_form,
)

Context: TypeAlias = ServerRequestContext[Any, Any]

MAX_PENDING_CALLS = 1_000
LISTS_SINCE = "2025-11-25"


class UserUnreachable(Exception):
    """Nobody can be asked; the message says why."""


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
        """Ask a permission question. Raises `Refusal` where nobody can be reached."""
        elicitor = self._elicitors.get(question.plan.call.id) or NoElicitor()
        try:
            return parse_permission(question, await elicitor.elicit(permission_form(question)))
        except UserUnreachable as error:
            decision, name = question.decision, question.plan.tool.name
            rule = f" The user can allow it with the rule `{decision.suggestions[0]}`." if decision.suggestions else ""
            problem = f"Permission denied for {name}: {decision.why}, and {error}.{rule}"
            next_step = "Go on without it, or say what you would need."
            person = f"not permitted: {decision.explanation}, and {error}"
            raise Refusal("permission", problem, next_step, person=person, data=decision) from None

    async def answer(self, questions: Sequence[UserQuestion]) -> Sequence[UserAnswer] | None:
        """Ask the questions of a tool. Raises `Refusal` where nobody can be reached."""
        elicitor = _elicitor.get() or NoElicitor()
        try:
            form = question_form(questions, allow_lists=self._allow_lists)
            return parse_answers(questions, await elicitor.elicit(form))
        except UserUnreachable as error:
            raise Refusal(
                "permission", f"Nobody can answer: {error}.", "Choose what is safest, go on, and say what you assumed."
            ) from None
