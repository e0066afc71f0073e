"""One server, from its first start to its last: connected by one task that owns it, called from any.

The owner enters the connection, keeps its list of tools fresh, notices its end, and tries again with growing pauses. Calls have
an absolute deadline; one that only reads is tried once more when the connection breaks under it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from wieldy.core.failure import ToolFailure
from wieldy.core.record import record
from wieldy.core.workspace import Workspace
from wieldy.mcp.answers import Answers, Sampler
from wieldy.mcp.config import ServerConfig
from wieldy.mcp.definition import Definition
from wieldy.mcp.fault import is_lost, reason_of
from wieldy.mcp.oauth import SIGN_IN_SECONDS, SignIn
from wieldy.mcp.state import ServerSaid, State
from wieldy.mcp.stdio import Program, environment, running
from wieldy.mcp.tail import Tail
from wieldy.mcp.task import call_as_task
from wieldy.mcp.transport import remote

log = logging.getLogger("wieldy")

PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
FRUITLESS = 4
STEADY_SECONDS = 5.0
PAGES = 200
LIST_SECONDS = 60.0

Listed: TypeAlias = Callable[[Sequence[Any]], Awaitable[None]]
Progressed: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None]]


@record
class Surroundings:
    """What a connection needs of the rest: whom to tell of tools and states, who answers, and who watches processes."""

    workspace: Workspace
    answers: Answers
    listed: Listed
    changed: Callable[[State], None]
    started: Callable[[int], None]
    mark: str
    sampler: Sampler | None = None


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

    async def prompts(self) -> dict[str, str]:
        """The prompts of a server that is ready, by name, with what they are for."""
        client = self.client
        if client is None or client.server_capabilities.prompts is None:
            return {}
        page = await self.ask(lambda client: client.list_prompts(), again=True)
        return {prompt.name: prompt.description or prompt.title or "" for prompt in page.prompts}

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
        from mcp.client.client import Client
        from mcp_types import Implementation

        from wieldy import __version__

        around = self._around
        sign_in = SignIn(self.config, around.workspace.env, self._sent_away) if self._may_sign_in else None
        client = Client(
            self._transport(sign_in.provider() if sign_in else None),
            cache=None,
            client_info=Implementation(name="wieldy", version=__version__),
            list_roots_callback=around.answers.roots,
            elicitation_callback=around.answers.elicit,
            sampling_callback=self._sample if around.sampler else None,
            logging_callback=self._logged,
            log_level="info",
            message_handler=self._told,
        )
        try:
            async with asyncio.timeout(self.config.startup) as self._attempt:
                await client.__aenter__()
            try:
                await self._refresh(client)
                self.client, self._held = client, True
                self._become(State("ready"))
                yield
            finally:
                await client.__aexit__(None, None, None)
        finally:
            if sign_in is not None:
                sign_in.close()

    @property
    def _may_sign_in(self) -> bool:
        given = any(name.lower() == "authorization" for name in self.config.headers)
        return self.config.kind != "stdio" and not given

    def _sent_away(self, url: str) -> None:
        """The server wants somebody to sign in first: say where, and give them time."""
        if self._attempt is not None and self.client is None:
            with contextlib.suppress(RuntimeError):
                self._attempt.reschedule(asyncio.get_running_loop().time() + SIGN_IN_SECONDS)
        self._become(State("needs approval", f"sign in at {url}"))

    def _transport(self, auth: Any) -> Any:
        config, around = self.config, self._around
        if config.kind != "stdio":
            return remote(config, auth)
        workspace = around.workspace
        env = {**workspace.setting("env", dict[str, str]()), **config.env}
        return running(
            Program(
                (config.command, *config.args),
                environment(workspace.env, env, around.mark),
                config.cwd or workspace.root,
                around.mark,
                self.stderr,
                around.started,
                lambda why: self._lost(self.client, why),
            )
        )

    async def _serve(self) -> str:
        """Keep the list of tools fresh until the connection ends; says why it did."""
        import anyio

        client = self.client
        async with anyio.create_task_group() as tasks:
            if self._can_listen(client):
                tasks.start_soon(self._listen, client)
            while True:
                wake = await self._wakes.get()
                if wake != "refresh":
                    break
                while not self._wakes.empty() and wake == "refresh":
                    wake = self._wakes.get_nowait()
                if wake != "refresh":
                    break
                try:
                    await self._refresh(client)
                except Exception as error:
                    # What was offered before is better than nothing.
                    log.warning("MCP server %s changed its tools and cannot list them: %s", self.config.name, error)
            tasks.cancel_scope.cancel()
        return wake

    def _can_listen(self, client: Any) -> bool:
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        tools = client.server_capabilities.tools
        return bool(client.protocol_version in MODERN_PROTOCOL_VERSIONS and tools and tools.list_changed)

    async def _listen(self, client: Any) -> None:
        """Hear of changes where the protocol wants them subscribed to."""
        from mcp.client.subscriptions import SubscriptionLost
        from mcp.shared.exceptions import MCPError

        for pause in PAUSES:
            try:
                async with client.listen(tools_list_changed=True) as subscription:
                    async for _ in subscription:
                        self._wakes.put_nowait("refresh")
                return
            except SubscriptionLost:
                await asyncio.sleep(pause)
                self._wakes.put_nowait("refresh")
            except (MCPError, TimeoutError) as error:
                log.info("MCP server %s tells nothing of changes: %s", self.config.name, error)
                return

    async def _refresh(self, client: Any) -> None:
        if client.server_capabilities.tools is None and client.server_capabilities.resources is not None:
            await self._around.listed(())
            return
        tools: list[Any] = []
        cursor: str | None = None
        async with asyncio.timeout(LIST_SECONDS):
            for _ in range(PAGES):
                page = await client.list_tools(cursor=cursor)
                tools += page.tools
                self._report_refused(page)
                cursor = page.next_cursor
                if not cursor:
                    break
        await self._around.listed(tools)

    def _report_refused(self, page: Any) -> None:
        from wieldy.mcp.listing import REFUSED

        for refused in (page.meta or {}).get(REFUSED, ()):
            log.warning("MCP server %s lists %s: left out", self.config.name, refused)

    async def _told(self, message: Any) -> None:
        if type(message).__name__ == "ToolListChangedNotification":
            self._wakes.put_nowait("refresh")

    async def _logged(self, params: Any) -> None:
        text = params.data if isinstance(params.data, str) else repr(params.data)
        self._around.workspace.emit(ServerSaid(server=self.config.name, level=params.level, text=text[:2_000]))

    async def _sample(self, context: Any, params: Any) -> Any:
        assert self._around.sampler
        return await self._around.sampler(params)

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
