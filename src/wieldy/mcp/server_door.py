"""The way from a running call to the user behind the client: at once, by way of the answer, or not at all."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from wieldy.core.decision import Answer, Question
from wieldy.core.failure import Refusal
from wieldy.mcp import server_form as form

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.server.context import ServerRequestContext

    Context = ServerRequestContext[Any, Any]

MOST_OPEN = 1_000
PERMISSION = "permission"


class Door(Protocol):
    """How the questions of one call reach a person."""

    async def ask(self, question: Question) -> Answer:
        """Put a question; raises `Refusal` where nobody can be reached."""
        ...


class Shut:
    """The client cannot ask its user: what would be asked is denied, with the reason."""

    async def ask(self, question: Question) -> Answer:
        """Refuse, naming the rule that would have allowed the call."""
        raise _unasked(question, "this MCP client cannot ask its user (it does not offer elicitation)")


class Open:
    """The client is asked while the call waits."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    async def ask(self, question: Question) -> Answer:
        """Show the form and wait for it."""
        from mcp.shared.exceptions import MCPError

        try:
            said = await self._ctx.session.elicit_form(
                form.message(question), form.schema(question), related_request_id=self._ctx.request_id
            )
        except (MCPError, ValueError) as error:  # the second: what came back is no answer
            raise _unasked(question, f"the MCP client could not ask its user ({_one_line(error)})") from None
        return form.answer(question, said.action, said.content)


@dataclass(frozen=True, slots=True)
class AskFirst:
    """The call cannot go on before this is answered; it comes again with the answer."""

    question: Question

    def request(self) -> types.ElicitRequest:
        """The question as the client puts it to its user."""
        import mcp_types as types

        return types.ElicitRequest(
            params=types.ElicitRequestFormParams(
                message=form.message(self.question), requested_schema=form.schema(self.question)
            )
        )


class Revolving:
    """There is no way to a waiting client: the call ends with the question and is made again with the answer."""

    def __init__(self, asked: Question | None = None, said: types.ElicitResult | None = None) -> None:
        self._asked = asked
        self._said = said

    async def ask(self, question: Question) -> Answer:
        """The answer that came with the call, if it is one to this very question; else end the call with it."""
        asked, said, self._said = self._asked, self._said, None
        if asked is None or said is None or not _same(asked, question):
            raise Refusal("permission", "The user is being asked.", data=AskFirst(question))
        return form.answer(question, said.action, said.content)


def _unasked(question: Question, why: str) -> Refusal:
    decision, name = question.decision, question.plan.tool.name
    rule = f" The user can allow it with the rule `{decision.suggestions[0]}`." if decision.suggestions else ""
    return Refusal(
        "permission",
        f"Permission denied for {name}: {decision.why}, and {why}.{rule} Go on without it, or say what you would need.",
        data=decision,
    )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _same(one: Question, other: Question) -> bool:
    return (
        one.plan.tool.name == other.plan.tool.name
        and one.plan.input == other.plan.input
        and one.decision.suggestions == other.decision.suggestions
    )


@dataclass(frozen=True, slots=True)
class Waiting:
    """A call that was sent back for input."""

    name: str
    arguments: Mapping[str, Any]
    question: Question | None = None


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
