"""`Toolbox`: the tool system alone, for programs that have a model of their own or need none."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from wieldy.approval import Ask, CallbackApprover, NoApprover
from wieldy.core.abort import Abort
from wieldy.core.call import RawInput, ToolCall
from wieldy.core.catalog import Catalog, ToolAvailability
from wieldy.core.decision import Adviser, Decision, Judge
from wieldy.core.effects import UNKNOWN_EFFECTS
from wieldy.core.events import Notice
from wieldy.core.outcome import ToolResult
from wieldy.core.state_dirs import state_home
from wieldy.core.threads import in_thread
from wieldy.core.tool import Options, Tool
from wieldy.core.workspace import Workspace
from wieldy.engine.events import Events, Subscriber
from wieldy.engine.pipeline import bind, handle, lookup, normalize
from wieldy.engine.supervise import Supervisor, raise_descriptor_limit
from wieldy.engine.turn import Turn
from wieldy.files.journal.paths import journal_path
from wieldy.files.session_undo import SessionUndo
from wieldy.mcp.client.configured import ConfiguredServers
from wieldy.settings.load import Settings, SettingsReader
from wieldy.tools import builtin_loaders
from wieldy.toolset.order import MCP_PREFIX
from wieldy.toolset.toolset import OfferedTools
from wieldy.wiring import ConfiguredHooks, ServiceParts, build_services, build_toolset, configure_services
from wieldy.workspace_services import HostServices, WorkspaceServices

if TYPE_CHECKING:
    from wieldy.files.journal.undo import UndoPlan
    from wieldy.hooks.config import Hook
    from wieldy.hooks.dispatch import Hooks

CallLike: TypeAlias = ToolCall | Mapping[str, Any] | tuple[str, RawInput]


class Toolbox(SessionUndo):
    """Tools of one folder, each call through the whole pipeline.

    `mode` and `settings` are those of a settings file; settings given here replace the files unless `load_settings=True`.
    `settings_file` is one more file, above the others; changes of any file are followed.
    `ask` is called with every permission question and returns True, False, words for the model (a no), or an `Answer`;
    without it, what would be asked is denied. `on_question` hears the id of every call about which a person is asked, or
    would be if there were one. `options` returns what tools read as `ctx.options`. `servers=False` ignores the MCP servers
    of the settings, a list of names all others. `load_settings` may name the layers of files to read: `user`, `project`,
    `local`. `env` replaces the environment of this process. `state_dir` replaces the user's state folder for this toolbox,
    `session_dir` the folder of its session. `host` answers the questions of tools, summarizes pages and so on, in the name of
    your program.
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
        load_settings: bool | Collection[str] | None = None,
        builtins: bool = True,
        servers: bool | Collection[str] = True,
        max_concurrency: int | None = None,
        hooks: Sequence[Hook] = (),
        advisers: Sequence[Adviser] = (),
        judge: Judge | None = None,
        on_question: Callable[[str], None] | None = None,
        options: Callable[[], Options] = Options,
        host: HostServices | None = None,
        session_id: str | None = None,
        env: Mapping[str, str] | None = None,
        session_dir: str | os.PathLike[str] | None = None,
        state_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        raise_descriptor_limit()
        self.id = session_id or os.urandom(6).hex()
        self.events = Events()
        use_files = settings is None if load_settings is None else load_settings
        self._reader = SettingsReader(root, explicit=settings, files=use_files, named=settings_file)
        self.settings = self._reader.read()
        self.catalog = Catalog(builtin_loaders() if builtins else {})
        for tool in tools:
            self.add(tool)
        self.workspace = Workspace(
            root,
            session_dir=session_dir or Path(state_dir or state_home()) / "sessions" / self.id,
            settings=self.settings.values,
            extra_roots=tuple(self.settings.get("permissions.additionalDirectories")),
            env=env,
            state_dir=state_dir,
            emit=self.events.emit,
            services=lambda workspace: WorkspaceServices(
                workspace,
                host or HostServices(),
                make_toolset=lambda workspace, activations: build_toolset(self.parts, workspace, activations),
                while_asking=lambda question: self._hooks.while_asking(question),  # noqa: PLW0108 - made later
            ),
        )
        self.policy = self.settings.policy(self.workspace, mode)
        self._hooks = ConfiguredHooks(self.settings, self.workspace, self.policy, code_hooks=hooks, halt=self.abort)
        self._servers = ConfiguredServers(self.workspace, self.catalog, enabled=servers)
        self.parts = ServiceParts(
            catalog=self.catalog,
            events=self.events,
            policy=self.policy,
            judge=judge or self.policy,
            mode=lambda: self.policy.mode,
            person=CallbackApprover(ask, self.policy, self.workspace, save_rules=use_files is not False)
            if ask
            else NoApprover(),
            hooks=self._hooks.snapshot,
            servers=self._servers,
            supervisor=Supervisor(),
            advisers=tuple(advisers),
            on_question=on_question,
            options=options,
        )
        self.services = build_services(self.settings, self.workspace, parts=self.parts, max_concurrency=max_concurrency)
        self._call_count = self._turn_count = 0

    async def __aenter__(self) -> Self:
        self._servers.start(self.settings, self.services.approver)
        if os.path.exists(journal_path(self.workspace)):
            await self.workspace.services.journal.start()  # recovers what a crash left half done
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

    def _forget_reads(self, plan: UndoPlan) -> UndoPlan:
        self.catalog.invalidate(UNKNOWN_EFFECTS)
        return super()._forget_reads(plan)

    # Calls

    def add(self, tool: Tool) -> None:
        """Offer one more tool. Raises `ToolDefinitionError` for one that cannot be offered."""
        self.catalog.add(tool)

    async def call(self, name: str, input: RawInput | None = None, /, **fields: Any) -> ToolResult:
        """Call one tool, with a dict, JSON text, or keywords. Errors are results: `result.is_error`."""
        if name.startswith(MCP_PREFIX):
            await self._servers.wait_for_tool(name)  # called by a program: the tool will come
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
        return list((await self.workspace.services.toolset.offering(every=True)).availability)

    async def offering(self, window: int | None = None, *, only: Sequence[str] | None = None) -> OfferedTools:
        """What a request carries of tools. `window` is the model's context (else the last one), `only` a subagent's list."""
        return await self.workspace.services.toolset.offering(window, only=only)

    # Events and interruption

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call a function with every event; returns a function that ends the subscription."""
        return self.events.subscribe(subscriber)

    def stream(self) -> AbstractAsyncContextManager[Any]:
        """Every event from now on: `async with box.stream() as events: async for event in events`."""
        return self.events.stream()

    def abort(self, reason: str = "interrupted by the user") -> None:
        """Stop every running call; each ends in a result within a second. Later calls are not affected."""
        flag = self.services.abort
        self._configure_services(Abort())
        flag.set(reason)

    @property
    def hooks(self) -> Hooks:
        """The hooks of the settings, then those given in code."""
        return self._hooks.live

    @property
    def hook_problems(self) -> tuple[str, ...]:
        """What is wrong with the hooks of the settings."""
        return self._hooks.problems

    # Settings

    async def reload(self) -> Settings:
        """Read the settings again; all but the mode is applied. Broken settings are reported and not applied.

        Returns what was read; its `errors` say why it is not in force.
        """
        self._reader.changed()
        settings = await in_thread(self._reader.read)
        self._update_settings(settings)
        return settings

    def _follow_settings(self) -> None:
        """Apply settings files that have changed; takes a few microseconds where none has."""
        if self._reader.watched and self._reader.changed():
            self._update_settings(self._reader.read())

    def _update_settings(self, settings: Settings) -> None:
        if settings.errors:
            self.events.emit(Notice(text=f"{settings.errors[0]}; the settings stay as they were"))
            return
        settings.apply(self.workspace, self.policy, before=self.settings)
        self.settings = settings
        self._hooks.follow(settings)
        self._configure_services(self.services.abort)
        for problem in self.hook_problems:
            self.events.emit(Notice(text=problem))
        self._servers.start(settings, self.services.approver)

    def _configure_services(self, abort: Abort) -> None:
        """Build the services of the calls to come."""
        self.services = configure_services(self.services, self.settings, self.parts, abort)

    async def connected(self, seconds: float | None = None) -> None:
        """Wait until every MCP server is ready or has failed, at most so many seconds."""
        await self._servers.wait(seconds)
