"""What a toolbox shows: the tools for a model, its events, its hooks and settings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from wieldy.core.catalog import ToolAvailability
from wieldy.core.errors import ClosedError
from wieldy.core.events import AnyEvent
from wieldy.core.workspace import Workspace
from wieldy.engine.events import Events, Subscriber
from wieldy.engine.services import Services
from wieldy.engine.turn import Wire, wire_module
from wieldy.engine.wiring import ConfiguredHooks, LiveServices
from wieldy.mcp.configured import ConfiguredServers
from wieldy.policy.permissions.decide import Policy
from wieldy.policy.settings.load import Settings
from wieldy.tools.toolset.toolset import OfferedTools

if TYPE_CHECKING:
    from wieldy.policy.hooks.dispatch import Hooks


class ToolboxAccess:
    """The part of a toolbox that runs nothing."""

    events: Events
    workspace: Workspace
    policy: Policy
    _hooks: ConfiguredHooks
    _servers: ConfiguredServers
    _live: LiveServices
    _is_closed: bool

    # Tools for a model

    async def offer(self) -> list[ToolAvailability]:
        """Every tool, ours before those of servers, each sorted by name: whether a model is offered it, and why or why not."""
        self._require_open()
        return list((await self.workspace.services.toolset.offering(every=True)).availability)

    async def offering(self, window: int | None = None, *, only: Sequence[str] | None = None) -> OfferedTools:
        """What a request carries of tools. `window` is the model's context (else the last one), `only` a subagent's list."""
        self._require_open()
        return await self.workspace.services.toolset.offering(window, only=only)

    async def tools_for(self, wire: Wire) -> list[Any]:
        """The tools for `tools=` of a request to the API of Anthropic, to Chat Completions (`openai`) or to `responses`.

        Each description has the tool's whole prompt. The order is stable. Raises `ValueError` for another wire.
        """
        self._require_open()
        define = wire_module(wire).define_tool
        offering = await self.workspace.services.toolset.offering(defer="never")
        return [
            define(replace(spec, description="\n\n".join(filter(None, (spec.description, tool.prompt)))))
            for tool, spec in zip(offering.tools, offering.definitions, strict=True)
            if tool.name != "ToolSearch"  # nothing is deferred
        ]

    # Events

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call a function with every event; returns a function that ends the subscription."""
        self._require_open()
        return self.events.subscribe(subscriber)

    def stream(self) -> AbstractAsyncContextManager[AsyncIterator[AnyEvent]]:
        """Every event from now on: `async with box.stream() as events: async for event in events`."""
        self._require_open()
        return self.events.stream()

    @property
    def hooks(self) -> Hooks:
        """The hooks of the settings, then those given in code."""
        return self._hooks.live

    @property
    def hook_problems(self) -> tuple[str, ...]:
        """What is wrong with the hooks of the settings."""
        return self._hooks.problems

    # Settings and services

    @property
    def mode(self) -> str:
        """The permission mode. Setting it counts from the next call on; an unknown or disabled one raises `ValueError`."""
        return self.policy.mode

    @mode.setter
    def mode(self, name: str) -> None:
        self._require_open()
        self.settings.require_mode(name)
        self.policy.mode = name

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClosedError("this toolbox is closed; make another one")

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._live.settings

    @property
    def services(self) -> Services:
        """What the calls to come work with."""
        return self._live.current

    async def reload(self) -> Settings:
        """Read the settings again; all but the mode is applied. Broken settings are reported and not applied.

        Returns what was read; its `errors` say why it is not in force.
        """
        self._require_open()
        return await self._live.reload()

    async def connected(self, seconds: float | None = None) -> None:
        """Wait until every MCP server is ready or has failed, at most so many seconds."""
        self._require_open()
        await self._servers.wait(seconds)
