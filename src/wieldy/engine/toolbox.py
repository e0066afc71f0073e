"""`Toolbox`: the tool system alone, for programs that have a model of their own or need none."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypedDict

from msgspec.structs import replace

from wieldy.core.backend import BACKEND_MEMBERS, Backend
from wieldy.core.call import CallLike, PlannedCall, RawInput, ToolCall, as_tool_call
from wieldy.core.catalog import Catalog, ToolAvailability
from wieldy.core.decision import Adviser, Decision, Judge, Opinion
from wieldy.core.descriptors import add_session
from wieldy.core.effects import UNKNOWN_EFFECTS
from wieldy.core.errors import ClosedError, MissingExtra, SettingsError, ToolDefinitionError
from wieldy.core.events import AnyEvent, Notice
from wieldy.core.logs import log
from wieldy.core.option_checks import require_callable, require_count, require_seconds
from wieldy.core.outcome import ToolResult
from wieldy.core.state_dirs import JOURNAL_FOLDER, state_home
from wieldy.core.supervise import Abort, Supervisor
from wieldy.core.threads import in_thread
from wieldy.core.tool import Options, Tool
from wieldy.core.tool_names import RENAMED_TOOLS
from wieldy.core.workspace import Workspace
from wieldy.engine.events import Events, Subscriber
from wieldy.engine.pipeline import decide, handle, plan_and_check
from wieldy.engine.results import Spill
from wieldy.engine.services import (
    Ask,
    CallbackApprover,
    CallServices,
    ConfiguredHooks,
    NoApprover,
    build_toolset,
    new_queue,
)
from wieldy.engine.turn import Turn, TurnObserver, Wire, wire_module
from wieldy.engine.workspace_services import HostServices, WorkspaceServices
from wieldy.mcp.configured import ConfiguredServers
from wieldy.policy.settings.load import Settings, SettingsReader
from wieldy.tools import builtin_loaders
from wieldy.tools.toolset import MCP_PREFIX, OfferedTools

if TYPE_CHECKING:
    from wieldy.files.journal.undo import ChangesSince, UndoPlan
    from wieldy.policy.hooks.config import Hook
    from wieldy.policy.hooks.dispatch import Hooks


class ToolboxOptions(TypedDict, total=False):
    """The options of `Toolbox` that a `Session` takes as they are."""

    mode: str | None
    settings: Mapping[str, Any] | None
    settings_file: str | os.PathLike[str] | None
    tools: Iterable[Tool]
    deps: Any
    load_settings: bool | Collection[str] | None
    builtins: bool | Collection[str]
    servers: bool | Collection[str]
    max_concurrency: int | None
    hooks: Sequence[Hook]
    advisers: Sequence[Adviser]
    judge: Judge | None
    backend: Backend | None
    env: Mapping[str, str] | None
    session_dir: str | os.PathLike[str] | None
    state_dir: str | os.PathLike[str] | None


class Toolbox:
    """Tools of one folder, each call through the whole pipeline.

    `mode` and `settings` are those of a settings file; settings given here replace the files unless `load_settings=True`.
    `settings_file` is one more file, above the others; changes of any file are followed. `builtins` picks built-in tools by
    name; False offers none.
    `ask` is called with every permission question and returns True, False, words for the model (a no), or an `Answer`;
    without it, what would be asked is denied. `on_question` receives the id of every call about which a person is asked, or
    would be if there were one. `deps` is what tools read as `ctx.deps`, `options` returns `ctx.options`.
    `servers=False` ignores the MCP servers of the settings, a list of names all others; opening the toolbox waits for them at
    most `wait_for_servers` seconds, and the tools of a later one come when it is ready. `load_settings` may name the layers of
    files to read: `user`, `project`, `local`. `env` replaces the environment of this process. `state_dir` replaces the user's
    state folder for this toolbox, `session_dir` the folder of its session. With a `backend` the tools work on files and
    processes elsewhere, and `root` is a path there; the toolbox does not close it.
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
        wait_for_servers: float = 10.0,
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
        _check_options(root, ask=ask, hooks=hooks, env=env, max_concurrency=max_concurrency, backend=backend)
        backend, root = _placed(backend, root)
        add_session(self)
        self._deps = deps
        self.id = session_id or os.urandom(6).hex()
        self.events = Events()
        use_files = settings is None if load_settings is None else load_settings
        self.catalog = Catalog(builtin_loaders(builtins))
        for tool in tools:
            self.add(tool)
        self._settings_reader = SettingsReader(
            root, explicit=settings, files=use_files, named=settings_file, tool_names=self.catalog
        )
        self.settings = self._settings_reader.read()
        self.settings.require_valid()
        if settings:
            _check_explicit_settings(settings, self.catalog)
        self.workspace = Workspace(
            root,
            session_dir=session_dir or Path(state_dir or state_home()) / "sessions" / self.id,
            settings=self.settings.values,
            extra_roots=tuple(self.settings.get("permissions.additionalDirectories")),
            env=env,
            state_dir=state_dir,
            emit=self.events.emit,
            backend=backend,
            services=lambda workspace: WorkspaceServices(
                workspace,
                host or HostServices(),
                make_toolset=lambda *given: build_toolset(self.catalog, self.services, *given),
                while_asking=lambda question: self._hooks.while_asking(question),  # noqa: PLW0108 - made later
            ),
        )
        self.workspace.commands = self.settings.commands
        self.policy = self.settings.policy(self.workspace, mode)
        self._hooks = ConfiguredHooks(self.settings, self.workspace, self.policy, code_hooks=hooks, halt=self.abort)
        require_seconds("wait_for_servers", wait_for_servers)
        self._server_seconds = wait_for_servers
        self._servers = ConfiguredServers(self.workspace, self.catalog, enabled=servers)
        supervisor = Supervisor()
        self.services = CallServices(
            catalog=self.catalog,
            session_catalog=self.catalog,
            workspace=self.workspace,
            queue=new_queue(self.workspace.env, supervisor, max_concurrency),
            supervisor=supervisor,
            events=self.events,
            spill=Spill(self.workspace.session_dir / "tool-results"),
            policy=self.policy,
            judge=judge or self.policy,
            mode=lambda: self.policy.mode,
            person=CallbackApprover(ask, self.policy, self.workspace, save_rules=use_files is not False)
            if ask
            else NoApprover(),
            hooks=self._hooks.snapshot,
            servers=self._servers,
            given_advisers=tuple(advisers),
            on_question=on_question,
            options=options,
            deps=deps,
        )
        self.services = self.services.activating().configured(self.settings, Abort())
        self._call_numbers, self._turn_numbers = count(1), count(1)

    async def __aenter__(self) -> Self:
        self._require_open()
        await _check_backend_root(self.workspace)
        self._start_servers()
        if (self.workspace.state_dir / JOURNAL_FOLDER).exists():
            await self.workspace.services.journal.start()  # recovers what a crash left half done
        if self._server_seconds > 0:
            await self._wait_for_servers(self._server_seconds)
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

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClosedError("this toolbox is closed; make another one")

    # Tools

    def add(self, tool: Tool) -> None:
        """Offer one more tool. Raises `ToolDefinitionError` for one that cannot be offered."""
        self._require_open()
        _require_deps(tool, self._deps)
        self.catalog.add(tool)

    def replace(self, tool: Tool) -> None:
        """Use another tool in place of the one of the same name. Raises `ToolDefinitionError` where there is none."""
        self._require_open()
        _require_deps(tool, self._deps)
        self.catalog.replace(tool)

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

    # Calls

    async def call(self, name: str, input: RawInput | None = None, /, **fields: Any) -> ToolResult:
        """Call one tool, with a dict, JSON text, or keywords. What a model could cause is a result: `result.is_error`."""
        self._require_open()
        call = self._call(name, input, fields)
        if name.startswith(MCP_PREFIX):
            await self._servers.wait_for_tool(name)  # called by a program: the tool will come
        self._follow_settings()
        await self._find_offered(name)
        return await handle(call, self.services)

    async def call_many(self, calls: Iterable[CallLike]) -> list[ToolResult]:
        """Run the calls of one turn, side by side where they do not clash; results come in the order given."""
        async with self.turn() as turn:
            for call in calls:
                turn.submit(call)
            return await turn.results()

    def turn(self, message_id: str | None = None, *, observer: TurnObserver | None = None) -> Turn:
        """A turn whose calls are submitted one by one, each starting at once; undo can take back a whole turn."""
        self._require_open()
        self._follow_settings()
        if message_id is None:
            message_id = f"turn_{self.id}_{next(self._turn_numbers)}"
        return Turn(self.services, message_id, new_id=self._new_call_id, observer=observer)

    async def explain(self, name: str, input: RawInput | None = None, /, **fields: Any) -> Decision:
        """What would be decided about a call, and why. Neither the call nor a hook is run, and no person is asked.

        Raises `Refusal` for a call that is refused before a decision, such as one of no tool or with an invalid input. Whether
        the tool is available now is another question: see `offer`.
        """
        self._require_open()
        call = self._call(name, input, fields)
        self._follow_settings()
        await self._find_offered(name)
        plan, opinions = await plan_and_check(call, self.services)
        opinions = (*opinions, *await self.analysis_opinions(plan))
        return await decide(plan, opinions, self.services.judge, self.workspace)

    async def analysis_opinions(self, plan: PlannedCall) -> tuple[Opinion, ...]:
        """What the sandbox and the state of the work tree speak for, as far as a decision depends on it."""
        from wieldy.policy.permissions.advisers import analysis_opinions

        return await analysis_opinions(self.services.advisers, plan)

    async def _find_offered(self, name: str) -> None:
        """Find out which tools can be offered, for the answer to a call of one that does not exist."""
        toolset = self.workspace.services.toolset
        if name not in self.catalog and not toolset.sent and not toolset.deferred:
            await toolset.offering()

    def _call(self, name: str, input: RawInput | None, fields: dict[str, Any]) -> ToolCall:
        """A call of the program. Raises `TypeError` for what is no call."""
        if input is not None and fields:
            names = ", ".join(f"`{field}`" for field in fields)
            raise TypeError(
                f"the input of {name} is given twice, as a whole and by keywords ({names}): give one of the two"
            )
        return as_tool_call((name, fields if input is None else input), self._new_call_id)

    def _new_call_id(self) -> str:
        return f"call_{self.id}_{next(self._call_numbers)}"

    def abort(self, reason: str = "interrupted by the user") -> None:
        """Stop every running call; each ends in a result within a second. Later calls are not affected."""
        flag = self.services.abort
        self._configure(Abort())
        flag.set(reason)

    # Undo. The model must read the restored files again before it edits them.

    async def undo(
        self,
        call_id: str | None = None,
        *,
        turn: bool = False,
        everything: bool = False,
        since: float | None = None,
        merge: bool = False,
    ) -> UndoPlan:
        """Take back the last change of this session, those of one call, of the last turn, since a time, or all of them.

        Raises `CannotUndo` when a file has changed since and `merge` is off, or when there is nothing to take back, and
        `ValueError` where more than one of these is named.
        """
        from wieldy.files.journal.undo import UndoSelector

        self._require_open()
        named = {"call_id": call_id is not None, "turn": turn, "everything": everything, "since": since is not None}
        chosen = [f"`{name}`" for name, is_given in named.items() if is_given]
        if len(chosen) > 1 and chosen != ["`everything`", "`since`"]:
            raise ValueError(
                f"undo takes one of `call_id`, `turn`, `everything` and `since`, not {' and '.join(chosen)}"
            )
        everything = everything or since is not None
        selector = UndoSelector(call_id, whole_turn=turn, everything=everything, session=self.id, since=since)
        return self._forget_reads(await self.workspace.services.journal.undo(selector, merge=merge))

    async def redo(self, *, merge: bool = False) -> UndoPlan:
        """Redo what the last undo took back."""
        self._require_open()
        return self._forget_reads(await self.workspace.services.journal.redo(merge=merge, session=self.id))

    async def changes_since(self, times: Sequence[float]) -> list[ChangesSince]:
        """What this session has changed since each of these times and not taken back."""
        from wieldy.files.journal.undo import changes_since

        self._require_open()
        journal = self.workspace.services.journal
        return await journal.run(changes_since, journal, times, self.id)

    def _forget_reads(self, plan: UndoPlan) -> UndoPlan:
        self.catalog.invalidate(UNKNOWN_EFFECTS)
        for file in plan.files:
            self.workspace.services.read_state.forget(file.real_path, by_undo=True)
        return plan

    # Events

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call a function with every event; returns a function that ends the subscription."""
        self._require_open()
        return self.events.subscribe(subscriber)

    def stream(self) -> AbstractAsyncContextManager[AsyncIterator[AnyEvent]]:
        """Every event from now on: `async with box.stream() as events: async for event in events`."""
        self._require_open()
        return self.events.stream()

    # Settings, hooks and servers

    @property
    def mode(self) -> str:
        """The permission mode. Setting it counts from the next call on; an unknown or disabled one raises `ValueError`."""
        return self.policy.mode

    @mode.setter
    def mode(self, name: str) -> None:
        self._require_open()
        self.settings.require_mode(name)
        self.policy.mode = name

    @property
    def hooks(self) -> Hooks:
        """The hooks of the settings, then those given in code."""
        return self._hooks.live

    @property
    def hook_problems(self) -> tuple[str, ...]:
        """What is wrong with the hooks of the settings."""
        return self._hooks.problems

    async def reload(self) -> Settings:
        """Read the settings again; all but the mode is applied. Broken settings are reported and not applied.

        Returns what was read; its `errors` say why it is not in force.
        """
        self._require_open()
        self._settings_reader.changed()
        settings = await in_thread(self._settings_reader.read)
        self._apply(settings)
        return settings

    async def connected(self, seconds: float | None = None) -> None:
        """Wait until every MCP server is ready or has failed, at most so many seconds."""
        self._require_open()
        await self._servers.wait(seconds)

    async def _wait_for_servers(self, seconds: float) -> None:
        """Wait for the MCP servers, and say which are late: a list of tools that is made now lacks theirs."""
        await self._servers.wait(seconds)
        if late := self._servers.connecting():
            text = f"still starting after {seconds:g} s: MCP {', '.join(late)}; the tools come when that is done"
            log.warning("%s", text)
            self.events.emit(Notice(text=text))

    def _follow_settings(self) -> None:
        """Apply settings files that have changed; takes a few microseconds where none has."""
        if self._settings_reader.watched and self._settings_reader.changed():
            self._apply(self._settings_reader.read())

    def _apply(self, settings: Settings) -> None:
        emit = self.events.emit
        if settings.errors:
            emit(Notice(text=f"{settings.errors[0]}; the settings stay as they were"))
            return
        settings.apply(self.workspace, self.policy, before=self.settings)
        if settings.pending_notice not in ("", self.settings.pending_notice):
            emit(Notice(text=settings.pending_notice))
        self.settings = settings
        self._hooks.follow(settings)
        self._configure(self.services.abort)
        for problem in self._hooks.problems:
            emit(Notice(text=problem))
        self._start_servers()

    def _configure(self, abort: Abort) -> None:
        self.services = self.services.configured(self.settings, abort)

    def _start_servers(self) -> None:
        self._servers.start(self.settings, self.services.approver)

    # The tools of other frameworks, made of these. The adapters are in a room above, and are imported by name.

    def as_pydantic_ai(self) -> Any:
        """A toolset for pydantic-ai: `Agent(toolsets=[box.as_pydantic_ai()])`. Needs the extra `pydantic-ai`."""
        return self._adapter("adapters.pydantic_ai", "pydantic-ai").WieldyToolset(self)

    def as_pydantic_ai_workspace(self) -> Any:
        """A workspace backend for pydantic-ai: `agent.run(…, workspace=box.as_pydantic_ai_workspace())`."""
        return self._adapter("adapters.pydantic_ai_workspace", "pydantic-ai").WieldyWorkspaceBackend(self)

    def as_openai_agents(self) -> Any:
        """A list of function tools for the OpenAI Agents SDK: `Agent(tools=…)`. Needs the extra `openai-agents`."""
        return self._adapter("adapters.openai_agents", "openai-agents").WieldyFunctionTools(self)

    def as_langchain(self) -> Any:
        """A list of LangChain tools: `create_agent(model, tools=…)`. Needs the extra `langchain`."""
        return self._adapter("adapters.langchain", "langchain").make_tools(self)

    def as_claude_sdk(self, name: str = "wieldy") -> Any:
        """An SDK MCP server for `ClaudeAgentOptions(mcp_servers={name: …})`. Needs the extra `claude-sdk`."""
        return self._adapter("headless.claude_sdk", "claude-sdk").ClaudeSdkServer(self, name)

    def _adapter(self, name: str, extra: str) -> Any:
        self._require_open()
        try:
            return import_module(f"wieldy.faces.{name}")
        except ImportError as error:
            raise MissingExtra(f"{error}; install it with: pip install 'wieldy[{extra}]'") from None


def _placed(backend: Backend | None, root: str | os.PathLike[str]) -> tuple[Backend | None, str | os.PathLike[str]]:
    """The backend, None for that of this machine, whose functions are called directly; and the root there."""
    if backend is None:
        return None, root
    from wieldy.shell.backends.local import LocalBackend

    if type(backend) is LocalBackend:
        return None, root
    return backend, os.path.realpath(root) if backend.has_host_programs else root


def _check_options(
    root: str | os.PathLike[str],
    *,
    ask: Any,
    hooks: Sequence[Any],
    env: Any,
    max_concurrency: int | None,
    backend: Any = None,
) -> None:
    """Raise `ValueError` or `TypeError` for an option that cannot be meant."""
    missing = [] if backend is None else sorted(name for name in BACKEND_MEMBERS if not hasattr(backend, name))
    if missing:
        raise TypeError(f"`backend` must have all of `wieldy.Backend`: {backend!r:.100} lacks {', '.join(missing)}")
    if backend is not None and not backend.has_host_programs:
        if not os.path.isabs(root):
            raise ValueError(f"`root` must be an absolute path on the backend, not {os.fspath(root)!r}")
    elif not os.path.isdir(root):
        raise ValueError(f"`root` must be a folder: {os.fspath(root)!r} is not one")
    require_count("max_concurrency", max_concurrency)
    if ask == "defer":
        text = (
            '`ask="defer"` is an option of Session, whose transcript can wait for the answer: give Toolbox a function'
        )
        raise TypeError(text)
    require_callable("ask", ask)
    if env is not None and not isinstance(env, Mapping):
        raise TypeError(f"`env` must be a mapping of variables, not {env!r:.200}")
    for name, value in (env or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"`env` must be a mapping of texts: {name!r} is {value!r:.200}")
    if hooks:
        from wieldy.policy.hooks.config import require_hooks

        require_hooks(hooks)


def _check_rules(settings: Mapping[str, Any], catalog: Catalog) -> None:
    from wieldy.policy.permissions.rules import guess_tool

    permissions = settings.get("permissions")
    for behavior in ("deny", "ask", "allow"):
        for entry in permissions.get(behavior) or () if isinstance(permissions, Mapping) else ():
            text = str(entry.get("rule", "") if isinstance(entry, Mapping) else entry)
            name = text.partition("(")[0].strip()
            if name in catalog or name in RENAMED_TOOLS or "*" in name:
                continue
            if (likely_name := guess_tool(name)) is not None:
                raise SettingsError(
                    f"{behavior} rule `{text}`: there is no tool `{name}`; did you mean `{likely_name}`?"
                )


def _check_explicit_settings(settings: Mapping[str, Any], catalog: Catalog) -> None:
    """Raise `SettingsError` for settings given in code that no tool or server can have, or rules with a misspelled tool."""
    _check_rules(settings, catalog)
    sections = settings.get("tools")
    for name, section in sections.items() if isinstance(sections, Mapping) else ():
        tool = catalog.find(name) if "cacheSeconds" in section else None
        if tool is not None and not tool.read_only:
            text = f"`tools.{name}.cacheSeconds`: {name} is not read-only, so its results must not be used again"
            raise SettingsError(text)
    servers = settings.get("mcpServers")
    if isinstance(servers, Mapping):
        from wieldy.mcp.config import InvalidServer, parse_server

        for name, entry in servers.items():
            try:
                parse_server(name, entry)
            except InvalidServer as error:
                raise SettingsError(f"`mcpServers.{name}`: {error}") from None


def _require_deps(tool: Tool, deps: Any) -> None:
    """Raise `ToolDefinitionError` where a tool needs other dependencies than there are."""
    needed = tool.deps_type if isinstance(tool, Tool) else None
    if needed is None or getattr(needed, "_is_protocol", False) or isinstance(deps, needed):
        return
    found = "none were given" if deps is None else f"they are of type {type(deps).__name__}"
    raise ToolDefinitionError(
        f"tool `{tool.name}` needs deps of type {needed.__name__}, and {found}: pass deps=… to Toolbox or Session"
    )


async def _check_backend_root(workspace: Workspace) -> None:
    """Raise `ValueError` where the root is no folder on its backend, or is reached there by a link."""
    files, root = workspace.files, workspace.root
    if files.is_local:
        return
    try:
        real = await files.run(files.realpath, root)
        is_folder = stat.S_ISDIR((await files.run(files.stat, real)).st_mode)
    except OSError as error:
        raise ValueError(f"`root` cannot be reached on {files.place}: {error}") from None
    if not is_folder:
        raise ValueError(f"`root` must be a folder: {root!r} is not one on {files.place}")
    if real != root:
        raise ValueError(f"`root` is {real!r} on {files.place}, and {root!r} leads there by a link: give the first")
