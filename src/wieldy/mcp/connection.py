"""A connection to one MCP server, owned by one task from its first start to its last and called from any task.

The owner runs each connection in another task, which keeps the tool list fresh and notices when the connection ends, and
reconnects with growing pauses. Calls have an absolute deadline. When the connection breaks, it is unknown whether the server
has run the call: it is retried only where the user trusts the server to say that it may be. Any call is retried when its
HTTP session has expired, as the server has refused it then.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from msgspec import Struct

from wieldy.core.errors import ToolFailure
from wieldy.core.events import Event
from wieldy.core.logs import log
from wieldy.core.programs import find_program, is_in_folders, project_folders
from wieldy.core.state_dirs import make_private_folder
from wieldy.core.threads import in_thread
from wieldy.core.workspace import Workspace
from wieldy.mcp.config import PROJECT_VARIABLE, ServerConfig
from wieldy.mcp.definitions import ToolDefinition
from wieldy.mcp.server_requests import SamplingHandler, ServerRequestHandler
from wieldy.mcp.tools import RETRY_PAUSES, call_as_task, list_tools, needs_subscription, watch_tool_changes
from wieldy.mcp.transport import (
    McpRelay,
    OutputTail,
    ServerProgram,
    ServerStreams,
    open_relay,
    open_stdio,
    server_environment,
)

if TYPE_CHECKING:
    from mcp.shared.exceptions import MCPError

# What wakes the owner of a connection; any other text is the reason why the connection was lost.
REFRESH = "refresh"
RECONNECT = "reconnect"
CLOSE = "close"

MAX_FAILURES = 4
STABLE_SECONDS = 5.0
DISCONNECT_SECONDS = 3.0
REFRESH_SECONDS = 1.0  # between two refreshes of the tools, and four times as long as the last one took
MAX_LOG_CHARS = 2_000
CONNECTION_CLOSED = "connection closed"
UNKNOWN, FIND_OUT = "Unknown: the call may or may not have happened.", "Find out before you make it again."
IDEMPOTENCY_KEY = "wieldy/idempotencyKey"  # in `_meta` of a call; the same when the same call is made again
# How servers say with status 404 or 400 that they know a session no more. They have not run what was asked for.
SESSION_UNKNOWN = frozenset(
    {"session terminated", "session not found", "invalid session id", "bad request: no valid session id provided"}
)
HTTP_ERROR = "Server returned an error response"  # the SDK's message for every status
# The error statuses of a request and its retries. The SDK sends each request in the context of its caller.
_error_statuses: ContextVar[list[int]] = ContextVar("wieldy_mcp_error_statuses")
_VALIDATION_REPORT = re.compile(r": \d+ validation errors? for .*", re.DOTALL)
_ERRNO = re.compile(r"^\[Errno -?\d+\] ")

StateName: TypeAlias = Literal["connecting", "ready", "failed", "needs approval", "closed"]
ProgressCallback: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None]]


class ServerState(Struct, frozen=True):
    """The state of a connection, and why."""

    name: StateName
    why: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.why}" if self.why else self.name


class ServerStateChanged(Event, frozen=True, kw_only=True):
    """A server's state changed."""

    kind: ClassVar[str] = "mcp.server"
    server: str
    state: str
    why: str = ""
    tools: int = 0


class ServerLogMessage(Event, frozen=True, kw_only=True):
    """A server logged something."""

    kind: ClassVar[str] = "mcp.log"
    server: str
    level: str
    text: str


class ConnectionContext(Struct, frozen=True):
    """What a connection needs from its manager: request handlers, callbacks, and the mark of its processes."""

    workspace: Workspace
    requests: ServerRequestHandler
    on_tools: Callable[[Sequence[Any]], Awaitable[None]]
    on_state: Callable[[ServerState], None]
    on_process: Callable[[int], None]
    mark: str
    sampling: SamplingHandler | None = None
    relay: McpRelay | None = None


