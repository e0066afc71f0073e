"""`build_services`: the one place where the collaborators of calls are put together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from wieldy.core.abort import Abort
from wieldy.core.catalog import Catalog
from wieldy.core.decision import Adviser, Approver, Judge, Reviewer
from wieldy.core.events import Notice
from wieldy.core.supervise import Supervisor
from wieldy.core.threads import in_thread
from wieldy.core.tool import Options
from wieldy.core.workspace import Workspace
from wieldy.engine.approval import ObservedApprover
from wieldy.engine.events import Events
from wieldy.engine.queue import Queue
from wieldy.engine.results import Spill
from wieldy.engine.services import Services
from wieldy.policy.permissions.advisers import CleanTreeAdviser, SandboxAdviser
from wieldy.policy.permissions.decide import Policy, RuleMatcher
from wieldy.policy.settings.load import Settings, SettingsReader
from wieldy.tools import MODULES
from wieldy.tools.toolset.toolset import ActivatingCatalog, Activations, ServerStarts, Toolset

if TYPE_CHECKING:
    from wieldy.engine.tool_limits import ToolLimits
    from wieldy.mcp.configured import ConfiguredServers
    from wieldy.policy.hooks.config import Hook
    from wieldy.policy.hooks.dispatch import Hooks

MAX_CONCURRENCY = 10


class ServiceParts(Struct, frozen=True, eq=False):
    """What a toolbox, or a subagent, brings to its services; the rest follows from the settings and the parent.

    `policy` has the rules of the session, `judge` decides: the policy itself, or one that is stricter or comes from code.
    `deps` is what tools read as `ctx.deps`. `options` returns what the session runs with, except its tools and commands.
    `hooks` returns those of the calls to come, `on_question` hears the id of every call about which somebody is asked.
    Subagents work under the `supervisor` of their session.
    """

    catalog: Catalog
    events: Events
    policy: Policy
    judge: Judge
    mode: Callable[[], str]
    person: Approver
    hooks: Callable[[], Hooks | None]
    servers: ServerStarts
    supervisor: Supervisor
    advisers: tuple[Adviser, ...] = ()
    on_question: Callable[[str], None] | None = None
    options: Callable[[], Options] = Options
    deps: Any = None


def build_services(
    settings: Settings,
    workspace: Workspace,
    parent: Services | None = None,
    *,
    parts: ServiceParts,
    abort: Abort | None = None,
    max_concurrency: int | None = None,
    own_queue: bool = False,
) -> Services:
    """Build the services of a toolbox; with `parent`, of a subagent, which shares the limits of its parent.

    It shares the queue too, unless it works in a copy, where no call of its parent can get in its way.
    """
    supervisor, toolset = parts.supervisor, workspace.services.toolset
    queue = None if parent is None or own_queue else parent.queue
    services = Services(
        catalog=ActivatingCatalog(parts.catalog, toolset),
        session_catalog=parts.catalog if parent is None else parent.session_catalog,
        workspace=workspace,
        queue=queue or Queue(max_concurrency or _max_concurrency(workspace.env), supervisor),
        supervisor=supervisor,
        judge=parts.judge,
        approver=parts.person,
        events=parts.events,
        spill=Spill(workspace.session_dir / "tool-results"),
        limits=None if parent is None else parent.limits,
        options=lambda: _options(parts, toolset, workspace),
        deps=parts.deps,
    )
    return configure_services(services, settings, parts, abort or Abort())


def _options(parts: ServiceParts, toolset: Toolset, workspace: Workspace) -> Options:
    names = tuple(toolset.sent) or tuple(parts.catalog)
    return replace(parts.options(), tools=names, commands=tuple(workspace.services.skills.definitions))


def build_toolset(parts: ServiceParts, workspace: Workspace, activations: Activations) -> Toolset:
    """Build what the requests of a toolbox, or of a subagent, carry of its tools."""
    return Toolset(
        parts.catalog,
        workspace,
        activations,
        judge=parts.judge,
        mode=parts.mode,
        supervisor=parts.supervisor,
        builtin=MODULES,
        servers=parts.servers,
    )


def configure_services(services: Services, settings: Settings, parts: ServiceParts, abort: Abort) -> Services:
    """Return services for the calls to come, with hooks, limits and checkers as the settings say; running calls keep theirs."""
    workspace, approver = services.workspace, parts.person
    is_local = workspace.backend is None
    advisers: list[Adviser] = [CleanTreeAdviser(parts.policy)] if is_local else []
    reviewers: list[Reviewer] = []
    if settings.get("sandbox.enabled") is True and is_local:
        advisers.append(SandboxAdviser(workspace, parts.policy))
    advisers += parts.advisers
    if (hooks := parts.hooks()) is not None:
        from wieldy.policy.hooks.dispatch import HookApprover, HookReviewer

        approver = HookApprover(hooks, approver)
        reviewers.append(HookReviewer(hooks))
        if "PreToolUse" in hooks.event_names:
            advisers.insert(0, hooks)
    if parts.on_question is not None:
        approver = ObservedApprover(approver, parts.on_question)
    limits = _tool_limits(services.limits, settings, parts.catalog)
    if settings.get("edit.diagnostics") and is_local:
        from wieldy.shell.diagnostics.review import Diagnostics

        diagnostics = Diagnostics(workspace, abort)
        advisers.append(diagnostics)
        reviewers.insert(0, diagnostics)
    return replace(
        services,
        approver=approver,
        advisers=tuple(advisers),
        reviewers=tuple(reviewers),
        limits=limits,
        abort=abort,
    )


def _tool_limits(limits: ToolLimits | None, settings: Settings, catalog: Catalog) -> ToolLimits | None:
    """Wrap the tools for which the settings set limits."""
    sections = settings.values.get("tools", {})
    if limits is None:
        if not sections:
            return None
        from wieldy.engine.tool_limits import ToolLimits

        limits = ToolLimits(catalog)
    limits.apply(sections)
    return limits


def _max_concurrency(env: Mapping[str, str]) -> int:
    text = env.get("WIELDY_MAX_TOOL_CONCURRENCY", "")
    return int(text) if text.isdigit() and int(text) > 0 else MAX_CONCURRENCY


class LiveServices:
    """The services of a toolbox, for the calls to come: made anew when settings change and when calls are aborted."""

    def __init__(
        self,
        reader: SettingsReader,
        settings: Settings,
        workspace: Workspace,
        parts: ServiceParts,
        hooks: ConfiguredHooks,
        servers: ConfiguredServers,
        max_concurrency: int | None,
    ) -> None:
        self.settings = settings
        self.current = build_services(settings, workspace, parts=parts, max_concurrency=max_concurrency)
        self._reader = reader
        self._parts = parts
        self._hooks = hooks
        self._servers = servers

    def start_servers(self) -> None:
        """Connect the MCP servers of the settings in the background."""
        self._servers.start(self.settings, self.current.approver)

    def abort(self, reason: str) -> None:
        """Stop the running calls."""
        flag = self.current.abort
        self._rebuild(Abort())
        flag.set(reason)

    async def reload(self) -> Settings:
        """Read the settings again, and apply them unless they are broken."""
        self._reader.changed()
        settings = await in_thread(self._reader.read)
        self._apply(settings)
        return settings

    def follow_settings(self) -> None:
        """Apply settings files that have changed; takes a few microseconds where none has."""
        if self._reader.watched and self._reader.changed():
            self._apply(self._reader.read())

    def _apply(self, settings: Settings) -> None:
        emit = self._parts.events.emit
        if settings.errors:
            emit(Notice(text=f"{settings.errors[0]}; the settings stay as they were"))
            return
        settings.apply(self.current.workspace, self._parts.policy, before=self.settings)
        if settings.pending_notice not in ("", self.settings.pending_notice):
            emit(Notice(text=settings.pending_notice))
        self.settings = settings
        self._hooks.follow(settings)
        self._rebuild(self.current.abort)
        for problem in self._hooks.problems:
            emit(Notice(text=problem))
        self.start_servers()

    def _rebuild(self, abort: Abort) -> None:
        self.current = configure_services(self.current, self.settings, self._parts, abort)


class ConfiguredHooks:
    """The hooks of the settings, then those given in code; loaded on first use."""

    def __init__(
        self,
        settings: Settings,
        workspace: Workspace,
        policy: Policy,
        *,
        code_hooks: Sequence[Hook],
        halt: Callable[[str], None],
    ) -> None:
        self.problems: tuple[str, ...] = ()
        self._settings = settings
        self._workspace = workspace
        self._policy = policy
        self._code_hooks = tuple(code_hooks)
        self._halt = halt
        self._live: Hooks | None = None

    @property
    def live(self) -> Hooks:
        """One object that follows the settings."""
        if self._live is None:
            from wieldy.policy.hooks.dispatch import Hooks

            self._live = Hooks(
                list(self._parse()),
                self._workspace,
                mode=lambda: self._policy.mode,
                rule_matches=RuleMatcher(self._policy),
                halt=self._halt,
            )
        return self._live

    def snapshot(self) -> Hooks | None:
        """The hooks for calls that keep them when the settings change; None if there have never been any."""
        is_used = self._code_hooks or self._settings.get("hooks") or self._live is not None
        return self.live.snapshot() if is_used else None

    def follow(self, settings: Settings) -> None:
        """Put the hooks of changed settings in force."""
        self._settings = settings
        if self._live is not None:
            self._live.configure(list(self._parse()))

    def while_asking(self, question: str) -> AbstractAsyncContextManager[object]:
        """Run Notification hooks while a question of a tool waits for the person."""
        return nullcontext() if self._live is None else self._live.notifying("elicitation_dialog", question)

    def _parse(self) -> Iterator[Hook]:
        self.problems = ()
        section = self._settings.get("hooks")
        if section is not None and self._settings.get("disableAllHooks") is not True:
            from wieldy.policy.hooks.config import lost_guards, parse_hooks

            hooks, problems = parse_hooks(section)
            # Lost guards are errors of the settings.
            lost = {text for event, groups in section.items() for text in lost_guards(event, groups)}
            self.problems = tuple(problem for problem in problems if problem not in lost)
            yield from hooks
        yield from self._code_hooks
