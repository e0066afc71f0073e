"""The MCP servers of the settings, as a toolbox sees them. The client is loaded only where there are any."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from wieldy.core.catalog import Catalog
from wieldy.core.decision import Approver
from wieldy.core.workspace import Workspace
from wieldy.policy.settings.load import Settings

if TYPE_CHECKING:
    from wieldy.mcp.manager import McpServers


class ConfiguredServers:
    """Starts and awaits the servers of a workspace, whose tools go into `catalog`; `enabled` may be a list of names."""

    def __init__(self, workspace: Workspace, catalog: Catalog, *, enabled: bool | Collection[str]) -> None:
        self._workspace = workspace
        self._catalog = catalog
        self._enabled = enabled
        self._started = False

    def start(self, settings: Settings, approver: Approver) -> None:
        """Connect in the background, where any server is configured or waits for consent."""
        if self._enabled is False:
            return
        pending = [item.name.partition(".")[2] for item in settings.pending if item.name.startswith("mcpServers.")]
        if pending or self._started or settings.get("mcpServers"):
            self._started = True
            only = None if self._enabled is True else self._enabled
            names = settings.get("mcpServers") or {}
            origins = {name: settings.origin(f"mcpServers.{name}") for name in names}
            foreign = frozenset(name for name, origin in origins.items() if origin and origin.layer == "project")
            self._manager().start(self._catalog, approver, pending, only, foreign)

    def connecting(self) -> list[str]:
        """The servers whose tools are not known yet."""
        return self._manager().connecting() if self._started else []

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until every server is ready or has failed, at most so many seconds."""
        if self._workspace.setting("mcpServers"):
            await self._manager().wait_settled(seconds)

    async def wait_for_tool(self, name: str) -> None:
        """Wait until the server of a tool is ready or has failed."""
        if name not in self._catalog and self._workspace.setting("mcpServers"):
            await self._manager().wait_for_tool(name)

    def _manager(self) -> McpServers:
        return self._workspace.services.mcp_servers
