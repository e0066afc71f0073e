"""One server, from its first start to its last: connected by one task that owns it, called from any.

The owner enters the connection, keeps its list of tools fresh, notices its end, and tries again with growing pauses. Calls have
an absolute deadline; one that only reads is tried once more when the connection breaks under it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from wieldy.core.failure import ToolFailure
from wieldy.core.log import log
from wieldy.mcp.config import ServerConfig
from wieldy.mcp.definition import Definition
from wieldy.mcp.dial import Ears, Surroundings, dialled
from wieldy.mcp.fault import is_lost, reason_of
from wieldy.mcp.oauth import SIGN_IN_SECONDS
from wieldy.mcp.roster import PAUSES, follow, must_subscribe, tools_of
from wieldy.mcp.state import State
from wieldy.mcp.tail import Tail
from wieldy.mcp.task import call_as_task

REFRESH = "refresh"
FRUITLESS = 4
STEADY_SECONDS = 5.0
GOODBYE_SECONDS = 3.0

Progressed: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None]]


class Connection:
    """A server and how to call it."""

    def __init__(self, config: ServerConfig, around: Surroundings) -> None:
        self.config = config
        self.state = State("connecting")
        self.stderr = Tail()
        self.client: Any = None
        self._around = around
        self._wakes: asyncio.Queue[str] = asyncio.Queue()
        self._settled = asyncio.Event()
        self._news = asyncio.Event()
        self._attempt: asyncio.Timeout | None = None
        self._closing = False
        self._held = False

    async def run(self) -> None:
        """Own the connection until `close`. Raises nothing."""
        fruitless = 0
        why = ""
        while not self._closing:
            self._forget_wakes()
            self._become(State("connecting", why))
            began, self._held = time.monotonic(), False
            try:
                async with self._connected():
                    why = await self._serve()
            except Exception as error:
                why = reason_of(error, self.config, self.stderr)
                log.info("MCP server %s: %s", self.config.name, why)
                log.debug("MCP server %s", self.config.name, exc_info=error)
                if isinstance(error, FileNotFoundError | PermissionError | NotADirectoryError):
                    fruitless = FRUITLESS
            finally:
                self.client = None
            steady = self._held and time.monotonic() - began > STEADY_SECONDS
            fruitless = 0 if steady else fruitless + 1
            if not self._closing and not (self._held and fruitless <= 1):
                self._become(State("failed", why))
                await self._pause(fruitless)
        self._become(State("closed"))

    def close(self) -> None:
        """Have the owner end it; an attempt to connect is broken off."""
        self._closing = True
        if self.client is None and self._attempt is not None and self._attempt.when() is not None:
            with contextlib.suppress(RuntimeError):
                self._attempt.reschedule(asyncio.get_running_loop().time())
        self._wakes.put_nowait("close")

    def reconnect(self) -> None:
        """Have the owner connect afresh, now."""
        if self.state.word not in ("connecting", "needs approval"):
            self._settled.clear()
            self._wakes.put_nowait("reconnect")

    async def settled(self) -> None:
        """Wait until it is ready or has failed, or waits itself for a person."""
        await self._settled.wait()

    async def signed_in(self) -> None:
        """Wait until nobody has to sign in any more."""
        while self.state.word == "needs approval":
            await self._news.wait()

    async def call(self, tool: Definition, arguments: dict[str, Any], progressed: Progressed | None = None) -> Any:
        """The result of a tool. One that only reads is called once more when the connection breaks. Raises `ToolFailure`."""

        def request(client: Any) -> Awaitable[Any]:
            if tool.as_task:
                return call_as_task(client, tool.name, arguments, self.config.timeout)
            call: Awaitable[Any] = client.call_tool(tool.name, arguments, progress_callback=progressed)
            return call

        return await self.ask(request, again=tool.read_only)

    async def ask(self, request: Callable[[Any], Awaitable[Any]], *, again: bool = False) -> Any:
        """The answer to any request, before the deadline. Raises `ToolFailure`."""
        from mcp.shared.exceptions import MCPError

        name, seconds = self.config.name, self.config.timeout
        try:
            async with asyncio.timeout(seconds):
                for last in (not again, True):
                    client = await self._ready()
                    try:
                        return await request(client)
                    except MCPError as error:
                        if not is_lost(error):
                            raise ToolFailure(
                                f"The MCP server {name} answered with an error: {error.message}"
                            ) from None
                        why = error.message
                    except (OSError, RuntimeError, ValueError) as error:
                        if not is_lost(error):
                            raise ToolFailure(f"The answer of the MCP server {name} cannot be used: {error}") from None
                        why = str(error)
                    self._lost(client, why)
                    if last:
                        break
        except TimeoutError:
            raise ToolFailure(
                f"The MCP server {name} did not answer within {seconds:g} s; the call was cancelled. "
                "It may still have had an effect: look before you repeat it."
            ) from None
        raise ToolFailure(
            f"The MCP server {name} went away during the call ({why}). It is being started again. "
            "The call may have had an effect: look before you repeat it.",
            stderr=self.stderr.last_lines(),
        )

    async def _ready(self) -> Any:
        """The client, once there is one; a server that had failed is given another chance."""
        if self.client is None:
            self.reconnect()
            await self._settled.wait()
        if self.client is None:
            raise ToolFailure(
                f"The MCP server {self.config.name} cannot be reached: {self.state.why or self.state.word}"
            )
        return self.client

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[None]:
        """Connect, learn the tools, and be ready until the block is left; entered and left by the owner alone."""
        ears = Ears(self._tools_changed, lambda why: self._lost(self.client, why), self._sent_away)
        async with dialled(self.config, self._around, self.stderr, ears) as client:
            async with asyncio.timeout(self.config.startup) as self._attempt:
                await client.__aenter__()
            try:
                await self._refresh(client)
                self.client, self._held = client, True
                self._become(State("ready"))
                yield
            finally:
                await self._left(client)

    async def _left(self, client: Any) -> None:
        """Leave. The end of a process is bounded in itself and must not be cut short; a remote server may never say goodbye."""
        limit = None if self.config.kind == "stdio" else GOODBYE_SECONDS
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await client.__aexit__(None, None, None)

    def _tools_changed(self) -> None:
        self._wakes.put_nowait(REFRESH)

    def _sent_away(self, url: str) -> None:
        """The server wants somebody to sign in first: say where, and give them time."""
        if self._attempt is not None and self.client is None:
            with contextlib.suppress(RuntimeError):
                self._attempt.reschedule(asyncio.get_running_loop().time() + SIGN_IN_SECONDS)
        self._become(State("needs approval", f"sign in at {url}"))

    async def _serve(self) -> str:
        """Keep the list of tools fresh until the connection ends; says why it did."""
        import anyio

        client = self.client
        async with anyio.create_task_group() as tasks:
            if must_subscribe(client):
                tasks.start_soon(follow, client, self.config.name, self._tools_changed)
            while (wake := await self._next_wake()) == REFRESH:
                try:
                    await self._refresh(client)
                except Exception as error:
                    # What was offered before is better than nothing.
                    log.warning("MCP server %s changed its tools and cannot list them: %s", self.config.name, error)
            tasks.cancel_scope.cancel()
        return wake

    async def _next_wake(self) -> str:
        """The next thing to see to; several changes of the tools are one."""
        wake = await self._wakes.get()
        while wake == REFRESH and not self._wakes.empty():
            wake = self._wakes.get_nowait()
        return wake

    async def _refresh(self, client: Any) -> None:
        await self._around.listed(await tools_of(client, self.config.name))

    def _lost(self, client: Any, why: str) -> None:
        if client is not None and client is self.client:
            self.client = None
            self._settled.clear()
            self._wakes.put_nowait(why or "the connection was lost")

    def _forget_wakes(self) -> None:
        """What was asked of the last connection is not asked of the next."""
        while not self._wakes.empty():
            self._wakes.get_nowait()

    def _become(self, state: State) -> None:
        self.state = state
        if state.word == "connecting":
            self._settled.clear()
        else:
            self._settled.set()
        self._news.set()
        self._news = asyncio.Event()
        self._around.changed(state)

    async def _pause(self, fruitless: int) -> None:
        """Wait before the next attempt; after too many in vain, until somebody asks for one."""
        limit = None if fruitless >= FRUITLESS else PAUSES[min(fruitless, len(PAUSES) - 1)]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                while await self._wakes.get() not in ("reconnect", "close"):
                    pass
