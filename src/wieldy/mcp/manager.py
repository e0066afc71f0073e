"""All MCP servers of a workspace: started in the background, their tools in the catalog, closed together."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from wieldy.core.catalog import Catalog
from wieldy.core.decision import Approver
from wieldy.core.errors import ToolDefinitionError
from wieldy.core.events import Notice
from wieldy.core.logs import log
from wieldy.core.provider import CompletionFunction
from wieldy.core.text import plural, truncate_line
from wieldy.core.threads import in_thread
from wieldy.core.user_questions import UserQuestions
from wieldy.core.workspace import Workspace
from wieldy.mcp.config import PROJECT_VARIABLE, ServerConfig, parse_servers
from wieldy.mcp.connection import Connection, ConnectionContext, ServerState, ServerStateChanged, StateName
from wieldy.mcp.definitions import (
    MAX_ITEMS,
    ToolPins,
    parse_definitions,
    server_keys,
    wire_names,
)
from wieldy.mcp.server_requests import SamplingHandler, ServerRequestHandler
from wieldy.mcp.tools import ServerTool
from wieldy.mcp.transport import McpRelay
from wieldy.shell.running.guardian import Guardian

if TYPE_CHECKING:
    from wieldy.mcp.resources import ServerResources

CLOSE_SECONDS = 12.0
IMPORT_DELAY_SECONDS = 0.15


class ManagedServer:
    """A server's connection, the task that owns it, and its tools by the name a model calls them."""

    def __init__(self, connection: Connection, key: str) -> None:
        self.connection = connection
        self.key = key
        self.task: asyncio.Task[None] | None = None
        self.tools: dict[str, ServerTool] = {}
        self.quarantined: dict[str, str] = {}


class ServerReport(Struct, frozen=True):
    """A server as it is now: its state, what is wrong, and the command that helps. Whoever shows servers renders this."""

    name: str
    state: StateName
    problem: str = ""
    next_step: str = ""
    kind: str = ""  # this and what follows are empty for one that waits for consent
    where: str = ""
    tools: Mapping[str, ServerTool] = {}
    left_out: Mapping[str, str] = {}
    stderr: str = ""

    def summary(self, prompts: int = 0) -> str:
        """Its state in a line: what it offers, or why it offers nothing."""
        if self.state != "ready":
            return f"{self.state}: {self.problem}".removesuffix(": ")
        text = plural(len(self.tools), "tool") + (f", {plural(prompts, 'prompt')}" if prompts else "")
        if self.left_out:
            text += f", left out: {truncate_line(', '.join(self.left_out), 200)} (`{self.next_step}`)"
        return text


