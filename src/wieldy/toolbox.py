"""`Toolbox`: the tool system alone, for whoever has a model of their own or needs none."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from msgspec.structs import replace

from wieldy.approval import Ask, CallbackApprover, NoApprover, ObservedApprover
from wieldy.core.abort import Abort
from wieldy.core.call import RawInput, ToolCall
from wieldy.core.catalog import Catalog, ToolAvailability
from wieldy.core.decision import Adviser, Approver, Decision, Judge
from wieldy.core.events import Notice
from wieldy.core.outcome import ToolResult
from wieldy.core.state_dirs import state_home
from wieldy.core.threads import in_thread
from wieldy.core.tool import Tool
from wieldy.core.workspace import Workspace
from wieldy.engine.events import Events, Subscriber
from wieldy.engine.pipeline import bind, handle, lookup, normalize
from wieldy.engine.queue import Queue
from wieldy.engine.results import Spill
from wieldy.engine.services import Services
from wieldy.engine.supervise import Supervisor
from wieldy.engine.turn import Turn
from wieldy.files.journal.store import journal_folder
from wieldy.permissions.risk_levels import RiskLevels
from wieldy.settings.load import Settings, SettingsWatcher
from wieldy.settings.load import load_settings as settings_of
from wieldy.settings.wiring import Wiring
from wieldy.tools import MODULES, builtin_loaders
from wieldy.toolset.gates import (
    SIMPLE,
    Context,
    check_availability,
    feature_gate,
    is_feature_enabled,
    why_excluded_by_name,
)
from wieldy.toolset.order import MCP_PREFIX, is_mcp_tool
from wieldy.toolset.toolset import ActivatingCatalog, OfferedTools, Toolset

if TYPE_CHECKING:
    from wieldy.files.journal.undo import UndoPlan
    from wieldy.hooks.config import Hook
    from wieldy.hooks.dispatch import Hooks

CallLike: TypeAlias = ToolCall | Mapping[str, Any] | tuple[str, RawInput]

MAX_CONCURRENCY = 10
ENABLED_SECONDS = 5.0


class Toolbox:
    """Tools of one folder, each call through the whole pipeline.

    `mode` and `settings` are those of a settings file; settings given here stand in for the files unless `load_settings=True`.
    `settings_file` is one more file, above the others; like them it is followed when it changes.
    `ask` is called with every permission question and answers True, False, words for the model (a no), or an `Answer`;
    without it, what would be asked is denied. Without `servers` the MCP servers of the settings are left alone.
    """

    def __init__(  # noqa: PLR0913 - every option is a keyword with a default
        self,
        root: str | os.PathLike[str] = ".",
        *,
        mode: str | None = None,
        settings: Mapping[str, Any] | None = None,
        settings_file: str | os.PathLike[str] | None = None,
        tools: Iterable[Tool] = (),
        ask: Ask | None = None,
        load_settings: bool | None = None,
        builtins: bool = True,
        servers: bool = True,
        max_concurrency: int | None = None,
        hooks: Sequence[Hook] = (),
        advisers: Sequence[Adviser] = (),
        judge: Judge | None = None,
        session_id: str | None = None,
    ) -> None:
        self.id = session_id or os.urandom(6).hex()
        self.events = Events()
        self._servers = servers
        self._serving = False
        self._told: Callable[[str], None] | None = None
        supervisor = Supervisor()
        files = settings is None if load_settings is None else load_settings
        watched = files or settings_file is not None
        self._files = SettingsWatcher(root, named=settings_file, others=files) if watched else None
        self._read_settings = partial(settings_of, root, explicit=settings, files=files, named=settings_file)
        self.settings = self._read_settings()
        self.catalog = Catalog(builtin_loaders() if builtins else {})
        self.workspace = Workspace(
            root,
            session_dir=state_home() / "sessions" / self.id,
            settings=self.settings.values,
            extra_roots=tuple(self.settings.get("permissions.additionalDirectories", ())),
            emit=self.events.emit,
        )
        self.policy = self.settings.policy(self.workspace, mode)
        self.person: Approver = CallbackApprover(ask, self.policy, self.workspace, keep=files) if ask else NoApprover()
        pool = self.workspace.service(Toolset)
        pool.refresh, pool.starting, pool.settled = self.offering, self._starting, self.connected
        self._services = Services(
            catalog=ActivatingCatalog(self.catalog, pool),
            workspace=self.workspace,
            queue=Queue(max_concurrency or _concurrency(self.workspace.env), supervisor),
            supervisor=supervisor,
            judge=judge or self.policy,
            approver=self.person,
            events=self.events,
            spill=Spill(self.workspace.session_dir / "tool-results"),
        )
        self._calls = self._turns = 0
        self._wiring = Wiring(
            self.settings,
            self.policy,
            self.workspace,
            code_hooks=tuple(hooks),
            advisers=tuple(advisers),
            stop=lambda: self.stop,
            halt=self.abort,
        )
        for tool in tools:
            self.add(tool)
        self._heed()

    def _heed(self) -> None:
        """Have the calls to come follow the settings."""
        if self._files is not None:
            self._files.foreign = self.settings.get("compat.claude") is True
        self._services = self._wiring.build(self._services, self.catalog, self.person)
        if self._told is not None:
            self.witness(self._told)

    @property
    def hooks(self) -> Hooks:
        """The hooks of the settings, then those given in code."""
        return self._wiring.hooks

    @property
    def hook_problems(self) -> tuple[str, ...]:
        """What is wrong with the hooks of the settings."""
        return self._wiring.hook_problems

    def witness(self, told: Callable[[str], None]) -> None:
        """Have the id of every call told about which a person is asked, or would be if there were one."""
        self._told = told
        self._services.approver = ObservedApprover(self._services.approver, told)

    def add(self, tool: Tool) -> None:
        """Offer one more tool. Raises `ToolDefinitionError` for one that cannot be offered."""
        self.catalog.add(tool)

    async def call(self, name: str, input: RawInput | None = None, /, **fields: Any) -> ToolResult:
        """Call one tool, with a dict, JSON text, or keywords. Errors are results: `result.is_error`."""
        if name.startswith(MCP_PREFIX) and name not in self.catalog:
            await self._expected(name)
        self._notice_changes()
        return await handle(self._call((name, fields if input is None else input)), self._services)

    async def call_many(self, calls: Iterable[CallLike]) -> list[ToolResult]:
        """The calls of one turn: side by side where they do not clash, results in the order given."""
        async with self.turn() as turn:
            for call in calls:
                turn.submit(self._call(call))
            return await turn.results()

    def turn(self, message_id: str | None = None) -> Turn:
        """A turn whose calls are submitted one by one, each starting at once; undo can take back a whole turn."""
        self._notice_changes()
        if message_id is None:
            self._turns += 1
            message_id = f"turn_{self.id}_{self._turns}"
        return Turn(self._services, message_id)

    async def explain(self, name: str, input: RawInput | None = None, /, **fields: Any) -> Decision:
        """What would be decided about a call, and why. Nothing is run and nobody is asked."""
        call = self._call((name, fields if input is None else input))
        plan = normalize(bind(call, lookup(call, self.catalog)), self.workspace)
        return self._services.judge.decide(plan, ())

    async def offer(self) -> list[ToolAvailability]:
        """Every tool, ours before those of servers, each sorted by name: whether a model is offered it, and why or why not."""
        found = await offered(self.catalog, self._services, self.settings, self.policy.mode, every=True)
        return list(found.rows)

    async def offering(self, window: int | None = None, *, only: Sequence[str] | None = None) -> OfferedTools:
        """What a request carries of tools. `window` is the model's context (else the last one), `only` a sub-agent's list."""
        return await offered(self.catalog, self._services, self.settings, self.policy.mode, window, only)

    async def undo(
        self, call_id: str | None = None, *, turn: bool = False, everything: bool = False, merge: bool = False
    ) -> UndoPlan:
        """Take back the last change of this toolbox, those of one call, of the last turn, or all of them.

        Raises `CannotUndo` when a file has changed since and `merge` is off, or when there is nothing to take back.
        """
        from wieldy.files.journal.journal import Journal
        from wieldy.files.journal.undo import All, Call, Last, Turn

        journal = self.workspace.service(Journal)
        selector = (
            Call(call_id)
            if call_id
            else Turn(session=self.id)
            if turn
            else All(self.id)
            if everything
            else Last(self.id)
        )
        return self._reread(await journal.undo(selector, merge=merge))

    async def redo(self, *, merge: bool = False) -> UndoPlan:
        """Do again what the last undo took back."""
        from wieldy.files.journal.journal import Journal

        return self._reread(await self.workspace.service(Journal).redo(merge=merge, session=self.id))

    def _reread(self, plan: UndoPlan) -> UndoPlan:
        """What was restored is not what the model has read: an edit of it needs a new look."""
        from wieldy.files.editing.read_state import ReadState

        state = self.workspace.service(ReadState)
        for file in plan.files:
            state.forget(file.path)
        return plan

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Have a function called with every event; returns how to stop it."""
        return self.events.subscribe(subscriber)

    def stream(self) -> AbstractAsyncContextManager[Any]:
        """Every event from now on: `async with box.stream() as events: async for event in events`."""
        return self.events.stream()

    @property
    def services(self) -> Services:
        """What calls are handled with now."""
        return self._services

    @property
    def supervisor(self) -> Supervisor:
        """What foreign code of this toolbox runs on."""
        return self._services.supervisor

    @property
    def stop(self) -> Abort:
        """The flag that `abort` raises for the calls under way now."""
        return self._services.abort

    def abort(self, reason: str = "interrupted by the user") -> None:
        """Stop every call that is under way; each ends in a result within a second. Later calls are not affected."""
        stopped, self._services = self._services, replace(self._services, abort=Abort())
        stopped.abort.set(reason)

    async def aclose(self) -> None:
        """Stop what is under way and let go of everything."""
        self.abort("the toolbox was closed")
        await self._services.supervisor.aclose()
        await self.workspace.aclose()
        await self.events.aclose()

    async def __aenter__(self) -> Self:
        self._start_servers()
        await self._put_right()
        return self

    def _start_servers(self) -> None:
        """Have MCP servers connect in the background, where any is configured or waits for consent."""
        if not self._servers:
            return
        pending = [one.name.partition(".")[2] for one in self.settings.pending if one.name.startswith("mcpServers.")]
        if pending or self._serving or self.settings.get("mcpServers"):
            from wieldy.mcp.client.manager import McpServers

            self._serving = True
            self.workspace.service(McpServers).start(self.catalog, self._services.approver, pending)

    async def reload(self) -> Settings:
        """Read the settings again: all but the mode follows. Broken ones are told of, and what was in force stays so.

        Returns what was read; its `errors` say why it is not in force.
        """
        if self._files is not None:
            self._files.changed()
        settings = await in_thread(self._read_settings)
        self._renew(settings)
        return settings

    def _notice_changes(self) -> None:
        """Follow settings files that have changed; this takes a few microseconds where none has."""
        if self._files is not None and self._files.changed():
            self._renew(self._read_settings())

    def _renew(self, settings: Settings) -> None:
        if settings.errors:
            self.events.emit(Notice(text=f"{settings.errors[0]}; the settings stay as they were"))
            return
        before, self.settings = self.settings, settings
        self.workspace.settings = settings.values
        self.workspace.extra_roots = settings.extra_roots(self.workspace, before)
        self.policy.use_roots(self.workspace.roots)
        self.policy.update_settings(
            settings.rules, RiskLevels.from_settings(settings.values.get("tools")), settings.outside
        )
        self._wiring.update_settings(settings)
        self._heed()
        for problem in self.hook_problems:
            self.events.emit(Notice(text=problem))
        self._start_servers()

    def _starting(self) -> list[str]:
        """The MCP servers whose tools are not known yet."""
        if not self._serving:
            return []
        from wieldy.mcp.client.manager import McpServers

        states = self.workspace.service(McpServers).states()
        return [name for name, state in states.items() if state.name == "connecting"]

    async def _expected(self, tool: str) -> None:
        """Wait for the MCP server that a tool's name speaks of; this is a caller's word, not a model's, that it will come."""
        if self.settings.get("mcpServers"):
            from wieldy.mcp.client.manager import McpServers

            await self.workspace.service(McpServers).wait_for_tool(tool)

    async def connected(self, seconds: float | None = None) -> None:
        """Wait until every MCP server is ready or has failed, but not longer than told."""
        if self.settings.get("mcpServers"):
            from wieldy.mcp.client.manager import McpServers

            await self.workspace.service(McpServers).wait_settled(seconds)

    async def _put_right(self) -> None:
        """Finish or take back what a crash left half done. Without a journal of this project there is nothing to look at."""
        if not os.path.exists(journal_folder(self.workspace)):
            return
        from wieldy.files.journal.journal import Journal

        await self.workspace.service(Journal).start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _call(self, call: CallLike) -> ToolCall:
        if isinstance(call, ToolCall):
            return call
        if isinstance(call, Mapping):
            return ToolCall(call.get("id") or self._next_id(), call["name"], call.get("input", {}))
        name, input = call
        return ToolCall(self._next_id(), name, input)

    def _next_id(self) -> str:
        self._calls += 1
        return f"call_{self.id}_{self._calls}"


