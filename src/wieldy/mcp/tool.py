"""A server's tool as one of ours: checked like any other, asked about whatever its server claims, run by its connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from wieldy.core.effect import NOTHING, UNKNOWN, Effects
from wieldy.core.event import ToolProgress
from wieldy.core.threads import in_thread
from wieldy.core.tool import Doubt, Output, Tool, ToolContext
from wieldy.mcp.content import is_plain, output_of
from wieldy.mcp.definition import Definition

if TYPE_CHECKING:
    from wieldy.core.workspace import Workspace
    from wieldy.mcp.connection import Connection

SLACK_SECONDS = 5.0


class ServerTool(Tool):
    """What a hint says is used for scheduling alone: a tool that only reads may run beside others, and still asks."""

    def __init__(
        self, name: str, definition: Definition, connection: Connection, accepted: Callable[[], None] | None = None
    ) -> None:
        server = connection.config.name
        self.name = name
        self.definition = definition
        self.title = f"{server}: {definition.title or definition.name}"
        self.description = definition.description or f"The tool {definition.name} of the MCP server {server}."
        self.parameters = definition.parameters
        self.read_only = definition.read_only
        self.always_load = definition.always_load or connection.config.always_load
        self.timeout = connection.config.timeout + SLACK_SECONDS
        self.max_result_chars = definition.max_result_chars or Tool.max_result_chars
        self.server = server
        self._connection = connection
        self._accepted = accepted

    def effects(self, input: Mapping[str, Any], workspace: Workspace) -> Effects:
        """Nothing that could clash where it only reads; else nobody can say."""
        return NOTHING if self.read_only else UNKNOWN

    def needs_permission(self, input: Mapping[str, Any], effects: Effects) -> bool:
        """Always: what a server says of itself is no reason to trust it."""
        return True

    def destructive(self, input: Mapping[str, Any]) -> bool:
        """What the server says, and yes where it says nothing."""
        return self.definition.destructive

    @property
    def checks(self) -> bool:
        """Only where the definition is not the one the user agreed to."""
        return self._accepted is not None

    async def check(self, input: Mapping[str, Any], ctx: ToolContext) -> Doubt | None:
        """A changed definition is a new tool: the person decides."""
        if self._accepted is None:
            return None
        return Doubt(f"the server {self.server} has changed what this tool is or takes since you first used it")

    async def run(self, args: Any, ctx: ToolContext) -> Output:  # type: ignore[override]
        """Call the server, passing on its progress."""
        if self._accepted is not None:
            accepted, self._accepted = self._accepted, None
            await in_thread(accepted)

        async def progressed(done: float, total: float | None, message: str | None) -> None:
            share = f"{done:g}/{total:g}" if total else f"{done:g}"
            text = f"{message} ({share})" if message else share
            data = {"progress": done, "total": total}
            ctx.emit(ToolProgress(call_id=ctx.call_id, name=self.name, text=text, data=data))

        result = await self._connection.call(self.definition, args, progressed)
        folder = ctx.workspace.session_dir / "tool-results"
        if is_plain(result):
            return output_of(result, folder)
        return await in_thread(output_of, result, folder)