class McpServers:
    """`workspace.services.mcp_servers`. Nothing happens until `start`; `relay` reaches servers of kind `sdk`."""

    def __init__(
        self,
        workspace: Workspace,
        questions: UserQuestions,
        side_model: CompletionFunction | None,
        relay: McpRelay | None = None,
    ) -> None:
        self.workspace = workspace
        self._questions = questions
        self._side_model = side_model
        self._relay = relay
        self.problems: list[str] = []
        self.pending: tuple[str, ...] = ()
        self.servers: dict[str, ManagedServer] = {}
        self._catalog: Catalog | None = None
        self._approver: Approver | None = None
        self._only: Collection[str] | None = None
        self._foreign: Collection[str] = ()
        self._disabled: set[str] = set()
        self._pins = ToolPins(workspace.root, env=workspace.env)
        self._mark = os.urandom(8).hex()
        self._guardian = Guardian(self._mark)
        self._sdk_lock = asyncio.Lock()
        self._is_sdk_loaded = False
        self._needed_now = asyncio.Event()
        self._process_numbers = count()
        self._reported: set[str] = set()
        self._removed_tasks: set[asyncio.Task[None]] = set()

    @property
    def resources(self) -> ServerResources:
        from wieldy.mcp.resources import ServerResources

        return ServerResources(self)

    @property
    def connections(self) -> Mapping[str, Connection]:
        return {name: server.connection for name, server in self.servers.items()}

    def start(
        self,
        catalog: Catalog,
        approver: Approver | None,
        pending: Iterable[str] = (),
        only: Collection[str] | None = None,
        foreign: Collection[str] = (),
    ) -> None:
        """Start every configured server in the background, or `only` some. `pending` ones wait for the user's consent.

        `foreign` ones are configured by the project: they take no name from the user's own.
        """
        self._catalog, self._approver, self._only, self._foreign = catalog, approver, only, foreign
        self.pending = tuple(name for name in pending if only is None or name in only)
        self.update(self.workspace.settings)

    def update(self, settings: Mapping[str, Any]) -> None:
        """Start new servers, stop removed ones, restart changed ones, keep the rest."""
        configs, problems = parse_servers(settings, self._variables())
        self.problems = problems
        for problem in problems:
            log.warning("%s", problem)
        by_name = {config.name: config for config in configs if self._is_wanted(config.name)}
        keys = server_keys(by_name, self._foreign)
        current = [(name, server.connection.config, server.key) for name, server in self.servers.items()]
        for name, config, key in current:
            if by_name.get(name) != config or keys[name] != key:
                self._remove(name)
        for name, config in by_name.items():
            if name not in self.servers:
                self._add(config, keys[name])

    def _variables(self) -> dict[str, str]:
        return {**self.workspace.env, PROJECT_VARIABLE: self.workspace.project_root}

    def enable(self, name: str, enabled: bool) -> None:
        """Stop a configured server, or start it again, until the workspace is closed. Raises `KeyError` for an unknown one."""
        configs, _ = parse_servers(self.workspace.settings, self._variables())
        if name not in {config.name for config in configs}:
            raise KeyError(name)
        (self._disabled.discard if enabled else self._disabled.add)(name)
        self.update(self.workspace.settings)

    def states(self) -> dict[str, ServerState]:
        """Return the state of each server, pending ones included."""
        pending = {name: ServerState("needs approval", "run `wieldy permissions trust`") for name in self.pending}
        return {**{name: connection.state for name, connection in self.connections.items()}, **pending}

    def reports(self) -> dict[str, ServerReport]:
        """Describe each server, pending ones included."""
        return {name: self._report_on(name, state) for name, state in self.states().items()}

    def _report_on(self, name: str, state: ServerState) -> ServerReport:
        server = self.servers.get(name)
        problem, next_step = state.why, f"wieldy mcp get {name}"
        if state.name == "needs approval":
            next_step = "wieldy permissions trust" if name in self.pending else f"wieldy mcp reconnect {name}"
        if server is None:
            return ServerReport(name, state.name, problem, next_step)
        connection = server.connection
        if state.name == "connecting":
            problem = problem or "no answer yet"
            last_line = connection.stderr.last_lines(1)[:200]
            problem += f" ({last_line})" if last_line not in problem else ""
        return ServerReport(
            name,
            state.name,
            problem,
            next_step if state.name != "ready" or server.quarantined else "",
            connection.config.kind,
            connection.config.where,
            dict(sorted(server.tools.items())),
            dict(server.quarantined),
            connection.stderr.last_lines(10),
        )

    def connecting(self) -> list[str]:
        """Return the servers that are neither ready nor failed yet."""
        return [name for name, state in self.states().items() if state.name == "connecting"]

    async def wait_settled(self, seconds: float | None = None, only: str | None = None) -> None:
        """Wait until every server, or only one, is ready or has failed, or time is up."""
        self._needed_now.set()
        waits = [connection.wait_settled() for name, connection in self.connections.items() if only in (None, name)]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*waits)

    async def wait_for_tool(self, name: str) -> None:
        """Wait until the server of a tool or prompt is ready or has failed."""
        self._needed_now.set()
        for server in list(self.servers.values()):
            if name.startswith(f"mcp__{server.key}__"):
                await server.connection.wait_settled()

    async def aclose(self) -> None:
        """Close all connections concurrently and end every process they started."""
        self._needed_now.set()
        servers = list(self.servers.values())
        for server in servers:
            server.connection.close()
        tasks = [*self._removed_tasks, *(server.task for server in servers if server.task is not None)]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=CLOSE_SECONDS)
        await in_thread(self._guardian.stop)
        self.servers.clear()

    def _is_wanted(self, name: str) -> bool:
        return name not in self._disabled and (self._only is None or name in self._only)

    def _add(self, config: ServerConfig, key: str) -> None:
        server: ManagedServer
        requests = ServerRequestHandler(config.name, self.workspace, self._questions, self._approver)
        # The sampling capability is announced only where there is a model.
        model = self._side_model
        context = ConnectionContext(
            workspace=self.workspace,
            requests=requests,
            on_tools=lambda tools: self._update_tools(server, tools),
            on_state=lambda state: self._report_state(server, state),
            on_process=self._guard_process,
            mark=f"{self._mark}.{next(self._process_numbers)}.",
            sampling=SamplingHandler(config.name, self.workspace, model, requests) if model is not None else None,
            relay=self._relay,
        )
        server = self.servers[config.name] = ManagedServer(Connection(config, context), key)
        server.task = asyncio.get_running_loop().create_task(self._run(server.connection))

    async def _run(self, connection: Connection) -> None:
        async with self._sdk_lock:
            await self._load_sdk()
        await connection.run()

    async def _load_sdk(self) -> None:
        """Import the SDK once, in a thread because it takes most of a second.

        The short delay lets the first model request go out before the import competes for the interpreter. What goes wrong
        here goes wrong again where the SDK is used, and is reported there.
        """
        if self._is_sdk_loaded:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._needed_now.wait(), IMPORT_DELAY_SECONDS)
        with contextlib.suppress(ImportError, OSError):
            await in_thread(self._prepare)
        self._is_sdk_loaded = True

    def _prepare(self) -> None:
        import_module("mcp.client.client")
        if any(server.connection.config.kind == "stdio" for server in list(self.servers.values())):
            self._guardian.ensure_running()

    def _remove(self, name: str) -> None:
        server = self.servers.pop(name)
        server.connection.close()
        if server.task is not None:
            self._removed_tasks.add(server.task)
            server.task.add_done_callback(self._removed_tasks.discard)
        self._remove_tools(server.tools)

    def _guard_process(self, pid: int) -> None:
        self._guardian.ensure_running()
        self._guardian.report_shell(pid, running=True)

    def _report_state(self, server: ManagedServer, state: ServerState) -> None:
        name = server.connection.config.name
        self.workspace.emit(ServerStateChanged(server=name, state=state.name, why=state.why, tools=len(server.tools)))
        if state.name == "failed":
            self._report(f"the MCP server {name} is not available: {state.why}")

    def _report(self, text: str) -> None:
        """Emit a notice once."""
        if text not in self._reported:
            self._reported.add(text)
            log.warning("%s", text)
            self.workspace.emit(Notice(text=text))

    async def _update_tools(self, server: ManagedServer, listed: Sequence[Any]) -> None:
        """Take over a server's tool list; unchanged tools stay the same objects."""
        server.quarantined = {}
        if len(listed) > MAX_ITEMS:
            why = f"it and those after it: the first {MAX_ITEMS:,} tools of a server are used"
            self._quarantine(server, listed[MAX_ITEMS].name, why)
        definitions, problems = await in_thread(parse_definitions, listed[:MAX_ITEMS])
        for own_name, why in problems.items():
            self._quarantine(server, own_name, why)
        names, collisions = wire_names(server.key, definitions)
        for own_name, wire_name in collisions.items():
            self._quarantine(server, own_name, f"another tool has its name, {wire_name}")
        pinned = {own_name: wire_name.removeprefix(f"mcp__{server.key}__") for own_name, wire_name in names.items()}
        digests = {pinned[own_name]: definitions[own_name].digest for own_name in names}
        changed = await in_thread(self._pins.changed, server.key, digests)
        previous, server.tools = server.tools, {}
        for own_name, wire_name in names.items():
            definition, pin = definitions[own_name], pinned[own_name]
            old = previous.get(wire_name)
            if old is not None and old.definition.digest == definition.digest:
                server.tools[wire_name] = old
                continue
            accept = partial(self._pins.pin, server.key, {pin: definition.digest}) if pin in changed else None
            server.tools[wire_name] = ServerTool(wire_name, definition, server.connection, accept)
        self._remove_tools({wire: tool for wire, tool in previous.items() if server.tools.get(wire) is not tool})
        self._add_tools({wire: tool for wire, tool in server.tools.items() if previous.get(wire) is not tool})
        if server.connection.state.name == "ready" and previous != server.tools:
            self._report_state(server, server.connection.state)

    def _quarantine(self, server: ManagedServer, tool: str, why: str) -> None:
        server.quarantined[tool] = why
        self._report(f"the tool {tool} of the MCP server {server.connection.config.name} is left out: {why}")

    def _add_tools(self, tools: Mapping[str, ServerTool]) -> None:
        assert self._catalog is not None
        for tool in tools.values():
            try:
                self._catalog.add(tool)
            except ToolDefinitionError as error:
                server = self.servers.get(tool.server)
                if server is not None:
                    server.tools.pop(tool.name, None)
                    self._quarantine(server, tool.definition.name, str(error))

    def _remove_tools(self, tools: Mapping[str, ServerTool]) -> None:
        assert self._catalog is not None
        for name, tool in tools.items():
            current = self._catalog.find(name)
            if current is not None and current.unwrapped is tool:
                self._catalog.remove(name)
