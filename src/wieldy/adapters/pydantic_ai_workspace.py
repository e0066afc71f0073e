"""pydantic-ai: a toolbox as the workspace backend of an agent, so that other people's tools work under its rules.

Every operation is judged like the tool that does the same: reads as Read, listings as LS, writes as Write, the rest as Bash.
What commands, writes and removals change can be undone.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import anyio
from pydantic_ai.workspaces import CommandResult, FileEntry, LocalWorkspaceBackend, WorkspaceError

from wieldy.approval import NoApprover
from wieldy.core.call import ToolCall
from wieldy.core.decision import Question
from wieldy.core.effects import Writes, is_lasting
from wieldy.core.errors import Refusal
from wieldy.engine.pipeline import bind, decide, lookup, normalize, resolve_remote
from wieldy.files.journal.command_snapshots import CommandSnapshot

if TYPE_CHECKING:
    from wieldy.core.call import PlannedCall
    from wieldy.toolbox import Toolbox

SHELL = "/bin/sh"


class WorkspacePermissionError(WorkspaceError, PermissionError):
    """The toolbox does not permit an operation; the message says why."""


class WieldyWorkspaceBackend(LocalWorkspaceBackend):
    """The folder of a toolbox: `agent.run(…, workspace=WieldyWorkspaceBackend(box))`.

    What is denied, or would have to be asked where nobody answers, raises `WorkspacePermissionError`. Where the settings
    enable the sandbox, commands run in it. `await box.undo()` takes back what an operation changed.
    """

    def __init__(self, box: Toolbox, *, env: Mapping[str, str] | None = None) -> None:
        super().__init__(box.workspace.root, env=env)
        self.box = box
        self._numbers = count(1)

    async def read_bytes(self, path: str) -> bytes:
        await self._permit("Read", file_path=path)
        data: bytes = await super().read_bytes(path)
        return data

    async def stat(self, path: str) -> FileEntry:
        await self._permit("Read", file_path=path)
        return await super().stat(path)

    async def exists(self, path: str) -> bool:
        await self._permit("Read", file_path=path)
        is_there: bool = await super().exists(path)
        return is_there

    async def realpath(self, path: str) -> str:
        await self._permit("Read", file_path=path)
        resolved: str = await super().realpath(path)
        return resolved

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        await self._permit("LS", path=path)
        entries: Sequence[FileEntry] = await super().list_dir(path)
        return entries

    async def write_bytes(self, path: str, data: bytes) -> None:
        plan = await self._permit("Write", file_path=path, content="")
        async with self._undoable(plan):
            await super().write_bytes(path, data)

    async def make_dir(self, path: str) -> None:
        await self._permit("Bash", command=shlex.join(["mkdir", "-p", "--", path]))
        await super().make_dir(path)

    async def remove(self, path: str) -> None:
        root = os.path.realpath(self.box.workspace.root)
        if not os.path.islink(path) and os.path.commonpath([os.path.realpath(path), root]) == os.path.realpath(path):
            raise ValueError("cannot remove the workspace root or its ancestor")
        plan = await self._permit("Bash", command=shlex.join(["rm", "-r", "--", path]))
        async with self._undoable(plan):
            await super().remove(path)

    async def run(
        self,
        command: str | Sequence[str],
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        if isinstance(command, str) != shell:  # a mistake of the caller, which says so
            return await super().run(command, shell=shell, env=env, timeout=timeout)
        text = command if isinstance(command, str) else shlex.join(command)
        variables = "".join(f"{name}={shlex.quote(value)} " for name, value in (env or {}).items())
        plan = await self._permit("Bash", command=variables + text)
        async with self._undoable(plan):
            if not self.box.settings.get("sandbox.enabled"):
                return await super().run(command, shell=shell, env=env, timeout=timeout)
            argv, confined_env = await self._confine(command, env)
            return await super().run(argv, env=confined_env, timeout=timeout)

    async def _confine(
        self, command: str | Sequence[str], env: Mapping[str, str] | None
    ) -> tuple[list[str], dict[str, str]]:
        """The command inside the sandbox. Raises `WorkspacePermissionError` where none works."""
        sandbox = self.box.workspace.services.sandbox
        if (await sandbox.wrapper()).mechanism == "none":
            raise WorkspacePermissionError("the settings enable the sandbox, and none works on this system")
        confine = await sandbox.confinement()
        argv = [SHELL, "-c", command] if isinstance(command, str) else list(command)
        confined, variables = confine(list(argv), {**self._env, **(env or {})})
        return [os.fsdecode(word) for word in confined], variables

    async def _permit(self, tool: str, **input: Any) -> PlannedCall:
        """Have the toolbox judge an operation as a call of a tool. Raises `WorkspacePermissionError`."""
        box = self.box
        call = ToolCall(f"workspace_{box.id}_{next(self._numbers)}", tool, input)
        try:
            plan = normalize(bind(call, lookup(call, box.catalog)), box.workspace)
            plan = await resolve_remote(plan, box.workspace)
            decision = await decide(plan, (), box.services.judge, box.workspace)
            allowed = decision.behavior == "allow"
            if decision.behavior == "ask" and not isinstance(box.parts.person, NoApprover):
                allowed = (await box.services.approver.ask(Question(plan, decision))).allowed
        except Refusal as refusal:
            raise WorkspacePermissionError(str(refusal)) from None
        if not allowed:
            raise WorkspacePermissionError(f"not permitted: {decision.why}")
        return plan

    @asynccontextmanager
    async def _undoable(self, plan: PlannedCall) -> AsyncIterator[None]:
        """Record what the body changes, so that it can be undone; nothing where the settings turn that off."""
        box = self.box
        is_undo_on = box.settings.get("journal.enabled") and box.settings.get("bash.snapshot")
        if not is_undo_on or not any(map(is_lasting, plan.effects)):
            yield
            return
        is_known = not any(effect.opaque for effect in plan.effects)
        written = tuple(effect.path for effect in plan.effects if isinstance(effect, Writes)) if is_known else None
        snapshot = await CommandSnapshot.take(box.workspace, written, call_id=plan.call.id, tool=plan.tool.name)
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await snapshot.record_changes()
