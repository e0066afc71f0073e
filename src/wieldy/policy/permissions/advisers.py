"""Advisers that allow what needs no question: git commands that lose nothing, and commands inside the sandbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from wieldy.core.call import PlannedCall
from wieldy.core.decision import Advice, Adviser, Opinion
from wieldy.core.effects import Runs
from wieldy.core.workspace import Workspace
from wieldy.policy.permissions.decide import CLEAN_TREE, SANDBOX, Policy

if TYPE_CHECKING:
    from wieldy.shell.effects.analysis import Analysis

# With these a command works on another tree than the one whose status is read.
OTHER_TREE_MARKS = ("-C", "--git-dir", "--work-tree", "GIT_")


async def analysis_opinions(advisers: Iterable[Adviser], plan: PlannedCall) -> tuple[Opinion, ...]:
    """What the advisers of this module think of a call. Hooks are programs: an explanation does not run them."""
    opinions: list[Opinion] = []
    for adviser in advisers:
        if isinstance(adviser, CleanTreeAdviser | SandboxAdviser) and adviser.wants(plan):
            opinions += (await adviser.advise(plan)).opinions
    return tuple(opinions)


class CleanTreeAdviser:
    """Allows commands that are catastrophic only over uncommitted work, where there is none. In doubt it says nothing."""

    def __init__(
        self,
        policy: Policy,
        status: Callable[[str], Awaitable[str | None]] | None = None,
    ) -> None:
        self._policy = policy
        self._status = status or _git_status

    def wants(self, plan: PlannedCall) -> bool:
        if not any(isinstance(effect, Runs) for effect in plan.effects):
            return False
        commands = list(self._policy.analyses(plan))
        return len(commands) == 1 and _only_if_dirty(*commands[0])

    async def advise(self, plan: PlannedCall) -> Advice:
        if not self.wants(plan) or await self._status(plan.cwd) != "":
            return Advice()
        return Advice(opinions=(Opinion(CLEAN_TREE, "allow", "git has nothing uncommitted to lose"),))


def _only_if_dirty(command: str, analysis: Analysis) -> bool:
    if not analysis.catastrophic or len(analysis.parts) != 1 or any(mark in command for mark in OTHER_TREE_MARKS):
        return False
    return all(danger.only_if_dirty for danger in analysis.catastrophic)


async def _git_status(folder: str) -> str | None:
    from wieldy.core.git import git_status
    from wieldy.core.threads import in_thread

    return await in_thread(git_status, folder)


class SandboxAdviser:
    """Allows commands that run in a sandbox that was tried and holds. Rules, protected paths and guards still apply.

    Not without a snapshot to undo what they do, so not in the background; not with the network; and not where files that
    rules deny could not be hidden from a program whose effects are unknown. Where the protected files cannot all be found, it
    wants a question in every mode.
    """

    def __init__(self, workspace: Workspace, policy: Policy) -> None:
        self._workspace = workspace
        self._policy = policy

    def wants(self, plan: PlannedCall) -> bool:
        setting = self._workspace.setting
        return setting("sandbox.enabled") and any(
            isinstance(effect, Runs) and not effect.unsandboxed for effect in plan.effects
        )

    async def advise(self, plan: PlannedCall) -> Advice:
        from wieldy.core.threads import in_thread
        from wieldy.shell.sandbox.policy import extra_writable

        sandbox = self._workspace.services.sandbox
        analyses = [analysis for _, analysis in self._policy.analyses(plan)]
        if any(map(sandbox.excludes, analyses)):
            return Advice()
        wrapper = await sandbox.wrapper()
        if wrapper.mechanism != "none" and any(analysis.verdict != "read_only" for analysis in analyses):
            files = self._workspace.services.protected_files
            folders, git_only = sandbox.watched_folders()
            scan = partial(files.scan, self._policy.protection_of, folders, sandboxed=True, git_only=git_only)
            if problem := (await in_thread(scan)).problem:
                return Advice((Opinion(SANDBOX, "ask", problem),))
        if not self._allows(plan) or not await sandbox.holds():
            return Advice()
        if any(analysis.verdict == "unknown" for analysis in analyses):
            if self._policy.outside == "deny":
                return Advice()
            guarded = await in_thread(self._policy.guarded_files, extra_writable(self._workspace))
            if guarded.problem:
                return Advice()
        return Advice((Opinion(SANDBOX, "allow", f"{wrapper.mechanism} contains it"),))

    def _allows(self, plan: PlannedCall) -> bool:
        setting = self._workspace.setting
        return (
            setting("sandbox.autoAllow")
            and not setting("sandbox.network")
            and setting("journal.enabled")
            and setting("bash.snapshot")
            and not plan.input.get("run_in_background")
        )
