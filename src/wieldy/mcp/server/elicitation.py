"""The way from a running call to the user behind the client: at once, by way of the answer, or not at all."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from wieldy.core.decision import Answer, Question
from wieldy.core.errors import Refusal
from wieldy.core.user_questions import UserAnswer, UserQuestion, UserQuestions
from wieldy.mcp.server import permission_form as server_form
from wieldy.mcp.server import question_form as server_inquiry
from wieldy.mcp.server.permission_form import Form

if TYPE_CHECKING:
    from wieldy.core.workspace import Workspace


if TYPE_CHECKING:
    import mcp_types as types
    from mcp.server.context import ServerRequestContext

    Context = ServerRequestContext[Any, Any]

MOST_OPEN = 1_000
FORM = "permission"


class Unreachable(Exception):
    """Nobody can be asked; the message says why."""


@dataclass(frozen=True, slots=True)
class Filled:
    """What came back of a form: `accept` with its fields, `decline` or `cancel`."""

    action: str
    content: Mapping[str, Any] | None = None


class Door(Protocol):
    """How the questions of one call reach a person."""

    async def fill(self, form: Form) -> Filled:
        """Have a form filled in. Raises `Unreachable`, or `Refusal` where the call must end for it."""
        ...


class Shut:
    """The client cannot ask its user: what would be asked is denied, with the reason."""

    async def fill(self, form: Form) -> Filled:
        """Say that nobody can be asked."""
        raise Unreachable("this MCP client cannot ask its user (it does not offer elicitation)")


class Open:
    """The client is asked while the call waits."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    async def fill(self, form: Form) -> Filled:
        """Show the form and wait for it."""
        from mcp.shared.exceptions import MCPError

        try:
            said = await self._ctx.session.elicit_form(
                form.message, form.schema, related_request_id=self._ctx.request_id
            )
        except (MCPError, ValueError) as error:  # the second: what came back is no answer
            raise Unreachable(f"the MCP client could not ask its user ({_one_line(error)})") from None
        return Filled(said.action, said.content)


@dataclass(frozen=True, slots=True)
class AskFirst:
    """The call cannot go on before this is filled in; it comes again with the answer."""

    form: Form

    def request(self) -> types.ElicitRequest:
        """The form as the client shows it to its user."""
        import mcp_types as types

        return types.ElicitRequest(
            params=types.ElicitRequestFormParams(message=self.form.message, requested_schema=self.form.schema)
        )


class Revolving:
    """There is no way to a waiting client: the call ends with the question and is made again with the answer."""

    def __init__(self, asked: Form | None = None, said: types.ElicitResult | None = None) -> None:
        self._asked = asked
        self._said = said

    async def fill(self, form: Form) -> Filled:
        """The answer that came with the call, if it is one to this very question; else end the call with it."""
        asked, said, self._said = self._asked, self._said, None
        if asked is None or said is None or asked.about != form.about:
            raise Refusal("permission", "The user is being asked.", data=AskFirst(form))
        return Filled(said.action, said.content)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A call that was sent back for input."""

    name: str
    arguments: Mapping[str, Any]
    form: Form | None = None


class Counter:
    """Calls that were sent back, by the token each must come again with. A token is good once."""

    def __init__(self, most: int = MOST_OPEN) -> None:
        self._most = most
        self._waiting: OrderedDict[str, Waiting] = OrderedDict()

    def hand_out(self, waiting: Waiting) -> str:
        """A token for a call; the oldest is void when too many are out."""
        token = secrets.token_urlsafe(16)
        self._waiting[token] = waiting
        while len(self._waiting) > self._most:
            self._waiting.popitem(last=False)
        return token

    def take_back(self, token: str, name: str, arguments: Mapping[str, Any]) -> Waiting | None:
        """The call a token stands for; None where it is not known, or was handed out for another call."""
        waiting = self._waiting.pop(token, None)
        if waiting is None or waiting.name != name or waiting.arguments != arguments:
            return None
        return waiting


def asks_users(capabilities: types.ClientCapabilities | None) -> bool:
    """Whether a client can show its user a form. One that names no kind of elicitation means forms."""
    offered = capabilities.elicitation if capabilities else None
    return offered is not None and (offered.form is not None or offered.url is None)


LISTS_SINCE = "2025-11-25"

# A tool that asks does so in a task that its call started, so the call's door goes along with the context.
_door: ContextVar[Door | None] = ContextVar("door", default=None)


class Asking:
    """Permission questions and the tools' own, each by the door of its call."""

    def __init__(self) -> None:
        self._doors: dict[str, Door] = {}
        self._lists = False

    def meet(self, ctx: Context, workspace: Workspace) -> None:
        """Learn from a request whether its client has a user who can be asked; tools that ask are offered only then."""
        self._lists = ctx.protocol_version >= LISTS_SINCE
        asked = asks_users(ctx.session.client_capabilities)
        workspace.service(UserQuestions).handler = self if asked else None

    @contextmanager
    def through(self, call_id: str, door: Door) -> Iterator[None]:
        """For as long as a call lasts, its questions go through this door."""
        self._doors[call_id] = door
        before = _door.set(door)
        try:
            yield
        finally:
            _door.reset(before)
            del self._doors[call_id]

    async def ask(self, question: Question) -> Answer:
        """Put a permission question. Raises `Refusal` where nobody can be reached."""
        door = self._doors.get(question.plan.call.id, SHUT)
        try:
            filled = await door.fill(server_form.form_of(question))
        except Unreachable as why:
            raise _unasked(question, str(why)) from None
        return server_form.answer(question, filled.action, filled.content)

    async def answer(self, inquiries: Sequence[UserQuestion]) -> Sequence[UserAnswer] | None:
        """Put questions of substance. Raises `Refusal` where nobody can be reached."""
        door = _door.get() or SHUT
        try:
            filled = await door.fill(server_inquiry.form_of(inquiries, lists=self._lists))
        except Unreachable as why:
            raise Refusal(
                "permission", f"Nobody can answer: {why}. Choose what is safest, go on, and say what you assumed."
            ) from None
        return server_inquiry.replies(inquiries, filled.action, filled.content)


SHUT = Shut()


def _unasked(question: Question, why: str) -> Refusal:
    decision, name = question.decision, question.plan.tool.name
    rule = f" The user can allow it with the rule `{decision.suggestions[0]}`." if decision.suggestions else ""
    return Refusal(
        "permission",
        f"Permission denied for {name}: {decision.why}, and {why}.{rule} Go on without it, or say what you would need.",
        data=decision,
    )
