"""Looks whether git would lose anything: a reset of a work tree in which all is committed needs no extra question."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from wieldy.core.call import PlannedCall
from wieldy.core.decision import Advice, Opinion
from wieldy.core.effects import Runs
from wieldy.core.workspace import Workspace
from wieldy.permissions.decide import CLEAN_TREE, Policy
from wieldy.shell.sandbox.sandbox import Sandbox

SECONDS = 5.0
NOTHING_TO_SAY = Advice()
# With these the command works on another tree than the one that is looked at.
ELSEWHERE = ("-C", "--git-dir", "--work-tree", "GIT_")


class CleanTreeAdviser:
    """An adviser for commands that are catastrophic only over uncommitted work. In doubt it says nothing."""

    def __init__(
        self,
        policy: Policy,
        cwd: Callable[[], str],
        status: Callable[[str], Awaitable[str | None]] | None = None,
    ) -> None:
        self._policy = policy
        self._cwd = cwd
        self._status = status or git_status

    def wants(self, plan: PlannedCall) -> bool:
        """Whether the call runs one command, of the kind that is catastrophic only over uncommitted work."""
        commands = [effect.command for effect in plan.effects if isinstance(effect, Runs)] if plan.effects else ()
        return len(commands) == 1 and self._only_if_dirty(commands[0])

    async def advise(self, plan: PlannedCall) -> Advice:
        """Vouch for a call that would throw nothing away."""
        if not self.wants(plan) or await self._status(self._cwd()) != "":
            return NOTHING_TO_SAY
        return Advice(opinions=(Opinion(CLEAN_TREE, "allow", "git has nothing uncommitted to lose"),))

    def _only_if_dirty(self, command: str) -> bool:
        analysis = self._policy.analyze(command)
        if not analysis.catastrophic or len(analysis.parts) != 1 or any(mark in command for mark in ELSEWHERE):
            return False
        return all(danger.only_if_dirty for danger in analysis.catastrophic)


async def git_status(folder: str) -> str | None:
    """What git calls changed, untracked or ignored in a work tree; None where that cannot be told."""
    import asyncio
    from subprocess import DEVNULL, PIPE

    env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    command = ("git", "-c", "core.fsmonitor=false", "status", "--porcelain", "--ignored", "--untracked-files=normal")
    try:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=folder, env=env, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, start_new_session=True
        )
    except OSError:
        return None
    try:
        output, _ = await asyncio.wait_for(process.communicate(), SECONDS)
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output.decode("utf-8", "replace") if process.returncode == 0 else None


class SandboxAdviser:
    """An adviser that vouches for what the sandbox contains. Rules, protected paths and guards still have their say."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def wants(self, plan: PlannedCall) -> bool:
        """Whether this is a command that goes into the sandbox, every program of it."""
        setting = self._workspace.setting
        return (
            setting("sandbox.enabled", False)
            and setting("sandbox.autoAllow", False)
            and not setting("sandbox.excludedCommands", list[str]())
            and any(isinstance(effect, Runs) for effect in plan.effects)
        )

    async def advise(self, plan: PlannedCall) -> Advice:
        """Allow, if a sandbox can be had at all."""
        wrapper = await self._workspace.service(Sandbox).wrapper()
        if wrapper.mechanism == "none":
            return Advice()
        return Advice((Opinion("the sandbox", "allow", f"{wrapper.mechanism} contains it"),))
