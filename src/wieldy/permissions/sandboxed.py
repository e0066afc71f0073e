"""Commands inside a sandbox that really holds may run without a question, where the settings say so."""

from __future__ import annotations

from wieldy.core.call import PlannedCall
from wieldy.core.decision import Advice, Opinion
from wieldy.core.effect import Runs
from wieldy.core.workspace import Workspace
from wieldy.shell.sandbox import Sandbox


class Sandboxed:
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
        wrapper = await self._workspace.resident(Sandbox).wrapper()
        if wrapper.mechanism == "none":
            return Advice()
        return Advice((Opinion("the sandbox", "allow", f"{wrapper.mechanism} contains it"),))
