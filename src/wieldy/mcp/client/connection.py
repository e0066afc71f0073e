"""One server, from its first start to its last: connected by one task that owns it, called from any.

The owner enters the connection, keeps its list of tools fresh, notices its end, and tries again with growing pauses. Calls have
an absolute deadline; one that only reads is tried once more when the connection breaks under it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Literal, TypeAlias

from msgspec import Struct

from wieldy.core.errors import ToolFailure
from wieldy.core.events import Event
from wieldy.core.logs import log
from wieldy.core.workspace import Workspace
from wieldy.mcp.client.config import ServerConfig
from wieldy.mcp.client.oauth import SIGN_IN_SECONDS, SignIn
from wieldy.mcp.client.server_requests import Answers, Sampling
from wieldy.mcp.client.tools import PAUSES, Definition, call_as_task, follow, must_subscribe, tools_of
from wieldy.mcp.client.transport import Program, Tail, environment, remote, running

CONNECTION_CLOSED = -32000
_NUMBER = re.compile(r"^\[Errno -?\d+\] ")
SESSION_GONE = ("session terminated", "session not found", "connection closed")


def is_lost(error: BaseException) -> bool:
    """Whether the connection is no longer there, as opposed to an answer nobody likes."""
    import anyio
    import httpx2

    if isinstance(error, anyio.ClosedResourceError | anyio.BrokenResourceError | httpx2.TransportError | OSError):
        return True
    code = getattr(error, "code", None)
    said = str(getattr(error, "message", error)).lower()
    return code is not None and (any(words in said for words in SESSION_GONE))


def reason_of(error: BaseException, config: ServerConfig, stderr: Tail) -> str:
    """Why a server cannot be reached, for a person: what went wrong, and what it said itself."""
    error = _innermost(error)
    if isinstance(error, TimeoutError):
        why = f"no answer within {config.startup:g} s"
    elif isinstance(error, FileNotFoundError) and config.kind == "stdio":
        why = f"there is no program `{config.command}`" if not config.cwd else f"cannot start: {error}"
    elif isinstance(error, PermissionError) and config.kind == "stdio":
        why = f"`{config.command}` may not be run"
    else:
        why = _NUMBER.sub("", " ".join(str(error).split())) or type(error).__name__
    said = stderr.last_lines(1)
    return f"{why} ({said[:300]})" if said else why


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error


Word: TypeAlias = Literal["connecting", "ready", "failed", "needs approval", "closed"]


class State(Struct, frozen=True):
    """Where a server stands now, and why."""

    word: Word
    why: str = ""

    def __str__(self) -> str:
        return f"{self.word}: {self.why}" if self.why else self.word


class ServerChanged(Event, frozen=True, kw_only=True):
    """A server's state changed."""

    kind: ClassVar[str] = "mcp.server"
    server: str
    state: str
    why: str = ""
    tools: int = 0


class ServerSaid(Event, frozen=True, kw_only=True):
    """A server logged something."""

    kind: ClassVar[str] = "mcp.log"
    server: str
    level: str
    text: str


MOST_LOGGED = 2_000

Listed: TypeAlias = Callable[[Sequence[Any]], Awaitable[None]]


class Surroundings(Struct, frozen=True):
    """What a connection needs of the rest: whom to tell of tools and states, who answers, and who watches processes."""

    workspace: Workspace
    answers: Answers
    listed: Listed
    changed: Callable[[State], None]
    started: Callable[[int], None]
    mark: str
    sampling: Sampling | None = None


class Ears(Struct, frozen=True):
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
