"""The way from a running call to the user behind the client: at once, by way of the answer, or not at all."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from wieldy.core.failure import Refusal
from wieldy.mcp.server_form import Form

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
