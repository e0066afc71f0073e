"""How the SDK's client for one server is made: its transport, its sign-in, and who answers what the server asks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from wieldy.core.record import record
from wieldy.core.workspace import Workspace
from wieldy.mcp.answers import Answers
from wieldy.mcp.config import ServerConfig
from wieldy.mcp.oauth import SignIn
from wieldy.mcp.sampling import Sampling
from wieldy.mcp.state import ServerSaid, State
from wieldy.mcp.stdio import Program, environment, running
from wieldy.mcp.tail import Tail
from wieldy.mcp.transport import remote

MOST_LOGGED = 2_000

Listed: TypeAlias = Callable[[Sequence[Any]], Awaitable[None]]


@record
class Surroundings:
    """What a connection needs of the rest: whom to tell of tools and states, who answers, and who watches processes."""

    workspace: Workspace
    answers: Answers
    listed: Listed
    changed: Callable[[State], None]
    started: Callable[[int], None]
    mark: str
    sampling: Sampling | None = None


@record
class Ears:
    """What is heard of a server beside its answers: its tools changed, it is gone, somebody must sign in at an address."""

    changed: Callable[[], None]
    gone: Callable[[str], None]
    sent_away: Callable[[str], None]


@asynccontextmanager
async def dialled(config: ServerConfig, around: Surroundings, stderr: Tail, ears: Ears) -> AsyncIterator[Any]:
    """A client that is yet to be entered; whatever waits for a sign-in is closed with the block."""
    from mcp.client.client import Client
    from mcp_types import Implementation

    from wieldy import __version__

    sign_in = SignIn(config, around.workspace.env, ears.sent_away) if _may_sign_in(config) else None

    async def told(message: Any) -> None:
        if type(message).__name__ == "ToolListChangedNotification":
            ears.changed()

    async def logged(params: Any) -> None:
        text = params.data if isinstance(params.data, str) else repr(params.data)
        around.workspace.emit(ServerSaid(server=config.name, level=params.level, text=text[:MOST_LOGGED]))

    try:
        auth = sign_in.provider() if sign_in is not None else None
        yield Client(
            _program(config, around, stderr, ears) if config.kind == "stdio" else remote(config, auth),
            cache=None,
            client_info=Implementation(name="wieldy", version=__version__),
            list_roots_callback=around.answers.roots,
            elicitation_callback=around.answers.elicit,
            sampling_callback=around.sampling,
            logging_callback=logged,
            log_level="info",
            message_handler=told,
        )
    finally:
        if sign_in is not None:
            sign_in.close()


def _may_sign_in(config: ServerConfig) -> bool:
    given = any(name.lower() == "authorization" for name in config.headers)
    return config.kind != "stdio" and not given


def _program(config: ServerConfig, around: Surroundings, stderr: Tail, ears: Ears) -> Any:
    workspace = around.workspace
    env = {**workspace.setting("env", dict[str, str]()), **config.env}
    return running(
        Program(
            (config.command, *config.args),
            environment(workspace.env, env, around.mark),
            config.cwd or workspace.root,
            around.mark,
            stderr,
            around.started,
            ears.gone,
        )
    )
