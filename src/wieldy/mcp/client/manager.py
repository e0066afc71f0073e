"""All servers of a workspace: started side by side in the background, their tools in the catalog, their common end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import count
from typing import Any

from wieldy.core.catalog import Catalog
from wieldy.core.decision import Approver
from wieldy.core.errors import ToolDefinitionError
from wieldy.core.events import Notice
from wieldy.core.logs import log
from wieldy.core.provider import SideModel
from wieldy.core.threads import in_thread
from wieldy.core.workspace import Workspace
from wieldy.mcp.client.config import Pins, ServerConfig, configured
from wieldy.mcp.client.connection import Connection, ServerChanged, State, Surroundings
from wieldy.mcp.client.server_requests import Answers, Sampling
from wieldy.mcp.client.tools import Definition, ServerTool, Unfit, definition_of, server_keys, wire_names
from wieldy.shell.running.guardian import Guardian

CLOSE_SECONDS = 12.0
HEAD_START_SECONDS = 0.15
COURTEOUS_SECONDS = 0.0003


class Entry:
    """A server's connection, the task that owns it, and its tools by the name a model calls them."""

    def __init__(self, connection: Connection, key: str) -> None:
        self.connection = connection
        self.key = key
        self.task: asyncio.Task[None] | None = None
        self.tools: dict[str, ServerTool] = {}
        self.quarantined: dict[str, str] = {}


