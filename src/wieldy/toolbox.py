"""`Toolbox`: the tool system alone, for programs that have a model of their own or need none."""

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
from wieldy.files.journal.paths import journal_path
from wieldy.permissions.ruleset import RiskLevels
from wieldy.settings.load import Settings, SettingsWatcher
from wieldy.settings.load import load_settings as read_settings
from wieldy.settings.wiring import Wiring
from wieldy.tools import MODULES, builtin_loaders
from wieldy.toolset.order import MCP_PREFIX
from wieldy.toolset.toolset import ActivatingCatalog, OfferedTools, Toolset, select_tools

if TYPE_CHECKING:
    from wieldy.files.journal.undo import UndoPlan
    from wieldy.hooks.config import Hook
    from wieldy.hooks.dispatch import Hooks
    from wieldy.mcp.client.manager import McpServers

CallLike: TypeAlias = ToolCall | Mapping[str, Any] | tuple[str, RawInput]

MAX_CONCURRENCY = 10


class Toolbox:
    """Tools of one folder, each call through the whole pipeline.

    `mode` and `settings` are those of a settings file; settings given here replace the files unless `load_settings=True`.
    `settings_file` is one more file, above the others; changes of any file are followed.
    `ask` is called with every permission question and returns True, False, words for the model (a no), or an `Answer`;
    without it, what would be asked is denied. `servers=False` ignores the MCP servers of the settings.
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
        use_files = settings is None if load_settings is None else load_settings
        is_watched = use_files or settings_file is not None
        self._watcher = SettingsWatcher(root, named=settings_file, others=use_files) if is_watched else None
        self._read_settings = partial(read_settings, root, explicit=settings, files=use_files, named=settings_file)
        self.settings = self._read_settings()
        self.catalog = Catalog(builtin_loaders() if builtins else {})
        self.workspace = Workspace(
            root,
            session_dir=state_home() / "sessions" / self.id,
            settings=self.settings.values,
            extra_roots=tuple(self.settings.get("permissions.additionalDirectories")),
            emit=self.events.emit,
        )
        self.policy = self.settings.policy(self.workspace, mode)
        self.person: Approver = (
            CallbackApprover(ask, self.policy, self.workspace, save_rules=use_files) if ask else NoApprover()
        )
        toolset = self.workspace.service(Toolset)
        toolset.refresh = self.offering
        toolset.starting_servers = self._starting_servers
        toolset.wait_for_servers = self.connected
        supervisor = Supervisor()
        self.services = Services(
            catalog=ActivatingCatalog(self.catalog, toolset),
            workspace=self.workspace,
            queue=Queue(max_concurrency or _max_concurrency(self.workspace.env), supervisor),
            supervisor=supervisor,
            judge=judge or self.policy,
            approver=self.person,
            events=self.events,
            spill=Spill(self.workspace.session_dir / "tool-results"),
        )
        self._wiring = Wiring(
            self.settings,
            self.policy,
            self.workspace,
            code_hooks=tuple(hooks),
            advisers=tuple(advisers),
            stop=lambda: self.abort_flag,
            halt=self.abort,
        )
        self._use_servers = servers
        self._servers_started = False
        self._on_question: Callable[[str], None] | None = None
        self._call_count = self._turn_count = 0
        for tool in tools:
            self.add(tool)
        self._apply_settings()

    async def __aenter__(self) -> Self:
        self._start_servers()
        if os.path.exists(journal_path(self.workspace)):
            from wieldy.files.journal.journal import Journal

            await self.workspace.service(Journal).start()  # recovers what a crash left half done
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop running calls and close everything."""
        self.abort("the toolbox was closed")
        await self.services.supervisor.aclose()
        await self.workspace.aclose()
        await self.events.aclose()

    # Calls

    def add(self, tool: Tool) -> None:
        """Offer one more tool. Raises `ToolDefinitionError` for one that cannot be offered."""
        self.catalog.add(tool)

    async def call(self, name: str, input: RawInput | None = None, /, **fields: Any) -> ToolResult:
        """Call one tool, with a dict, JSON text, or keywords. Errors are results: `result.is_error`."""
        if name.startswith(MCP_PREFIX) and name not in self.catalog and self.settings.get("mcpServers"):
            await self._servers().wait_for_tool(name)  # called by a program: the tool will come
        self._follow_settings()
        return await handle(self._call((name, fields if input is None else input)), self.services)

    async def call_many(self, calls: Iterable[CallLike]) -> list[ToolResult]:
        """Run the calls of one turn, side by side where they do not clash; results come in the order given."""
        async with self.turn() as turn:
            for call in calls:
                turn.submit(self._call(call))
            return await turn.results()

    def turn(self, message_id: str | None = None) -> Turn:
        """A turn whose calls are submitted one by one, each starting at once; undo can take back a whole turn."""
        self._follow_settings()
        if message_id is None:
            self._turn_count += 1
            message_id = f"turn_{self.id}_{self._turn_count}"
        return Turn(self.services, message_id)

    async def explain(self, name: str, input: RawInput | None = None, /, **fields: Any) -> Decision:
        """What would be decided about a call, and why. Nothing is run and nobody is asked."""
        call = self._call((name, fields if input is None else input))
        plan = normalize(bind(call, lookup(call, self.catalog)), self.workspace)
        return self.services.judge.decide(plan, ())

    def _call(self, call: CallLike) -> ToolCall:
        if isinstance(call, ToolCall):
            return call
        id = None
        if isinstance(call, Mapping):
            id, name, input = call.get("id"), call["name"], call.get("input", {})
        else:
            name, input = call
        if not id:
            self._call_count += 1
            id = f"call_{self.id}_{self._call_count}"
        return ToolCall(id, name, input)

    # Tools for a model

    async def offer(self) -> list[ToolAvailability]:
        """Every tool, ours before those of servers, each sorted by name: whether a model is offered it, and why or why not."""
        offered = await select_tools(
            self.catalog, self.services, self.settings.values, self.policy.mode, builtin=MODULES, every=True
        )
        return list(offered.availability)

    async def offering(self, window: int | None = None, *, only: Sequence[str] | None = None) -> OfferedTools:
        """What a request carries of tools. `window` is the model's context (else the last one), `only` a subagent's list."""
        return await select_tools(
            self.catalog,
            self.services,
            self.settings.values,
            self.policy.mode,
            builtin=MODULES,
            window=window,
            only=only,
        )

    # Undo

    async def undo(
        self, call_id: str | None = None, *, turn: bool = False, everything: bool = False, merge: bool = False
    ) -> UndoPlan:
        """Take back the last change of this toolbox, those of one call, of the last turn, or all of them.

        Raises `CannotUndo` when a file has changed since and `merge` is off, or when there is nothing to take back.
        """
        from wieldy.files.journal.journal import Journal
        from wieldy.files.journal.undo import UndoSelector

        journal = self.workspace.service(Journal)
        selector = UndoSelector(call_id, whole_turn=turn, everything=everything, session=self.id)
        return self._forget_reads(await journal.undo(selector, merge=merge))

    async def redo(self, *, merge: bool = False) -> UndoPlan:
        """Redo what the last undo took back."""
        from wieldy.files.journal.journal import Journal

        return self._forget_reads(await self.workspace.service(Journal).redo(merge=merge, session=self.id))

    def _forget_reads(self, plan: UndoPlan) -> UndoPlan:
        """The model has not read the restored content: it must read a file again before it edits it."""
        from wieldy.files.editing.read_state import ReadState

        state = self.workspace.service(ReadState)
        for file in plan.files:
            state.forget(file.path)
        return plan

    # Events and interruption

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call a function with every event; returns a function that ends the subscription."""
        return self.events.subscribe(subscriber)

    def stream(self) -> AbstractAsyncContextManager[Any]:
        """Every event from now on: `async with box.stream() as events: async for event in events`."""
        return self.events.stream()

    def observe_questions(self, on_question: Callable[[str], None]) -> None:
        """Call a function with the id of every call about which a person is asked, or would be if there were one."""
        self._on_question = on_question
        self.services.approver = ObservedApprover(self.services.approver, on_question)

    def abort(self, reason: str = "interrupted by the user") -> None:
        """Stop every running call; each ends in a result within a second. Later calls are not affected."""
        flag = self.abort_flag
        self.services = replace(self.services, abort=Abort())
        flag.set(reason)

    @property
    def abort_flag(self) -> Abort:
        """The flag that `abort` sets for the calls that run now."""
        return self.services.abort

    @property
    def supervisor(self) -> Supervisor:
        return self.services.supervisor

    @property
    def hooks(self) -> Hooks:
        """The hooks of the settings, then those given in code."""
        return self._wiring.hooks

    @property
    def hook_problems(self) -> tuple[str, ...]:
        """What is wrong with the hooks of the settings."""
        return self._wiring.hook_problems

    # Settings

    async def reload(self) -> Settings:
        """Read the settings again; all but the mode is applied. Broken settings are reported and not applied.

        Returns what was read; its `errors` say why it is not in force.
        """
        if self._watcher is not None:
            self._watcher.changed()
        settings = await in_thread(self._read_settings)
        self._update_settings(settings)
        return settings

    def _follow_settings(self) -> None:
        """Apply settings files that have changed; takes a few microseconds where none has."""
        if self._watcher is not None and self._watcher.changed():
            self._update_settings(self._read_settings())

    def _update_settings(self, settings: Settings) -> None:
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
        self._apply_settings()
        for problem in self.hook_problems:
            self.events.emit(Notice(text=problem))
        self._start_servers()

    def _apply_settings(self) -> None:
        """Build the services of the calls to come."""
        if self._watcher is not None:
            self._watcher.claude = self.settings.get("compat.claude") is True
        self.services = self._wiring.build(self.services, self.catalog, self.person)
        if self._on_question is not None:
            self.observe_questions(self._on_question)

    # MCP servers

    def _servers(self) -> McpServers:
        from wieldy.mcp.client.manager import McpServers

        return self.workspace.service(McpServers)

    def _start_servers(self) -> None:
        """Connect to MCP servers in the background, where any is configured or waits for consent."""
        if not self._use_servers:
            return
        pending = [one.name.partition(".")[2] for one in self.settings.pending if one.name.startswith("mcpServers.")]
        if pending or self._servers_started or self.settings.get("mcpServers"):
            self._servers_started = True
            self._servers().start(self.catalog, self.services.approver, pending)

    def _starting_servers(self) -> list[str]:
        """The MCP servers whose tools are not known yet."""
        return self._servers().connecting() if self._servers_started else []

    async def connected(self, seconds: float | None = None) -> None:
        """Wait until every MCP server is ready or has failed, at most so many seconds."""
        if self.settings.get("mcpServers"):
            await self._servers().wait_settled(seconds)


def _max_concurrency(env: Mapping[str, str]) -> int:
    text = env.get("WIELDY_MAX_TOOL_CONCURRENCY", "")
    return int(text) if text.isdigit() and int(text) > 0 else MAX_CONCURRENCY
