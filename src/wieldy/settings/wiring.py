"""Wires hooks, limits, checkers and other advisers into the services of a toolbox, as its settings say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from wieldy.core.abort import Abort
from wieldy.core.catalog import Catalog
from wieldy.core.decision import Adviser, Approver
from wieldy.core.user_questions import UserQuestions
from wieldy.core.workspace import Workspace
from wieldy.engine.services import Services
from wieldy.permissions.advisers import CleanTreeAdviser
from wieldy.permissions.decide import Policy, RuleMatcher
from wieldy.settings.load import Settings

if TYPE_CHECKING:
    from wieldy.engine.tool_limits import ToolLimits
    from wieldy.hooks.config import Hook
    from wieldy.hooks.dispatch import Hooks


class Wiring:
    """Builds services. `code_hooks` and `advisers` come from code and stay; all others follow the settings."""

    def __init__(
        self,
        settings: Settings,
        policy: Policy,
        workspace: Workspace,
        *,
        code_hooks: Sequence[Hook],
        advisers: Sequence[Adviser],
        stop: Callable[[], Abort],
        halt: Callable[[str], None],
    ) -> None:
        self.hook_problems: tuple[str, ...] = ()
        self._settings = settings
        self._policy = policy
        self._workspace = workspace
        self._code_hooks = tuple(code_hooks)
        self._advisers = tuple(advisers)
        self._stop = stop
        self._halt = halt
        self._hooks: Hooks | None = None
        self._tool_limits: ToolLimits | None = None

    @property
    def hooks(self) -> Hooks:
        """The hooks of the settings, then those given in code; loaded on first use."""
        if self._hooks is None:
            from wieldy.hooks.dispatch import Hooks

            self._hooks = Hooks(
                self._configured_hooks(),
                self._workspace,
                mode=lambda: self._policy.mode,
                rule_matches=RuleMatcher(self._policy),
                halt=self._halt,
            )
        return self._hooks

    def update_settings(self, settings: Settings) -> None:
        """Follow changed settings."""
        self._settings = settings
        if self._hooks is not None:
            self._hooks.configure(self._configured_hooks())

    def build(self, services: Services, catalog: Catalog, person: Approver) -> Services:
        """Build the services of the calls to come. Running calls keep theirs."""
        services = replace(services, approver=person, advisers=(*self._own_advisers(), *self._advisers), reviewers=())
        if self._code_hooks or self._settings.get("hooks") or self._hooks is not None:
            self._add_hooks(services, person)
        self._apply_limits(services, catalog)
        if self._settings.get("edit.diagnostics"):
            self._add_diagnostics(services)
        return services

    def _own_advisers(self) -> Iterator[Adviser]:
        yield CleanTreeAdviser(self._policy, lambda: self._workspace.cwd)
        if self._settings.get("sandbox.autoAllow") is True:
            from wieldy.permissions.advisers import SandboxAdviser

            yield SandboxAdviser(self._workspace)

    def _configured_hooks(self) -> list[Hook]:
        hooks: list[Hook] = []
        problems: list[str] = []
        section = self._settings.get("hooks")
        if section is not None and self._settings.get("disableAllHooks") is not True:
            from wieldy.hooks.config import parse_hooks

            hooks, problems = parse_hooks(section)
        self.hook_problems = tuple(problems)
        return [*hooks, *self._code_hooks]

    def _add_hooks(self, services: Services, person: Approver) -> None:
        from wieldy.hooks.dispatch import HookApprover, HookReviewer

        # A session keeps one `Hooks` that follows the settings; a call keeps those configured when it began.
        hooks = self.hooks.snapshot()
        services.approver = HookApprover(hooks, person)
        services.advisers = (*([hooks] if "PreToolUse" in hooks.event_names else []), *services.advisers)
        services.reviewers = (HookReviewer(hooks),)
        self._workspace.service(UserQuestions).while_waiting = lambda question: self.hooks.notifying(
            "elicitation_dialog", question
        )

    def _apply_limits(self, services: Services, catalog: Catalog) -> None:
        """Wrap the tools for which the settings set limits; cached results are dropped when files change."""
        sections = self._settings.values.get("tools", {})
        if not sections and self._tool_limits is None:
            return
        if self._tool_limits is None:
            from wieldy.engine.tool_limits import ToolLimits

            self._tool_limits = ToolLimits(catalog)
        self._tool_limits.apply(sections)
        if self._tool_limits.has_caches:
            services.advisers = (*services.advisers, self._tool_limits.invalidator)

    def _add_diagnostics(self, services: Services) -> None:
        """Run the checkers of a file's language after every edit."""
        from wieldy.diagnostics.review import Diagnostics

        checks = Diagnostics(self._workspace, self._stop)
        services.advisers = (*services.advisers, checks)
        services.reviewers = (checks, *services.reviewers)