class Connection:
    """A server and how to call it."""

    def __init__(self, config: ServerConfig, context: ConnectionContext) -> None:
        self.config = config
        self.state = ServerState("connecting")
        self.stderr = OutputTail()
        self.client: Any = None
        self._context = context
        self._wakeups: asyncio.Queue[str] = asyncio.Queue()
        self._settled = asyncio.Event()
        self._state_changed = asyncio.Event()
        self._connect_timeout: asyncio.Timeout | None = None
        self._closing = False
        self._was_ready = False
        self._why_lost = ""
        self._is_stale = False
        self._next_refresh = 0.0
        self._refresh_timer: asyncio.TimerHandle | None = None
        self._may_sign_in = False  # in the next attempt to connect
        self._is_signing_in = False

    async def run(self) -> None:
        """Own the connection until `close`. Raises nothing but a cancellation of its own task."""
        failures = 0
        why = ""
        while not self._closing:
            while not self._wakeups.empty():  # meant for the last connection
                self._wakeups.get_nowait()
            self._refresh_timer = None
            self._is_signing_in, self._may_sign_in = self._may_sign_in, False
            self._set_state("connecting", why)
            start, self._was_ready, needs_person = time.monotonic(), False, False
            try:
                why = await self._run_connection()
            except Exception as error:
                error = first_error(error)
                needs_person = type(error).__name__ == "SignInRequired"  # its module loads the SDK
                why = describe_failure(error, self.config, self.stderr, self._describe_error)
                log.info("MCP server %s: %s", self.config.name, why)
                log.debug("MCP server %s", self.config.name, exc_info=error)
                if isinstance(error, FileNotFoundError | PermissionError | NotADirectoryError):
                    failures = MAX_FAILURES
            finally:
                self.client = None
            was_stable = self._was_ready and time.monotonic() - start > STABLE_SECONDS
            failures = 0 if was_stable else failures + 1
            if needs_person and not self._closing:
                self._set_state("needs approval", f"run `wieldy mcp reconnect {self.config.name}` to sign in")
                await self._wait_to_retry(MAX_FAILURES)
                why = ""
            elif not self._closing and not (self._was_ready and failures <= 1):
                self._set_state("failed", why)
                await self._wait_to_retry(failures)
        self._set_state("closed")

    async def _run_connection(self) -> str:
        """Connect and serve in a task of its own; return why the connection ended.

        When a transport fails, the SDK cancels the task that has entered its client, and that cancellation may be all that
        comes out of it: it must not end the owner.
        """

        async def connect_and_serve() -> str:
            async with self._connect():
                return await self._serve()

        _error_statuses.set([])
        task = asyncio.get_running_loop().create_task(connect_and_serve())
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait((task,), timeout=DISCONNECT_SECONDS)
            raise
        return CONNECTION_CLOSED if task.cancelled() else task.result()

    def close(self) -> None:
        """Make the owner end the connection, or its attempt to connect."""
        self._closing = True
        if self.client is None:
            self._extend_connect_timeout(0)
        self._wakeups.put_nowait(CLOSE)

    def reconnect(self, *, sign_in: bool = False) -> None:
        """Make the owner connect again, now. With `sign_in` a person is there who signs in where that is needed."""
        is_waiting = self.state.name == "needs approval" and not self._is_signing_in
        if self.state.name not in ("connecting", "needs approval") or (sign_in and is_waiting):
            self._may_sign_in = sign_in
            self._settled.clear()
            self._wakeups.put_nowait(RECONNECT)

    async def wait_settled(self) -> None:
        """Wait until the server is ready, has failed, or waits for a person to sign in."""
        await self._settled.wait()

    async def wait_signed_in(self) -> None:
        """Wait until no sign-in is open."""
        while self.state.name == "needs approval":
            await self._state_changed.wait()

    async def call(
        self,
        tool: ToolDefinition,
        arguments: dict[str, Any],
        on_progress: ProgressCallback | None = None,
        idempotency_key: str = "",
    ) -> Any:
        """Call a tool and return its result. Raises `ToolFailure`."""
        meta = {IDEMPOTENCY_KEY: idempotency_key} if idempotency_key else None

        def request(client: Any) -> Awaitable[Any]:
            if tool.as_task:
                return call_as_task(client, tool.name, arguments, self.config.timeout, meta)
            call: Awaitable[Any] = client.call_tool(tool.name, arguments, progress_callback=on_progress, meta=meta)
            return call

        return await self.request(request, retry=self.config.trust_hints and tool.may_repeat)

    async def request(self, send: Callable[[Any], Awaitable[Any]], *, retry: bool = False) -> Any:
        """Return the response to any request, before the deadline. Raises `ToolFailure`."""
        from mcp.shared.exceptions import MCPError

        name, seconds = self.config.name, self.config.timeout
        try:
            async with asyncio.timeout(seconds):
                for _ in range(2):
                    client = await self._wait_ready()
                    _error_statuses.set([])
                    try:
                        return await send(client)
                    except MCPError as error:
                        retry = retry or self._is_session_unknown(error)
                        if not self._is_session_unknown(error) and not is_connection_lost(error):
                            text = f"The MCP server {name} answered with an error: {self._describe_error(error)}"
                            if not retry and error.message == HTTP_ERROR and (_last_status() or 0) >= 500:
                                raise ToolFailure(f"{text}. {UNKNOWN}", FIND_OUT) from None
                            raise ToolFailure(text) from None
                        why = error.message
                    except Exception as error:  # whatever the SDK raises for an answer or a stream that is broken
                        if isinstance(error, ToolFailure):
                            raise
                        if not is_connection_lost(error):
                            why = describe_invalid(error)
                            raise ToolFailure(f"The answer of the MCP server {name} cannot be used: {why}") from None
                        why = str(error)
                    self._connection_lost(client, why)
                    why = self._why_lost  # the transport may have said it before
                    if not retry:
                        break
        except TimeoutError:
            raise ToolFailure(
                f"The MCP server {name} did not answer within {seconds:g} s; the call was cancelled. {UNKNOWN}",
                FIND_OUT,
            ) from None
        raise ToolFailure(
            f"The MCP server {name} went away during the call ({why}). It is being started again. {UNKNOWN}",
            FIND_OUT,
            stderr=self.stderr.last_lines(),
        )

    def _is_session_unknown(self, error: MCPError) -> bool:
        """Whether the server refused the request itself: an error of the same words with status 200 is the tool's own."""
        return _last_status() in (400, 404) and error.message.lower().rstrip(".") in SESSION_UNKNOWN

    def _describe_error(self, error: MCPError) -> str:
        """The message of an error, with the HTTP status that the SDK leaves out and without a report on its types."""
        if error.message == HTTP_ERROR and (status := _last_status()) is not None:
            return f"HTTP {status}"
        return _VALIDATION_REPORT.sub("", error.message)

    async def _wait_ready(self) -> Any:
        """Return the client once there is one; reconnect to a server that had failed."""
        if self.client is None:
            self.reconnect()
            await self._settled.wait()
        if self.client is None:
            raise ToolFailure(
                f"The MCP server {self.config.name} cannot be reached: {self.state.why or self.state.name}"
            )
        return self.client

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[None]:
        """Connect, list the tools, and be ready until the block ends; entered and left in one task, as the SDK needs it."""
        async with contextlib.AsyncExitStack() as stack:
            client, is_entered = self._create_client(self._bounded(await self._transport(stack))), False
            try:
                async with asyncio.timeout(self.config.startup) as self._connect_timeout:
                    await client.__aenter__()
                    is_entered = True
                    await self._refresh(client)
                self.client, self._was_ready = client, True
                self._set_state("ready")
                yield
            finally:
                if is_entered:
                    await self._disconnect(client)

    def _create_client(self, transport: Any) -> Any:
        from mcp.client.client import Client
        from mcp_types import Implementation

        from wieldy import __version__

        context = self._context

        async def handle_message(message: Any) -> None:
            if type(message).__name__ == "ToolListChangedNotification":
                self._tools_changed()

        async def handle_log(params: Any) -> None:
            text = params.data if isinstance(params.data, str) else repr(params.data)
            message = ServerLogMessage(server=self.config.name, level=params.level, text=text[:MAX_LOG_CHARS])
            context.workspace.emit(message)

        return Client(
            transport,
            cache=None,
            client_info=Implementation(name="wieldy", version=__version__),
            list_roots_callback=context.requests.list_roots,
            elicitation_callback=context.requests.elicit,
            sampling_callback=context.sampling,
            logging_callback=handle_log,
            log_level="info",
            message_handler=handle_message,
        )

    async def _transport(self, stack: contextlib.AsyncExitStack) -> Any:
        """Return what opens the streams; `stack` closes what is behind them."""
        config, context = self.config, self._context
        if config.kind == "stdio":
            return open_stdio(await in_thread(self._program))
        if config.kind == "sdk":
            return open_relay(config.name, context.relay)
        from wieldy.mcp.http import AddressCheck, open_http
        from wieldy.mcp.oauth import SignIn

        workspace, auth = context.workspace, None
        check = AddressCheck(config.url, workspace.services.fetcher.address_policy, workspace.env)
        if "authorization" not in map(str.lower, config.headers):
            sign_in = SignIn(config, workspace.env, check, self._show_sign_in, by_person=self._is_signing_in)
            stack.callback(sign_in.close)
            auth = sign_in.auth()
        return open_http(config, auth, check, lambda status: _error_statuses.get([]).append(status))

    @asynccontextmanager
    async def _bounded(self, transport: Any) -> AsyncIterator[Any]:
        async with transport as (read, write):
            yield ServerStreams(read, write).streams

    def _program(self) -> ServerProgram:
        """The program of the server, resolved. Blocks on the disk; raises `ToolFailure` where it must not start.

        One of the person's own settings starts in a folder of ours, because programs such as `npx` and `python -m` run
        what is in the folder they are in.
        """
        config, context = self.config, self._context
        workspace = context.workspace
        own_env = {PROJECT_VARIABLE: workspace.project_root, **workspace.setting("env"), **config.env}
        env = server_environment(workspace.env, own_env, context.mark)
        setting, commands = f"mcpServers.{config.name}", workspace.commands
        place = None if commands is None else commands.places.get(setting)
        is_own = place is not None and place.layer in ("user", "managed")
        roots = workspace.roots if is_own else ()
        search_path, projects = env.get("PATH", os.defpath), project_folders(env, roots)
        # Also what the program starts in turn, such as the `node` of `npx`, must not be the project's.
        env["PATH"] = os.pathsep.join(
            each for each in search_path.split(os.pathsep) if os.path.isabs(each) and not is_in_folders(each, projects)
        )
        folder, command = workspace.project_root if workspace.is_on_host else os.sep, config.command
        if is_own:
            folder = str(workspace.state_dir / "servers" / re.sub(r"\W", "_", config.name))
            make_private_folder(Path(folder))
        folder = os.path.join(folder, config.cwd) if config.cwd else folder
        if os.sep not in command:
            path = find_program(command, env, roots)
            if path is None:
                outside = " outside the project" if find_program(command, {**env, "PATH": search_path}) else ""
                raise ToolFailure(f"there is no program `{command}`{outside} on PATH")
            command = path
        if commands is not None:
            problem = commands.problem(setting, (config.command, *config.args), folder)
            if problem is not None:
                raise ToolFailure(problem)
        return ServerProgram(
            (command, *config.args),
            env,
            folder,
            context.mark,
            self.stderr,
            context.on_process,
            lambda why: self._connection_lost(self.client, why),
        )

    async def _disconnect(self, client: Any) -> None:
        """Leave the client. Stopping a process is bounded in itself; a remote server may never answer."""
        limit = None if self.config.kind == "stdio" else DISCONNECT_SECONDS
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await client.__aexit__(None, None, None)

    async def _serve(self) -> str:
        """Keep the tool list fresh until the connection ends; return why it ended."""
        import anyio

        client = self.client
        async with anyio.create_task_group() as tasks:
            if needs_subscription(client):
                tasks.start_soon(watch_tool_changes, client, self.config.name, self._tools_changed)
            while (wakeup := await self._wakeups.get()) == REFRESH:
                start, self._is_stale = time.monotonic(), False
                try:
                    await self._refresh(client)
                except Exception as error:  # keep the tools that were listed before
                    log.warning("MCP server %s changed its tools and cannot list them: %s", self.config.name, error)
                now = time.monotonic()
                self._next_refresh, self._refresh_timer = now + max(REFRESH_SECONDS, 4 * (now - start)), None
                if self._is_stale:
                    self._tools_changed()
            tasks.cancel_scope.cancel()
        return wakeup

    async def _refresh(self, client: Any) -> None:
        await self._context.on_tools(await list_tools(client))

    def _tools_changed(self) -> None:
        """List the tools again, but not too often; several changes are one refresh."""
        self._is_stale = True
        if self._refresh_timer is None:
            delay = max(0.0, self._next_refresh - time.monotonic())
            self._refresh_timer = asyncio.get_running_loop().call_later(delay, self._wakeups.put_nowait, REFRESH)

    def _connection_lost(self, client: Any, why: str) -> None:
        if client is not None and client is self.client:
            self.client, self._why_lost = None, why or "the connection was lost"
            self._settled.clear()
            self._wakeups.put_nowait(self._why_lost)

    def _show_sign_in(self, url: str) -> None:
        """Show the address where a person signs in, and give them time."""
        from wieldy.mcp.oauth import SIGN_IN_SECONDS

        if self.client is None:
            self._extend_connect_timeout(SIGN_IN_SECONDS)
        self._set_state("needs approval", f"sign in at {url}")

    def _extend_connect_timeout(self, seconds: float) -> None:
        if self._connect_timeout is not None and self._connect_timeout.when() is not None:
            with contextlib.suppress(RuntimeError):  # it has expired
                self._connect_timeout.reschedule(asyncio.get_running_loop().time() + seconds)

    def _set_state(self, name: StateName, why: str = "") -> None:
        self.state = ServerState(name, why)
        if name == "connecting":
            self._settled.clear()
        else:
            self._settled.set()
        self._state_changed.set()
        self._state_changed = asyncio.Event()
        self._context.on_state(self.state)

    async def _wait_to_retry(self, failures: int) -> None:
        """Pause before the next attempt; after too many failures, until one is requested."""
        limit = None if failures >= MAX_FAILURES else RETRY_PAUSES[min(failures, len(RETRY_PAUSES) - 1)]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                while await self._wakeups.get() not in (RECONNECT, CLOSE):
                    pass


