"""What calls work with: `CallServices`, made in one place from the settings, and who answers permission questions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from wieldy.core.call import ToolCall
from wieldy.core.catalog import Catalog
from wieldy.core.decision import Adviser, Answer, Approver, Judge, Question, Reviewer
from wieldy.core.errors import Refusal, WieldyError
from wieldy.core.events import Notice
from wieldy.core.supervise import Abort, Supervisor
from wieldy.core.threads import call_function, in_thread
from wieldy.core.tool import Options
from wieldy.core.workspace import Workspace
from wieldy.engine.events import Events
from wieldy.engine.queue import Queue
from wieldy.engine.results import Spill
from wieldy.policy.permissions.advisers import CleanTreeAdviser, SandboxAdviser
from wieldy.policy.permissions.decide import Policy, RuleMatcher
from wieldy.policy.settings.load import Settings
from wieldy.tools import MODULES
from wieldy.tools.toolset import ActivatingCatalog, Activations, ServerStarts, Toolset

if TYPE_CHECKING:
    from wieldy.engine.tool_limits import ToolLimits
    from wieldy.policy.hooks.config import Hook
    from wieldy.policy.hooks.dispatch import Hooks


Ask: TypeAlias = Callable[[Question], bool | str | Answer | Awaitable[bool | str | Answer]]


class CallbackApprover:
    """Asks an `ask` callback, which returns True, False, words for the model (a no), or a whole `Answer`.

    A plain function runs in a thread, because it may block.
    """

    def __init__(self, ask: Ask, policy: Policy, workspace: Workspace, *, save_rules: bool) -> None:
        self._ask = ask
        self._policy = policy
        self._workspace = workspace
        self._save_rules = save_rules

    async def ask(self, question: Question) -> Answer:
        """Ask, and apply the rules that the person grants."""
        reply = await call_function(self._ask, question)
        if not isinstance(reply, bool | str | Answer):
            raise TypeError(f"`ask` returned {reply!r}; it returns True, False, words for the model, or an Answer")
        answer = reply if isinstance(reply, Answer) else Answer(reply is True, reply if isinstance(reply, str) else "")
        if not isinstance(answer.allowed, bool):
            raise TypeError(f"`Answer.allowed` is {answer.allowed!r}; it is True or False")
        if answer.allowed and answer.remember:
            await self._grant(answer)
        return answer

    async def _grant(self, answer: Answer) -> None:
        from wieldy.policy.permissions.rules import select_savable_rules
        from wieldy.policy.settings.store import remember, user_file

        grant = select_savable_rules(answer.remember, self._policy.paths.project)
        for line in grant.refused:
            self._workspace.emit(Notice(text=line))
        self._policy.grant(*grant.rules)
        if self._save_rules and grant.rules and answer.scope != "session":
            file = user_file() if answer.scope == "user" else None
            try:
                await in_thread(partial(remember, self._policy.root, grant.rules, file=file))
            except (WieldyError, OSError) as error:
                self._workspace.emit(Notice(text=f"allowed for this session only: {error}"))


class ObservedApprover:
    """Reports the call id of each question before it is asked."""

    def __init__(self, approver: Approver, on_question: Callable[[str], None]) -> None:
        self._approver = approver
        self._on_question = on_question

    async def ask(self, question: Question) -> Answer:
        self._on_question(question.plan.call.id)
        return await self._approver.ask(question)


class NoApprover:
    """Treats *ask* as *refuse*."""

    async def ask(self, question: Question) -> Answer:
        """Refuse, naming the reason and a rule that would have allowed the call."""
        decision, name = question.decision, question.plan.tool.name
        suggestion = decision.suggestions[0] if decision.suggestions else ""
        rule = f" The user can allow it with the rule `{suggestion}`." if suggestion else ""
        way_on = f"; to allow it: wieldy permissions allow {quote(suggestion)}" if suggestion else ""
        raise Refusal(
            "permission",
            f"Permission denied for {name}: {decision.why}, and there is no one to ask.{rule}",
            "Continue without it, or say what you would need.",
            person=f"not permitted: {decision.explanation}, and there is no one to ask{way_on}",
            data=decision,
        )


MAX_CONCURRENCY = 10


class CallServices(Struct, frozen=True, eq=False):
    """What calls work with. A toolbox makes it; a subagent's is that of its parent with fields of its own.

    `session_catalog` has all tools of the session, also those that a subagent lacks. `policy` has the rules, `judge` decides: the
    policy itself, or one that is stricter or comes from code. `person` answers permission questions, `hooks` returns the hooks of
    the calls to come, `on_question` receives the id of each call that needs an answer. `options` returns what the session runs
    with, except its tools and commands. What stands below `deps` follows from the settings: see `configured`.
    """

    catalog: Catalog
    session_catalog: Catalog
    workspace: Workspace
    queue: Queue
    supervisor: Supervisor
    events: Events
    spill: Spill
    policy: Policy
    judge: Judge
    mode: Callable[[], str]
    person: Approver
    hooks: Callable[[], Hooks | None]
    servers: ServerStarts
    given_advisers: tuple[Adviser, ...] = ()
    on_question: Callable[[str], None] | None = None
    options: Callable[[], Options] = Options
    deps: Any = None
    approver: Approver = field(default_factory=NoApprover)
    advisers: tuple[Adviser, ...] = ()
    reviewers: tuple[Reviewer, ...] = ()
    abort: Abort = field(default_factory=Abort)
    limits: ToolLimits | None = None

    def configured(self, settings: Settings, abort: Abort) -> CallServices:
        """With hooks, limits and checkers as the settings say, for the calls to come; running calls keep theirs."""
        workspace, approver = self.workspace, self.person
        is_local = workspace.files.is_local
        advisers: list[Adviser] = [CleanTreeAdviser(self.policy)] if is_local else []
        reviewers: list[Reviewer] = []
        if settings.get("sandbox.enabled") is True and is_local:
            advisers.append(SandboxAdviser(workspace, self.policy))
        advisers += self.given_advisers
        if (hooks := self.hooks()) is not None:
            from wieldy.policy.hooks.dispatch import HookApprover, HookReviewer

            approver = HookApprover(hooks, approver)
            reviewers.append(HookReviewer(hooks))
            if "PreToolUse" in hooks.event_names:
                advisers.insert(0, hooks)
        if self.on_question is not None:
            approver = ObservedApprover(approver, self.on_question)
        if settings.get("edit.diagnostics") and is_local:
            from wieldy.shell.diagnostics.review import Diagnostics

            diagnostics = Diagnostics(workspace, abort)
            advisers.append(diagnostics)
            reviewers.insert(0, diagnostics)
        return replace(
            self,
            approver=approver,
            advisers=tuple(advisers),
            reviewers=tuple(reviewers),
            limits=self._tool_limits(settings.values.get("tools", {})),
            abort=abort,
        )

    def _tool_limits(self, sections: Mapping[str, Any]) -> ToolLimits | None:
        """Wrap the tools for which the settings set limits."""
        limits = self.limits
        if limits is None:
            if not sections:
                return None
            from wieldy.engine.tool_limits import ToolLimits

            limits = ToolLimits(self.session_catalog)
        limits.apply(sections)
        return limits

    def activating(self) -> CallServices:
        """These services with a catalog in which a deferred tool that is called is sent in full from then on."""
        return replace(self, catalog=ActivatingCatalog(self.catalog, self.workspace.services.toolset))

    def read_options(self) -> Options:
        """What tools read as `ctx.options`."""
        services = self.workspace.services
        names = tuple(services.toolset.sent) or tuple(self.catalog)
        return replace(self.options(), tools=names, commands=tuple(services.skills.definitions))


def build_toolset(catalog: Catalog, services: CallServices, workspace: Workspace, activations: Activations) -> Toolset:
    """What the requests of a toolbox, or of a subagent, carry of its tools."""
    return Toolset(
        catalog,
        workspace,
        activations,
        judge=services.judge,
        mode=services.mode,
        supervisor=services.supervisor,
        builtin=MODULES,
        servers=services.servers,
    )


def prepare_commands(services: CallServices) -> None:
    """Decide about a command that does nothing, for what that loads, and start what runs commands. Blocks."""
    from wieldy.engine.pipeline import bind, normalize
    from wieldy.shell.sandbox.policy import secret_paths

    workspace, tool = services.workspace, services.catalog.find("Bash")
    if tool is None or not workspace.files.is_local:
        return
    workspace.services.shells.warm_up()
    services.policy.decide(normalize(bind(ToolCall("", tool.name, {"command": "true | cat"}), tool), workspace))
    secret_paths(workspace)


def new_queue(env: Mapping[str, str], supervisor: Supervisor, limit: int | None = None) -> Queue:
    """A queue for as many calls at a time as `limit` or the environment says."""
    text = env.get("WIELDY_MAX_TOOL_CONCURRENCY", "")
    return Queue(limit or (int(text) if text.isdigit() else 0) or MAX_CONCURRENCY, supervisor)


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
        self._settings = settings
        if self._live is not None:
            self._live.configure(list(self._parse()))

    def while_asking(self, question: str) -> AbstractAsyncContextManager[object]:
        """Run Notification hooks while a question of a tool waits for the person."""
        return nullcontext() if self._live is None else self._live.notifying("elicitation_dialog", question)

    def _parse(self) -> Iterator[Hook]:
        self.problems = ()
        section = self._settings.get("hooks")
        if section and self._settings.get("disableAllHooks") is not True:
            from wieldy.policy.hooks.config import lost_guards, parse_hooks

            hooks, problems = parse_hooks(section)
            # Lost guards are errors of the settings.
            lost = {text for event, groups in section.items() for text in lost_guards(event, groups)}
            self.problems = tuple(problem for problem in problems if problem not in lost)
            yield from hooks
        yield from self._code_hooks
