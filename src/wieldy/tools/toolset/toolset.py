"""The tools of a workspace: which a request carries, which are deferred, and which a search has activated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

from msgspec import Struct

from wieldy.core.abort import Abort
from wieldy.core.catalog import Catalog, ToolAvailability
from wieldy.core.decision import Judge
from wieldy.core.logs import log
from wieldy.core.provider import ToolSpec
from wieldy.core.supervise import ENABLED_CHECK_SECONDS, Supervisor, ask_enabled
from wieldy.core.threads import in_thread
from wieldy.core.tool import Tool
from wieldy.core.workspace import Workspace
from wieldy.tools.toolset.gates import (
    SIMPLE_FEATURE,
    OfferContext,
    check_availability,
    feature_gate,
    is_feature_enabled,
    why_excluded,
    why_excluded_by_name,
)
from wieldy.tools.toolset.order import Defer, estimate_tokens, is_mcp_tool, list_deferred, order_tools, token_budget

if TYPE_CHECKING:
    from wieldy.tools.toolset.search import ToolIndex

DEFAULT_CONTEXT_WINDOW = 200_000
SERVER_WAIT_SECONDS = 30.0


class OfferedTools(Struct, frozen=True):
    """What one request carries of tools.

    `tools` are sent in full, in blocks that end at `breaks`; `deferred` ones are named in `listing`, which goes into the
    system prompt; `availability` has every tool that was considered with the reason why it is or is not offered.
    """

    tools: tuple[Tool, ...]
    definitions: tuple[ToolSpec, ...]
    breaks: tuple[int, ...]
    deferred: tuple[Tool, ...]
    listing: str
    availability: tuple[ToolAvailability, ...]


class ServerStarts(Protocol):
    """MCP servers whose tools may not be known yet."""

    def connecting(self) -> Sequence[str]:
        """The servers that are neither ready nor failed."""
        ...

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until every server is ready or has failed, at most so many seconds."""
        ...


