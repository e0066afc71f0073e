"""`Toolbox`: the tool system alone, for programs that have a model of their own or need none."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from wieldy.core.backend import Backend
from wieldy.core.call import CallLike, PlannedCall, RawInput, ToolCall, as_tool_call
from wieldy.core.catalog import Catalog
from wieldy.core.decision import Adviser, Decision, Judge, Opinion
from wieldy.core.descriptors import raise_descriptor_limit
from wieldy.core.effects import UNKNOWN_EFFECTS
from wieldy.core.outcome import ToolResult
from wieldy.core.state_dirs import state_home
from wieldy.core.supervise import Supervisor
from wieldy.core.tool import Options, Tool
from wieldy.core.workspace import Workspace
from wieldy.engine.approval import Ask, CallbackApprover, NoApprover
from wieldy.engine.call_turn import OnStart
from wieldy.engine.events import Events
from wieldy.engine.framework_adapters import FrameworkAdapters
from wieldy.engine.pipeline import decide, handle, plan_and_check
from wieldy.engine.toolbox_access import ToolboxAccess
from wieldy.engine.toolbox_options import (
    check_backend_root,
    check_explicit_settings,
    check_toolbox_options,
    require_deps,
)
from wieldy.engine.turn import Turn
from wieldy.engine.wiring import ConfiguredHooks, LiveServices, ServiceParts, build_toolset
from wieldy.engine.workspace_services import HostServices, WorkspaceServices
from wieldy.files.journal.journal import SessionUndo, journal_path
from wieldy.mcp.configured import ConfiguredServers
from wieldy.policy.settings.load import SettingsReader
from wieldy.shell.backends.local import LocalBackend
from wieldy.tools import builtin_loaders
from wieldy.tools.toolset.order import MCP_PREFIX

if TYPE_CHECKING:
    from wieldy.engine.loop_breaker import LoopBreaker
    from wieldy.files.journal.undo import UndoPlan
    from wieldy.policy.hooks.config import Hook


class Toolbox(ToolboxAccess, FrameworkAdapters, SessionUndo):
    """Tools of one folder, each call through the whole pipeline.

    `mode` and `settings` are those of a settings file; settings given here replace the files unless `load_settings=True`.
    `settings_file` is one more file, above the others; changes of any file are followed. `builtins` picks built-in tools by
    name; False is none of them.
    `ask` is called with every permission question and returns True, False, words for the model (a no), or an `Answer`;
    without it, what would be asked is denied. `on_question` hears the id of every call about which a person is asked, or
    would be if there were one. `deps` is what tools read as `ctx.deps`, `options` returns `ctx.options`.
    `servers=False` ignores the MCP servers of the settings, a list of names all others. `load_settings` may name the layers of
    files to read: `user`, `project`, `local`. `env` replaces the environment of this process. `state_dir` replaces the user's
    state folder for this toolbox, `session_dir` the folder of its session. With a `backend` the tools work on files and
    processes elsewhere, and `root` is a path there; whoever made the backend closes it.
    `host` answers the questions of tools, summarizes pages and so on, in the name of your program.
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
        deps: Any = None,
        load_settings: bool | Collection[str] | None = None,
        builtins: bool | Collection[str] = True,
        servers: bool | Collection[str] = True,
        max_concurrency: int | None = None,
        hooks: Sequence[Hook] = (),
        advisers: Sequence[Adviser] = (),
        judge: Judge | None = None,
        on_question: Callable[[str], None] | None = None,
        options: Callable[[], Options] = Options,
        host: HostServices | None = None,
        backend: Backend | None = None,
        session_id: str | None = None,
        env: Mapping[str, str] | None = None,
        session_dir: str | os.PathLike[str] | None = None,
        state_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self._is_closed = False
        check_toolbox_options(root, ask=ask, hooks=hooks, env=env, max_concurrency=max_concurrency, backend=backend)
        if type(backend) is LocalBackend:
            backend = None  # the same, by functions that are called directly
        elif backend is not None and backend.has_host_programs:
            root = os.path.realpath(root)
        raise_descriptor_limit()
        self._deps = deps
        self.id = session_id or os.urandom(6).hex()
        self.events = Events()
        use_files = settings is None if load_settings is None else load_settings
        self.catalog = Catalog(builtin_loaders(builtins))
        for tool in tools:
            self.add(tool)
        reader = SettingsReader(root, explicit=settings, files=use_files, named=settings_file, tool_names=self.catalog)
        configured = reader.read()
        configured.require_valid()
        if settings:
            check_explicit_settings(settings, self.catalog)
        self.workspace = Workspace(
            root,
            session_dir=session_dir or Path(state_dir or state_home()) / "sessions" / self.id,
            settings=configured.values,
            extra_roots=tuple(configured.get("permissions.additionalDirectories")),
            env=env,
            state_dir=state_dir,
            emit=self.events.emit,
            backend=backend,
            services=lambda workspace: WorkspaceServices(
                workspace,
                host or HostServices(),
                make_toolset=lambda workspace, activations: build_toolset(self.parts, workspace, activations),
                while_asking=lambda question: self._hooks.while_asking(question),  # noqa: PLW0108 - made later
            ),
        )
        self.workspace.commands = configured.commands
        self.policy = configured.policy(self.workspace, mode)
        self._hooks = ConfiguredHooks(configured, self.workspace, self.policy, code_hooks=hooks, halt=self.abort)
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
            deps=deps,
        )
        self._live = LiveServices(
            reader, configured, self.workspace, self.parts, self._hooks, self._servers, max_concurrency
        )
        self._call_numbers, self._turn_numbers = count(1), count(1)

    async def __aenter__(self) -> Self:
        self._require_open()
        await check_backend_root(self.workspace)
        self._live.start_servers()
        if journal_path(self.workspace).parent.exists():
            await self.workspace.services.journal.start()  # recovers what a crash left half done
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop running calls and close everything. Later use raises `ClosedError`."""
        if self._is_closed:
            return
        self._is_closed = True
        self.abort("the toolbox was closed")
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.events.aclose)
            stack.push_async_callback(self.workspace.aclose)
            await self.services.supervisor.aclose()

    def _forget_reads(self, plan: UndoPlan) -> UndoPlan:
        self.catalog.invalidate(UNKNOWN_EFFECTS)
        return super()._forget_reads(plan)

    # Calls

    def add(self, tool: Tool) -> None:
        """Offer one more tool. Raises `ToolDefinitionError` for one that cannot be offered."""
        self._require_open()
        require_deps(tool, self._deps)
        self.catalog.add(tool)

    def replace(self, tool: Tool) -> None:
        """Use another tool in place of the one of the same name. Raises `ToolDefinitionError` where there is none."""
        self._require_open()
        require_deps(tool, self._deps)
        self.catalog.replace(tool)

    async def call(self, name: str, input: RawInput | None = None, /, **fields: Any) -> ToolResult:
        """Call one tool, with a dict, JSON text, or keywords. Errors are results: `result.is_error`."""
        self._require_open()
        if name.startswith(MCP_PREFIX):
            await self._servers.wait_for_tool(name)  # called by a program: the tool will come
        self._live.follow_settings()
        await self._find_offered(name)
        return await handle(self._call((name, fields if input is None else input)), self.services)

    async def call_many(self, calls: Iterable[CallLike]) -> list[ToolResult]:
        """Run the calls of one turn, side by side where they do not clash; results come in the order given."""
        async with self.turn() as turn:
            for call in calls:
                turn.submit(call)
            return await turn.results()

    def turn(
        self,
        message_id: str | None = None,
        *,
        on_start: OnStart | None = None,
        loop_breaker: LoopBreaker | None = None,
    ) -> Turn:
        """A turn whose calls are submitted one by one, each starting at once; undo can take back a whole turn."""
        self._require_open()
        self._live.follow_settings()
        if message_id is None:
            message_id = f"turn_{self.id}_{next(self._turn_numbers)}"
        return Turn(self.services, message_id, new_id=self._new_call_id, on_start=on_start, loop_breaker=loop_breaker)

    async def explain(self, name: str, input: RawInput | None = None, /, **fields: Any) -> Decision:
        """What would be decided about a call, and why. Neither the call nor a hook is run, and nobody is asked.

        Raises `Refusal` for a call that is refused before a decision, such as one of no tool or with an invalid input. Whether
        the tool is available now is another question: see `offer`.
        """
        self._require_open()
        self._live.follow_settings()
        await self._find_offered(name)
        call = self._call((name, fields if input is None else input))
        plan, opinions = await plan_and_check(call, self.services)
        opinions = (*opinions, *await self.analysis_opinions(plan))
        return await decide(plan, opinions, self.services.judge, self.workspace)

    async def analysis_opinions(self, plan: PlannedCall) -> tuple[Opinion, ...]:
        """What the sandbox and the state of the work tree speak for, as far as a decision depends on it."""
        from wieldy.policy.permissions.advisers import analysis_opinions

        return await analysis_opinions(self.services.advisers, plan)

    async def _find_offered(self, name: str) -> None:
        """Find out which tools can be offered, for what is said about one that does not exist."""
        toolset = self.workspace.services.toolset
        if name not in self.catalog and not toolset.sent and not toolset.deferred:
            await toolset.offering()

    def _call(self, call: CallLike) -> ToolCall:
        return as_tool_call(call, self._new_call_id)

    def _new_call_id(self) -> str:
        return f"call_{self.id}_{next(self._call_numbers)}"

    # Interruption

    def abort(self, reason: str = "interrupted by the user") -> None:
        """Stop every running call; each ends in a result within a second. Later calls are not affected."""
        self._live.abort(reason)
