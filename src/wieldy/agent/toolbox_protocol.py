"""What a loop needs of a toolbox: a whole one has it, and so has the narrower one of a sub-agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from wieldy.core.catalog import Catalog
    from wieldy.core.workspace import Workspace
    from wieldy.engine.events import Events
    from wieldy.engine.services import Services
    from wieldy.engine.supervise import Supervisor
    from wieldy.engine.turn import Turn
    from wieldy.hooks.dispatch import Hooks
    from wieldy.settings.load import Settings
    from wieldy.toolset.toolset import OfferedTools


class HasMode(Protocol):
    """A judge with a mode."""

    @property
    def mode(self) -> str:
        """The mode in force."""
        ...


class ToolboxProtocol(Protocol):
    """Tools, where they work, and who is told of it."""

    @property
    def events(self) -> Events:
        """Where every step is announced."""
        ...

    @property
    def workspace(self) -> Workspace:
        """Where the tools work."""
        ...

    @property
    def catalog(self) -> Catalog:
        """Which tools there are."""
        ...

    @property
    def settings(self) -> Settings:
        """What is in force."""
        ...

    @property
    def policy(self) -> HasMode:
        """Who decides."""
        ...

    @property
    def services(self) -> Services:
        """What calls are handled with now."""
        ...

    @property
    def hooks(self) -> Hooks:
        """Who is told of moments."""
        ...

    @property
    def supervisor(self) -> Supervisor:
        """What foreign code runs on."""
        ...

    def turn(self) -> Turn:
        """A turn whose calls are submitted one by one."""
        ...

    async def offering(self, window: int | None = None) -> OfferedTools:
        """What a request carries of tools."""
        ...
