"""What the agent loop needs of a toolbox: the toolbox of a session and that of a subagent provide it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from wieldy.core.catalog import Catalog
    from wieldy.core.workspace import Workspace
    from wieldy.engine.events import Events
    from wieldy.engine.services import CallServices
    from wieldy.engine.turn import Turn, TurnObserver
    from wieldy.policy.hooks.dispatch import Hooks
    from wieldy.policy.settings.load import Settings
    from wieldy.tools.toolset.toolset import OfferedTools


class PolicyProtocol(Protocol):
    """A policy, as far as the loop needs it."""

    @property
    def mode(self) -> str: ...


class ToolboxProtocol(Protocol):
    """Tools and their environment."""

    @property
    def events(self) -> Events: ...

    @property
    def workspace(self) -> Workspace: ...

    @property
    def catalog(self) -> Catalog: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def policy(self) -> PolicyProtocol: ...

    @property
    def services(self) -> CallServices: ...

    @property
    def hooks(self) -> Hooks: ...

    def turn(self, *, observer: TurnObserver | None = None) -> Turn:
        """Start a turn, to which calls are submitted one by one."""
        ...

    async def offering(self, window: int | None = None) -> OfferedTools:
        """The tools to offer in a request."""
        ...