def _last_status() -> int | None:
    statuses = _error_statuses.get([])
    return statuses[-1] if statuses else None


def is_connection_lost(error: BaseException) -> bool:
    """Return whether the connection is gone, as opposed to an error response."""
    import anyio
    import httpx2

    if isinstance(error, anyio.ClosedResourceError | anyio.BrokenResourceError | httpx2.TransportError | OSError):
        return True
    return str(getattr(error, "message", "")).lower() == CONNECTION_CLOSED


def describe_invalid(error: Exception) -> str:
    """Say in one line why an answer is not valid."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    return f"`{'.'.join(map(str, first['loc']))}`: {first['msg']}"


def first_error(error: Exception) -> Exception:
    """Return what went wrong first; the SDK raises groups."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def describe_failure(
    error: BaseException, config: ServerConfig, stderr: OutputTail, describe: Callable[[MCPError], str]
) -> str:
    """Say why a server cannot be reached, with the last line of its stderr."""
    from mcp.client.auth import OAuthFlowError
    from mcp.shared.exceptions import MCPError

    if isinstance(error, TimeoutError):
        why = f"no answer within {config.startup:g} s"
    elif isinstance(error, FileNotFoundError) and config.kind == "stdio":
        why = f"there is no program `{config.command}`" if not config.cwd else f"cannot start: {error}"
    elif isinstance(error, PermissionError) and config.kind == "stdio":
        why = f"`{config.command}` may not be run"
    elif isinstance(error, OAuthFlowError):
        why = (
            f"it needs a sign-in, which failed ({str(error).strip()}). Set an Authorization header or `oauth.clientId`"
        )
    elif isinstance(error, MCPError):
        why = describe(error)
    else:
        why = _ERRNO.sub("", " ".join(str(error).split())) or type(error).__name__
    last_line = stderr.last_lines(1)
    return f"{why} ({last_line[:300]})" if last_line else why
