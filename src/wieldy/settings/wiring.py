"""Who attends to the calls of a toolbox as its settings want it: hooks, limits, checkers and other advisers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from wieldy.core.abort import Abort
from wieldy.core.catalog import Catalog
from wieldy.core.decision import Adviser, Approver
from wieldy.core.workspace import Workspace
from wieldy.engine.services import Services
from wieldy.permissions.advisers import CleanTreeAdviser
from wieldy.permissions.decide import Policy
from wieldy.settings.load import Settings

if TYPE_CHECKING:
    from wieldy.core.call import PlannedCall
    from wieldy.engine.tool_limits import Limiting
    from wieldy.hooks.config import Hook
    from wieldy.hooks.dispatch import Hooks
    from wieldy.permissions.decide import RuleMatcher
    from wieldy.permissions.rules import Rule


class Wiring:
    """`given_hooks` and `advisers` come from code and stay; all others follow the settings."""

    def __init__(
        self,
        settings: Settings,
        policy: Policy,
        workspace: Workspace,
        *,
        given_hooks: Sequence[Hook],
        advisers: Sequence[Adviser],
        stop: Callable[[], Abort],
        halt: Callable[[str], None],
    ) -> None:
        self.hook_problems: tuple[str, ...] = ()
        self._settings = settings
        self._policy = policy
        self._workspace = workspace
        self._given_hooks = tuple(given_hooks)
        self._advisers = tuple(advisers)
        self._stop = stop
        self._halt = halt
        self._limiting: Limiting | None = None

    @cached_property
    def hooks(self) -> Hooks:
        """The hooks of the settings, then those given in code. Without any, nothing about hooks is even loaded."""
        from wieldy.hooks.dispatch import Hooks

        return Hooks(
            self._wanted_hooks(),
            self._workspace,
            mode=lambda: self._policy.mode,
            applies=self._covers,
            halt=self._halt,
        )

    def _covers(self, rule: Rule, plan: PlannedCall) -> bool:
        return self._coverage(rule, plan)

    @cached_property
    def _coverage(self) -> RuleMatcher:
        from wieldy.permissions.decide import RuleMatcher

        return RuleMatcher(self._policy)

    def follow(self, settings: Settings) -> None:
        """Attend by these settings from now on."""
        self._settings = settings
        if "hooks" in vars(self):
            self.hooks.hooks = tuple(self._wanted_hooks())

    def build(self, services: Services, catalog: Catalog, person: Approver) -> Services:
        """A bench for the calls to come. Those under way keep the one they began at."""
        services = replace(services, approver=person, advisers=(*self._own_advisers(), *self._advisers), reviewers=())
        if self._given_hooks or self._settings.get("hooks") or "hooks" in vars(self):
            self._listen_to_hooks(services, person)
        self._apply_limits(services, catalog)
        if self._settings.get("edit.diagnostics"):
            self._check_edits(services)
        return services

    def _own_advisers(self) -> Iterator[Adviser]:
        yield CleanTreeAdviser(self._policy, lambda: self._workspace.cwd)
        if self._settings.get("sandbox.autoAllow") is True:
            from wieldy.permissions.advisers import SandboxAdviser

            yield SandboxAdviser(self._workspace)

    def _wanted_hooks(self) -> list[Hook]:
        found: list[Hook] = []
        problems: list[str] = []
        section = self._settings.get("hooks")
        if section is not None and self._settings.get("disableAllHooks") is not True:
            from wieldy.hooks.config import configured

            found, problems = configured(section)
        self.hook_problems = tuple(problems)
        return [*found, *self._given_hooks]

    def _listen_to_hooks(self, services: Services, person: Approver) -> None:
        from wieldy.hooks.dispatch import HookApprover, HookReviewer

        # A session speaks to one `Hooks` for good; a call to those that were configured when it began.
        hooks = self.hooks.now()
        services.approver = HookApprover(hooks, person)
        services.advisers = (*([hooks] if hooks.has("PreToolUse") else []), *services.advisers)
        services.reviewers = (HookReviewer(hooks),)

    def _apply_limits(self, services: Services, catalog: Catalog) -> None:
        """Wrap the tools for which the settings name limits; results that are kept are forgotten when files change."""
        sections = self._settings.get("tools", {})
        if not sections and self._limiting is None:
            return
        if self._limiting is None:
            from wieldy.engine.tool_limits import Limiting

            self._limiting = Limiting(catalog)
        self._limiting.apply(sections)
        if self._limiting.caches:
            services.advisers = (*services.advisers, self._limiting.invalidation)

    def _check_edits(self, services: Services) -> None:
        """Have every edit followed by the checkers of its language."""
        from wieldy.diagnostics.review import Diagnostics

        checks = Diagnostics(self._workspace, self._stop)
        services.advisers = (*services.advisers, checks)
        services.reviewers = (checks, *services.reviewers)
