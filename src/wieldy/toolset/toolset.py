"""The pool of a workspace: what is offered now, what waits to be searched for, and what was activated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from msgspec import Struct

from wieldy.core.catalog import Catalog, ToolAvailability
from wieldy.core.provider import ToolDefinition
from wieldy.core.threads import in_thread
from wieldy.core.tool import Tool
from wieldy.core.workspace import Workspace
from wieldy.toolset.order import Defer, ToolOrder, budget, is_mcp_tool, listing, order_tools

if TYPE_CHECKING:
    from wieldy.toolset.search import Index


class Activations:
    """The activated tools of one workspace: `workspace.service(Activations)`. Names are only ever appended."""

    def __init__(self, workspace: Workspace | None = None) -> None:
        self._names: dict[str, None] = {}
        self.on_change: Callable[[tuple[str, ...]], None] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, oldest first."""
        return tuple(self._names)

    def activate(self, names: Iterable[str]) -> tuple[str, ...]:
        """Activate tools; returns, and tells the listener, those that were not active before."""
        new = tuple(name for name in dict.fromkeys(names) if name not in self._names)
        self._names.update(dict.fromkeys(new))
        if new and self.on_change is not None:
            self.on_change(new)
        return new

    def restore(self, names: Iterable[str]) -> None:
        """Take back what an earlier run had activated; nobody is told."""
        self._names.update(dict.fromkeys(names))


CONTEXT_WINDOW = 200_000
PATIENCE = 10.0


class OfferedTools(Struct, frozen=True):
    """What one request carries of tools.

    `tools` are sent in full, in blocks that end at `breaks`; `deferred` ones are named in `listing`, which goes into the
    system prompt; `rows` has every tool that was looked at with the reason why it is or is not offered.
    """

    tools: tuple[Tool, ...]
    offers: tuple[ToolDefinition, ...]
    breaks: tuple[int, ...]
    deferred: tuple[Tool, ...]
    listing: str
    rows: tuple[ToolAvailability, ...]


class Toolset:
    """What `ToolSearch` searches and requests are made from: `workspace.service(Pool)`."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self.activations = workspace.service(Activations)
        self.refresh: Callable[[], Awaitable[object]] | None = None
        self.starting: Callable[[], Sequence[str]] = tuple
        self.settled: Callable[[float], Awaitable[None]] | None = None
        self.waiting: Mapping[str, Tool] = {}
        self.ready: Mapping[str, Tool] = {}
        self._offers: WeakKeyDictionary[Tool, ToolDefinition] = WeakKeyDictionary()
        self._index: Index | None = None
        self._window = CONTEXT_WINDOW

    @property
    def defer(self) -> Defer:
        """When tools are sent by name only, as configured."""
        said = self._workspace.setting("defer", "auto")
        return "always" if said == "always" else "never" if said == "never" else "auto"

    def offering(
        self, rows: Sequence[ToolAvailability], builtin: Container[str], window: int | None = None
    ) -> OfferedTools:
        """What to send of the tools that a survey found, to a model with this context window, else the last one."""
        self._window = window or self._window
        arranged = order_tools(
            (row.tool for row in rows if row.offered),
            builtin=builtin,
            defer=self.defer,
            tokens=budget(self._window),
            activated=self.activations.names,
        )
        self.ready = {tool.name: tool for tool in arranged.tools}
        self.waiting = {tool.name: tool for tool in arranged.deferred}
        return OfferedTools(
            arranged.tools,
            tuple(map(self._offer, arranged.tools)),
            arranged.breaks,
            arranged.deferred,
            listing(arranged.deferred, starting=self.starting() if self.defer != "never" else ()),
            tuple(_told(rows, arranged)),
        )

    def called(self, name: str) -> None:
        """Take note that a tool is called by name: one that was deferred is offered in full from now on."""
        if name in self.waiting:
            self.activations.activate((name,))

    async def select(self, names: Sequence[str]) -> tuple[list[Tool], list[str]]:
        """The tools of exactly these names, and the names that there are not."""
        await self._refreshed()
        known = {**self.ready, **self.waiting}
        return [known[name] for name in names if name in known], [name for name in names if name not in known]

    async def search(self, query: str, most: int) -> list[Tool]:
        """The deferred tools that fit a query best; where none is deferred, those of servers, which may only just have come."""
        await self._refreshed()
        among = tuple(self.waiting.values()) or tuple(filter(is_mcp_tool, self.ready.values()))
        index = self._index
        if index is None or index.tools != among:
            from wieldy.toolset.search import Index

            index = self._index = await in_thread(Index, among)
        return index.search(query, most)

    async def _refreshed(self) -> None:
        """Look again at what there is; whoever searches may wait a little for servers that are still starting."""
        if self.settled is not None and self.starting():
            await self.settled(PATIENCE)
        if self.refresh is not None:
            await self.refresh()

    def _offer(self, tool: Tool) -> ToolDefinition:
        """The same object for the same tool, so that its encoded bytes are kept from request to request."""
        offer = self._offers.get(tool)
        if offer is None:
            offer = self._offers[tool] = ToolDefinition(tool.name, tool.description, tool.schema)
        return offer


def _told(rows: Sequence[ToolAvailability], arranged: ToolOrder) -> list[ToolAvailability]:
    deferred = {id(tool) for tool in arranged.deferred}
    return [
        ToolAvailability(row.tool, True, "deferred: sent by name, ToolSearch loads it")
        if id(row.tool) in deferred
        else row
        for row in rows
    ]


class ActivatingCatalog(Catalog):
    """Another view of a catalog, in which finding a tool counts as a call of it."""

    def __init__(self, catalog: Catalog, pool: Toolset) -> None:
        super().__init__()
        self._catalog = catalog
        self._pool = pool

    def find(self, name: str) -> Tool | None:
        """The tool of exactly this name, loaded from now on."""
        if self._pool.waiting:
            self._pool.called(name)
        return self._catalog.find(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._catalog)

    def __len__(self) -> int:
        return len(self._catalog)

    def __contains__(self, name: str) -> bool:
        return name in self._catalog
