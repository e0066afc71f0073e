"""Notifications to an MCP client: a changed tool list, and log messages a person should see."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import anyio
import mcp_types as types
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from wieldy.core.events import Event, Notice
from wieldy.core.logs import log
from wieldy.engine.mcp_tools import replace_surrogates
from wieldy.engine.toolbox import Toolbox
from wieldy.faces.mcp_server.elicitation import Context
from wieldy.mcp.connection import ServerLogMessage, ServerStateChanged

PublishChange: TypeAlias = Callable[[], Awaitable[None]]

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
DEFAULT_LEVEL = "info"
MAX_QUEUED = 1_000


class Notifier:
    """Sends the notifications of one client in order, from one task. A client that does not read loses those beyond the queue."""

    def __init__(self, box: Toolbox) -> None:
        self.level = DEFAULT_LEVEL
        self._box = box
        self._client: ServerSession | None = None
        self._publish_change: PublishChange | None = None
        self._calls: dict[int, Context] = {}
        self._listed_tools: tuple[str, ...] | None = None
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue(MAX_QUEUED)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Subscribe to the toolbox and start sending, once."""
        if self._task is None:
            self._box.subscribe(self._on_event)
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def use_client(self, ctx: Context, publish_change: PublishChange | None) -> None:
        """Remember the client of a request, and how the server publishes changes of the tools to subscribers."""
        self._client, self._publish_change = ctx.session, publish_change

    def set_listed_tools(self, tools: Sequence[types.Tool]) -> None:
        """Remember the tools that the client was shown."""
        self._listed_tools = tuple(tool.name for tool in tools)

    def check_tools(self) -> None:
        """Compare the tools with those the client was shown, in the background."""
        self._enqueue(None)

    @contextmanager
    def during_call(self, ctx: Context) -> Iterator[None]:
        """Allow log messages to be sent along with this call."""
        self._calls[id(ctx)] = ctx
        try:
            yield
        finally:
            del self._calls[id(ctx)]

    async def _on_event(self, event: Event) -> None:
        if isinstance(event, ServerStateChanged):
            self.check_tools()
        elif isinstance(event, Notice | ServerLogMessage):
            self._enqueue(event)

    def _enqueue(self, event: Event | None) -> None:
        with contextlib.suppress(asyncio.QueueFull):
            self._queue.put_nowait(event)

    async def _run(self) -> None:
        while True:
            event = await self._queue.get()
            try:
                await self._send(event)
            except (MCPError, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
                continue  # the client is gone
            except Exception as error:
                log.error("a notification could not be sent to an MCP client: %s", error)

    async def _send(self, event: Event | None) -> None:
        if isinstance(event, Notice):
            await self._log("warning", event.text)
        elif isinstance(event, ServerLogMessage):
            await self._log(event.level, event.text, event.server)
        else:
            await self._notify_if_tools_changed()

    async def _notify_if_tools_changed(self) -> None:
        if self._listed_tools is None:  # it has not asked for any yet
            return
        tools = tuple(entry.tool.name for entry in await self._box.offer() if entry.offered)
        if tools == self._listed_tools:
            return
        self._listed_tools = tools
        if self._publish_change is not None:
            await self._publish_change()
        if self._client is not None:
            await self._client.send_notification(types.ToolListChangedNotification())

    async def _log(self, level: str, text: str, logger: str = "wieldy") -> None:
        """Send a log message with the latest call that wants it, else by itself where the protocol still allows that."""
        level = level if level in LEVELS else DEFAULT_LEVEL
        params: Any = {"level": level, "data": replace_surrogates(text), "logger": logger}
        message = types.LoggingMessageNotification(params=types.LoggingMessageNotificationParams.model_validate(params))
        for ctx in reversed(self._calls.values()):
            if _is_enabled(level, self._minimum_level(ctx)):
                await ctx.session.send_notification(message, ctx.request_id)
                return
        if self._client is not None and not _is_modern(self._client) and _is_enabled(level, self.level):
            await self._client.send_notification(message)

    def _minimum_level(self, ctx: Context) -> str | None:
        """Return the level of a call's client; since 2026 each request carries its own, or wants no log messages."""
        if not _is_modern(ctx.session):
            return self.level
        meta: Any = ctx.meta or {}
        level = meta.get(types.LOG_LEVEL_META_KEY)
        return level if level in LEVELS else None


def _is_modern(session: ServerSession) -> bool:
    return session.protocol_version in MODERN_PROTOCOL_VERSIONS


def _is_enabled(level: str, minimum: str | None) -> bool:
    return minimum is not None and LEVELS.index(level) >= LEVELS.index(minimum)