async def offered(
    catalog: Catalog,
    services: Services,
    settings: Settings,
    mode: str,
    window: int | None = None,
    only: Sequence[str] | None = None,
    every: bool = False,
) -> OfferedTools:
    """What a request carries of the tools in a catalog, for somebody who works at a bench in some mode.

    Tools that are left out by their names alone are not even loaded, unless `every` one is to have its row.
    """
    workspace, values = services.workspace, settings.values
    context = Context(mode, is_feature_enabled(SIMPLE, values, workspace.env), None if only is None else tuple(only))
    gate = partial(feature_gate, settings=values, env=workspace.env)
    names = [name for name in catalog if every or (gate(name) is None and why_excluded_by_name(name, context) is None)]
    rows = await check_availability(
        sorted(filter(None, map(catalog.find, names)), key=lambda tool: (is_mcp_tool(tool), tool.name)),
        context,
        gate=gate,
        removes=getattr(services.judge, "removal_reason", lambda name: None),
        enabled=lambda tool: services.supervisor.run(tool.enabled(workspace), Abort(), ENABLED_SECONDS),
    )
    return workspace.service(Toolset).offering(rows, MODULES, window)


def _concurrency(env: Mapping[str, str]) -> int:
    text = env.get("WIELDY_MAX_TOOL_CONCURRENCY", "")
    return int(text) if text.isdigit() and int(text) > 0 else MAX_CONCURRENCY
