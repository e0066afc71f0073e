"""What a client is told without having asked: that the tools are others than it was shown, and what a person should know."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from wieldy.core.events import Event, Notice
from wieldy.mcp.client.connection import ServerLogMessage, ServerStateChanged
from wieldy.mcp.server.tools import whole

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.server.session import ServerSession

    from wieldy.mcp.server.elicitation import Context
    from wieldy.toolbox import Toolbox


LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
MOST_WAITING = 1_000
UNTOLD = "info"
SETTINGS_CHANGED = object()


class News:
    """One task for each room tells its client, in order. Who does not read misses what came while too much was waiting."""

    def __init__(self, box: Toolbox) -> None:
        self.level = UNTOLD
        self.publish: Callable[[], Awaitable[None]] | None = None
        self._box = box
        self._client: ServerSession | None = None
        self._calls: dict[int, Context] = {}
        self._shown: tuple[str, ...] | None = None
        self._waiting: asyncio.Queue[object] = asyncio.Queue(MOST_WAITING)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Listen to the toolbox."""
        loop, emit = asyncio.get_running_loop(), self._box.workspace.emit

        def overheard(event: Event) -> None:
            emit(event)
            if isinstance(event, Notice | ServerLogMessage | ServerStateChanged):
                loop.call_soon_threadsafe(self.add, event)

        # Only what belongs to no call is of interest; a subscription would have every step of every call announced.
        self._box.workspace.emit = overheard
        self._task = loop.create_task(self._tell())

    async def aclose(self) -> None:
        """Tell nothing more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def add(self, item: object) -> None:
        """Have something told, or `SETTINGS_CHANGED` looked into."""
        with contextlib.suppress(asyncio.QueueFull):
            self._waiting.put_nowait(item)

    def meet(self, ctx: Context) -> None:
        """Remember how the client is reached."""
        self._client = ctx.session

    def showed(self, tools: Sequence[types.Tool]) -> None:
        """Remember what the client was shown."""
        self._shown = tuple(tool.name for tool in tools)

    @contextmanager
    def during(self, ctx: Context) -> Iterator[None]:
        """For as long as a call lasts, words for the person may go along with it."""
        self._calls[id(ctx)] = ctx
        try:
            yield
        finally:
            del self._calls[id(ctx)]

    async def _tell(self) -> None:
        while True:
            item = await self._waiting.get()
            with contextlib.suppress(*_gone()):
                if isinstance(item, Notice):
                    await self._say("warning", item.text)
                elif isinstance(item, ServerLogMessage):
                    await self._say(item.level, item.text, item.server)
                else:
                    await self._compare()

    async def _compare(self) -> None:
        """Tell of the tools if they are others than the client has seen; whoever has seen none needs no news."""
        if self._shown is None:
            return
        now = tuple(entry.tool.name for entry in await self._box.offer() if entry.offered)
        if now == self._shown:
            return
        import mcp_types as types

        self._shown = now
        if self.publish is not None:
            await self.publish()
        if self._client is not None:
            await self._client.send_notification(types.ToolListChangedNotification())

    async def _say(self, level: str, text: str, logger: str = "wieldy") -> None:
        """A line of the log: along with the last call under way, else by itself where the protocol still has that."""
        import mcp_types as types

        params: Any = {"level": level if level in LEVELS else "info", "data": whole(text), "logger": logger}
        line = types.LoggingMessageNotification(params=types.LoggingMessageNotificationParams.model_validate(params))
        for ctx in reversed(self._calls.values()):
            if _reaches(level, self._wanted(ctx)):
                await ctx.session.send_notification(line, ctx.request_id)
                return
        if self._client is not None and not _is_modern(self._client) and _reaches(level, self.level):
            await self._client.send_notification(line)

    def _wanted(self, ctx: Context) -> str | None:
        """From which level on a call's client wants to hear; since 2026 each request says so itself."""
        import mcp_types as types

        if not _is_modern(ctx.session):
            return self.level
        meta: Any = ctx.meta or {}
        wanted = meta.get(types.LOG_LEVEL_META_KEY)
        return wanted if wanted in LEVELS else None


def _is_modern(session: ServerSession) -> bool:
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    return session.protocol_version in MODERN_PROTOCOL_VERSIONS


def _reaches(level: str, wanted: str | None) -> bool:
    return wanted is not None and LEVELS.index(level if level in LEVELS else UNTOLD) >= LEVELS.index(wanted)


def _gone() -> tuple[type[Exception], ...]:
    """How it shows that a client is no longer there to be told."""
    import anyio
    from mcp.shared.exceptions import MCPError

    return (MCPError, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError)
