"""Our tools for any MCP client. The modules import the SDK, so import them when serving begins."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, cast

import anyio

from wieldy.core.errors import SessionError
from wieldy.engine.services import Ask
from wieldy.engine.toolbox import Toolbox
from wieldy.faces.mcp_server.http import PATH, Address, SessionPool, check_token, parse_address, serve_http
from wieldy.faces.mcp_server.server import ClientSession, MakeToolbox, RequestHandlers, SingleSession
from wieldy.faces.mcp_server.stdio import serve_stdio

ToolboxFactory: TypeAlias = Callable[[Ask], Toolbox] | MakeToolbox


async def serve_mcp(
    make_toolbox: ToolboxFactory,
    *,
    http: int | str | Address | None = None,
    token: str | None = None,
    allow_hosts: Iterable[str] = (),
    on_ready: Callable[[str], None] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve tools to MCP clients until the client leaves (stdio), `stop` is set, or the task is cancelled.

    `make_toolbox` is called for each client with the function that asks its user, to be passed on as `Toolbox(ask=…)`. If it
    takes two arguments, the second is for `Toolbox(host=…)`: then AskUser is offered, too.
    `http` is a port or `HOST:PORT`; without it there is one client, on stdin and stdout. Clients must send `token` as bearer
    token; an address that other machines can reach requires one. `on_ready` gets the URL when the server accepts connections.
    Raises `SessionError` if it cannot listen there.
    """
    factory = _with_host(make_toolbox)
    stop = stop or asyncio.Event()
    if http is None:
        await _serve_stdio(factory, stop)
        return
    address = http if isinstance(http, Address) else parse_address(str(http))
    if problem := check_token(address, token, required=False):
        raise SessionError(problem)
    await serve_http(
        SessionPool(factory),
        address,
        stop,
        token=token,
        hosts=tuple(allow_hosts),
        on_ready=lambda bound: on_ready(f"http://{bound}{PATH}") if on_ready else None,
    )


def _with_host(make_toolbox: ToolboxFactory) -> MakeToolbox:
    """The factory with two arguments, whether it takes the second or not."""
    if not callable(make_toolbox):
        raise TypeError(
            f"serve_mcp takes a function that makes a toolbox: lambda ask: Toolbox(…, ask=ask), not {make_toolbox!r}"
        )
    if len(inspect.signature(make_toolbox).parameters) > 1:
        return cast(MakeToolbox, make_toolbox)
    simple = cast(Callable[[Ask], Toolbox], make_toolbox)

    def with_host(ask: Ask, host: Any) -> Toolbox:
        return simple(ask)

    return with_host


async def _serve_stdio(make_toolbox: MakeToolbox, stop: asyncio.Event) -> None:
    session = ClientSession(make_toolbox)
    try:
        await session.open()
        async with anyio.create_task_group() as group:

            async def cancel_on_stop() -> None:
                await stop.wait()
                group.cancel_scope.cancel()

            group.start_soon(cancel_on_stop)
            await serve_stdio(RequestHandlers(SingleSession(session)).create_server())
            group.cancel_scope.cancel()
    finally:
        await session.aclose()