class Toolset:
    """What requests are made from and `ToolSearch` searches: `workspace.services.toolset`.

    `builtin` are the names of our own tools, `mode` returns the permission mode in force.
    """

    def __init__(
        self,
        catalog: Catalog,
        workspace: Workspace,
        activations: Activations,
        *,
        judge: Judge,
        mode: Callable[[], str],
        supervisor: Supervisor,
        builtin: Container[str],
        servers: ServerStarts,
    ) -> None:
        self._catalog = catalog
        self._workspace = workspace
        self._removal_reason = getattr(judge, "removal_reason", lambda name: None)
        self._mode = mode
        self._supervisor = supervisor
        self._builtin = builtin
        self._servers = servers
        self.activations = activations
        self.deferred: Mapping[str, Tool] = {}
        self.sent: Mapping[str, Tool] = {}
        self._definitions: WeakKeyDictionary[Tool, ToolSpec] = WeakKeyDictionary()
        self._index: ToolIndex | None = None
        self._window = DEFAULT_CONTEXT_WINDOW

    async def offering(
        self,
        window: int | None = None,
        *,
        only: Sequence[str] | None = None,
        every: bool = False,
        defer: Defer | None = None,
    ) -> OfferedTools:
        """Select what a request carries. `window` is the model's context, else the last one; `only` narrows the tools;
        `defer` replaces the setting of that name.

        Tools that are excluded by name are not even loaded, unless `every` tool is to be listed with a reason.
        """
        workspace, catalog = self._workspace, self._catalog
        context, gate = self._context(only), self._gate
        names = list(catalog) if every else self._names(context)
        tools = [tool for name in names if (tool := catalog.find(name)) is not None]
        availability = await check_availability(
            sorted(tools, key=lambda tool: (is_mcp_tool(tool), tool.name)),
            context,
            gate=gate,
            removes=self._removal_reason,
            disabled=lambda tool: ask_enabled(tool, workspace, self._supervisor, Abort()),
        )
        descriptions = await self._describe(each.tool for each in availability if each.offered)
        return self._offer(availability, window, descriptions, defer or self.defer)

    def offered_names(self) -> list[str]:
        """The tools of the last request; before the first one, those that nothing excludes by name."""
        if self.sent or self.deferred:
            return [*self.sent, *self.deferred]
        return [name for name in self._names(self._context(None)) if self._removal_reason(name) is None]

    def _context(self, only: Sequence[str] | None) -> OfferContext:
        workspace = self._workspace
        simple = is_feature_enabled(SIMPLE_FEATURE, workspace.settings, workspace.env)
        return OfferContext(self._mode(), simple, None if only is None else tuple(only))

    def _gate(self, name: str) -> str | None:
        return feature_gate(name, settings=self._workspace.settings, env=self._workspace.env)

    def _names(self, context: OfferContext) -> list[str]:
        return [name for name in self._catalog if self._closed(name, context) is None]

    def why_closed(self, name: str) -> str | None:
        """Why no tool of this name can be called now, whatever its input; None where the rules and the mode decide."""
        return self._closed(name, self._context(None))

    def _closed(self, name: str, context: OfferContext) -> str | None:
        return self._gate(name) or why_excluded_by_name(name, context)

    def candidates(self) -> list[Tool]:
        """The tools that no gate, mode or rule excludes, by name. Their own checks are not run: those may have to wait."""
        context = self._context(None)
        names = [name for name in self._names(context) if self._removal_reason(name) is None]
        tools = [tool for name in names if (tool := self._catalog.find(name)) is not None]
        fitting = [tool for tool in tools if why_excluded(tool, context) is None]
        return sorted(fitting, key=lambda tool: (is_mcp_tool(tool), tool.name))

    @property
    def defer(self) -> Defer:
        setting = self._workspace.setting("defer")
        return "always" if setting == "always" else "never" if setting == "never" else "auto"

    async def _describe(self, tools: Iterable[Tool]) -> Mapping[str, str]:
        """The descriptions that tools make for this workspace, by name; the fixed one where that fails."""
        describing = [tool for tool in tools if tool.has_describe]
        runs = (
            self._supervisor.run(tool.describe(self._workspace), Abort(), ENABLED_CHECK_SECONDS) for tool in describing
        )
        texts = await asyncio.gather(*runs, return_exceptions=True) if describing else ()
        descriptions: dict[str, str] = {}
        for tool, text in zip(describing, texts, strict=True):
            if isinstance(text, str) and text.strip():
                descriptions[tool.name] = text
            else:
                log.error("the description of %s could not be made: %r", tool.name, text)
        return descriptions

    def _offer(
        self,
        availability: Sequence[ToolAvailability],
        window: int | None,
        descriptions: Mapping[str, str],
        defer: Defer,
    ) -> OfferedTools:
        self._window = window or self._window
        order = order_tools(
            (each.tool for each in availability if each.offered),
            builtin=self._builtin,
            defer=defer,
            tokens=token_budget(self._window),
            activated=self.activations.names,
        )
        self.sent = {tool.name: tool for tool in order.tools}
        self.deferred = {tool.name: tool for tool in order.deferred}
        return OfferedTools(
            order.tools,
            tuple(self._definition(tool, descriptions.get(tool.name, tool.description)) for tool in order.tools),
            order.breaks,
            order.deferred,
            list_deferred(order.deferred, starting=self._servers.connecting() if defer != "never" else ()),
            tuple(map(self._mark_deferred, availability)),
        )

    def activate_called(self, name: str) -> None:
        """A deferred tool that is called by name is sent in full from now on."""
        if name in self.deferred:
            self.activations.activate((name,))

    async def select(self, names: Sequence[str]) -> tuple[list[Tool], list[str]]:
        """Return the tools of these names, and the names that do not exist."""
        await self._refresh()
        tools = {**self.sent, **self.deferred}
        return [tools[name] for name in names if name in tools], [name for name in names if name not in tools]

    async def search(self, query: str, most: int) -> list[Tool]:
        """Search the deferred tools; where none is deferred, those of servers, which may have just connected."""
        await self._refresh()
        tools = tuple(self.deferred.values()) or tuple(filter(is_mcp_tool, self.sent.values()))
        index = self._index
        if index is None or index.tools != tools:
            from wieldy.tools.toolset.search import ToolIndex

            index = self._index = await in_thread(ToolIndex, tools)
        return index.search(query, most)

    def fit(self, tools: Sequence[Tool]) -> list[Tool]:
        """The first of these tools, as many as the next request has room for, but at least one."""
        room, fitting = token_budget(self._window), list[Tool]()
        for tool in tools:
            room -= estimate_tokens(tool) if tool.name in self.deferred else 0
            if room < 0 and fitting:
                break
            fitting.append(tool)
        return fitting

    def starting(self) -> Sequence[str]:
        """The servers whose tools are not known yet."""
        return self._servers.connecting()

    async def _refresh(self) -> None:
        """Wait a while for servers that are still starting, and list the tools again."""
        if self._servers.connecting():
            await self._servers.wait(SERVER_WAIT_SECONDS)
        await self.offering()

    def _definition(self, tool: Tool, description: str) -> ToolSpec:
        """The same object while nothing has changed, so that its encoded bytes are reused from request to request."""
        definition = self._definitions.get(tool)
        if definition is None or definition.description != description:
            definition = self._definitions[tool] = ToolSpec(tool.name, description, tool.schema)
        return definition

    def _mark_deferred(self, availability: ToolAvailability) -> ToolAvailability:
        tool = availability.tool
        if self.deferred.get(tool.name) is not tool:
            return availability
        return ToolAvailability(tool, True, "deferred: sent by name, ToolSearch loads it")


class Activations:
    """The activated tools of one workspace: `workspace.services.activations`. Names are only ever appended."""

    def __init__(self, on_change: Callable[[tuple[str, ...]], None] | None = None) -> None:
        self._names: dict[str, None] = {}
        self._on_change = on_change

    @property
    def names(self) -> tuple[str, ...]:
        """Oldest first."""
        return tuple(self._names)

    def activate(self, names: Iterable[str]) -> tuple[str, ...]:
        """Activate tools; returns, and reports to `on_change`, those that were not active before."""
        new = tuple(name for name in dict.fromkeys(names) if name not in self._names)
        self._names.update(dict.fromkeys(new))
        if new and self._on_change is not None:
            self._on_change(new)
        return new

    def restore(self, names: Iterable[str]) -> None:
        """Restore the activations of an earlier run without reporting them."""
        self._names.update(dict.fromkeys(names))


class ActivatingCatalog(Catalog):
    """A view of a catalog for calls: finding a deferred tool activates it."""

    def __init__(self, catalog: Catalog, toolset: Toolset) -> None:
        super().__init__()
        self._catalog = catalog
        self._toolset = toolset

    def offered_names(self) -> list[str]:
        return self._toolset.offered_names()

    def why_closed(self, name: str) -> str | None:
        return self._toolset.why_closed(name)

    def find(self, name: str) -> Tool | None:
        if self._toolset.deferred:
            self._toolset.activate_called(name)
        return self._catalog.find(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._catalog)

    def __len__(self) -> int:
        return len(self._catalog)

    def __contains__(self, name: object) -> bool:
        return name in self._catalog