class McpServers:
    """`workspace.service(McpServers)`. Nothing happens until `start`."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.problems: list[str] = []
        self.pending: tuple[str, ...] = ()
        self.entries: dict[str, Entry] = {}
        self._catalog: Catalog | None = None
        self._approver: Approver | None = None
        self._pins = Pins(workspace.root, env=workspace.env)
        self._token = os.urandom(8).hex()
        self._guardian = Guardian(self._token)
        self._loaded: asyncio.Future[None] | None = None
        self._needed = asyncio.Event()
        self._numbers = count()
        self._told: set[str] = set()
        self._retired: set[asyncio.Task[None]] = set()

    @property
    def connections(self) -> Mapping[str, Connection]:
        """The connections by server."""
        return {name: entry.connection for name, entry in self.entries.items()}

    def start(self, catalog: Catalog, approver: Approver | None, pending: Iterable[str] = ()) -> None:
        """Start every configured server in the background. `pending` ones wait for the user's consent."""
        self._catalog, self._approver = catalog, approver
        self.pending = tuple(pending)
        self.update(self.workspace.settings)

    def update(self, settings: Mapping[str, Any]) -> None:
        """Start what has come into the settings, end what has gone, restart what has changed; the rest goes on."""
        found = configured(settings, self.workspace.env)
        self.problems = list(found.problems)
        for problem in found.problems:
            log.warning("%s", problem)
        wanted = {config.name: config for config in found.servers}
        for name in [name for name, entry in self.entries.items() if wanted.get(name) != entry.connection.config]:
            self._retire(name)
        keys = server_keys(wanted)
        for name, config in wanted.items():
            if name not in self.entries:
                self._add(config, keys[name])

    def states(self) -> dict[str, State]:
        """How each server is doing."""
        waiting = {name: State("needs approval", "run `wieldy permissions trust`") for name in self.pending}
        return {**{name: entry.connection.state for name, entry in self.entries.items()}, **waiting}

    def starting(self) -> list[str]:
        """The servers of which it is not known yet whether they come up."""
        return [name for name, state in self.states().items() if state.word == "connecting"]

    async def settled(self, seconds: float | None = None, only: str | None = None) -> None:
        """Wait until every server, or only one, is ready or has failed, or time is up."""
        self._needed.set()
        waits = [connection.settled() for name, connection in self.connections.items() if only in (None, name)]
        if waits:
            try:
                async with asyncio.timeout(seconds):
                    await asyncio.gather(*waits)
            except TimeoutError:
                return

    async def expected(self, tool: str) -> None:
        """Wait until the server that a tool's name speaks of is ready or has failed."""
        self._needed.set()
        for entry in list(self.entries.values()):
            if tool.startswith(f"mcp__{entry.key}__"):
                await entry.connection.settled()

    async def aclose(self) -> None:
        """End all connections side by side, and every process they started."""
        self._needed.set()
        entries = list(self.entries.values())
        for entry in entries:
            entry.connection.close()
        tasks = [*self._retired, *(entry.task for entry in entries if entry.task is not None)]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=CLOSE_SECONDS)
        await in_thread(self._guardian.dismiss)
        self.entries.clear()

    def _add(self, config: ServerConfig, key: str) -> None:
        entry: Entry
        answers = Answers(config.name, self.workspace, self._approver)
        # A server hears that it may ask the model only where there is one.
        has_model = self.workspace.service(SideModel).complete is not None
        around = Surroundings(
            workspace=self.workspace,
            answers=answers,
            listed=lambda tools: self._listed(entry, tools),
            changed=lambda state: self._changed(entry, state),
            started=self._watch,
            mark=f"{self._token}.{next(self._numbers)}.",
            sampling=Sampling(config.name, self.workspace, answers) if has_model else None,
        )
        entry = self.entries[config.name] = Entry(Connection(config, around), key)
        entry.task = asyncio.get_running_loop().create_task(self._run(entry.connection))

    async def _run(self, connection: Connection) -> None:
        await self._sdk()
        await connection.run()

    async def _sdk(self) -> None:
        """The SDK takes most of a second to import: once, not on the loop, and not before the first request is on its way."""
        if self._loaded is None:
            self._loaded = asyncio.get_running_loop().create_future()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._needed.wait(), HEAD_START_SECONDS)
            await in_thread(self._prepare)
            self._loaded.set_result(None)
        await self._loaded

    def _prepare(self) -> None:
        """What would hold up the loop: the import, and the start of the guardian."""
        _load()
        if any(entry.connection.config.kind == "stdio" for entry in list(self.entries.values())):
            self._guardian.wake()

    def _retire(self, name: str) -> None:
        entry = self.entries.pop(name)
        entry.connection.close()
        if entry.task is not None:
            self._retired.add(entry.task)
            entry.task.add_done_callback(self._retired.discard)
        self._take_away(entry.tools)

    def _watch(self, pid: int) -> None:
        self._guardian.wake()
        self._guardian.note(pid, running=True)

    def _changed(self, entry: Entry, state: State) -> None:
        name = entry.connection.config.name
        self.workspace.emit(ServerChanged(server=name, state=state.word, why=state.why, tools=len(entry.tools)))
        if state.word == "failed":
            self._tell(f"the MCP server {name} is not there: {state.why}")

    async def _listed(self, entry: Entry, listed: Sequence[Any]) -> None:
        """Take over a server's list: tools that stayed the same stay the same objects."""
        server = entry.connection.config.name
        entry.quarantined = {}
        sound = {tool.name: found for tool in listed if (found := self._sound(entry, tool)) is not None}
        digests = {name: definition.digest for name, definition in sound.items()}
        changed = await in_thread(self._pins.changed, server, digests)
        names = wire_names(entry.key, sound)
        before, entry.tools = entry.tools, {}
        for own, definition in sound.items():
            wire = names[own]
            old = before.get(wire)
            if old is not None and old.definition.digest == definition.digest:
                entry.tools[wire] = old
                continue
            accept = partial(self._pins.pin, server, {own: definition.digest}) if own in changed else None
            entry.tools[wire] = ServerTool(wire, definition, entry.connection, accept)
        self._take_away({wire: tool for wire, tool in before.items() if entry.tools.get(wire) is not tool})
        self._put_in({wire: tool for wire, tool in entry.tools.items() if before.get(wire) is not tool})
        if entry.connection.state.word == "ready" and before != entry.tools:
            self._changed(entry, entry.connection.state)

    def _sound(self, entry: Entry, tool: Any) -> Definition | None:
        try:
            return definition_of(tool)
        except Unfit as why:
            self._quarantine(entry, tool.name, str(why))
            return None

    def _quarantine(self, entry: Entry, tool: str, why: str) -> None:
        entry.quarantined[tool] = why
        text = f"the tool {tool} of the MCP server {entry.connection.config.name} is left out: {why}"
        self._tell(text)

    def _tell(self, text: str) -> None:
        """Say something to the person, once."""
        if text not in self._told:
            self._told.add(text)
            log.warning("%s", text)
            self.workspace.emit(Notice(text=text))

    def _put_in(self, tools: Mapping[str, ServerTool]) -> None:
        assert self._catalog is not None
        for tool in tools.values():
            try:
                self._catalog.add(tool)
            except ToolDefinitionError as why:
                entry = self.entries.get(tool.server)
                if entry is not None:
                    entry.tools.pop(tool.name, None)
                    self._quarantine(entry, tool.definition.name, str(why))

    def _take_away(self, tools: Mapping[str, ServerTool]) -> None:
        assert self._catalog is not None
        for name, tool in tools.items():
            if self._catalog.find(name) is tool:
                self._catalog.remove(name)


def _load() -> None:
    """Import the SDK, handing the interpreter over often: whoever works meanwhile must not wait for it."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(COURTEOUS_SECONDS)
    try:
        import_module("wieldy.mcp.client.connection")
    finally:
        sys.setswitchinterval(before)
