"""pydantic-ai: a toolbox as the workspace backend of an agent, so that other people's tools work under its rules.

Every operation is judged like the tool that does the same: reads as Read, listings as LS, writes as Write, the rest as Bash.
Files are replaced atomically, by the same path as those that tools edit. What commands, writes and removals change can be
undone. With a toolbox on a backend, everything is done there, and undo covers what is written.
"""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import stat
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from pydantic_ai.workspaces import (
    CommandResult,
    FileEntry,
    LocalWorkspaceBackend,
    WorkspaceError,
    WorkspaceOutputLimitError,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)

from wieldy.core.backend import Backend, FileInfo, run_on
from wieldy.core.call import ToolCall
from wieldy.core.decision import Question
from wieldy.core.effects import Writes, is_lasting
from wieldy.core.errors import Refusal
from wieldy.core.realpath import PathChanged, open_resolved_folder
from wieldy.core.threads import in_thread, in_thread_uncancellable
from wieldy.engine.pipeline import bind, decide, lookup, normalize, resolve_remote
from wieldy.engine.services import NoApprover
from wieldy.files.apply_edit import FileEdit, write_files
from wieldy.files.journal.command_snapshots import CommandSnapshot, record_unwatched
from wieldy.files.journal.entries import ChangeOrigin, Uncovered
from wieldy.files.search.ripgrep import run_process
from wieldy.files.writing.disk import Target, WriteError
from wieldy.policy.permissions.protected_watch import ProtectedWatch
from wieldy.shell.running.launch import Confinement

if TYPE_CHECKING:
    from wieldy.core.call import PlannedCall
    from wieldy.engine.toolbox import Toolbox

T = TypeVar("T")

SHELL = "/bin/sh"
MAX_OUTPUT_BYTES = 10 << 20
PREVIEW_CHARS = 64 << 10
REMOVE_SECONDS = 600.0
NO_TIMEOUT = 86_400.0


class _Overwrite(FileEdit):
    def __init__(self, path: str, real_path: str, data: bytes) -> None:
        super().__init__(path, real_path)
        self._data = data

    def compute(self, target: Target) -> bytes:
        return self._data


class WorkspacePermissionError(WorkspaceError, PermissionError):
    """The toolbox does not permit an operation; the message says why."""


class WieldyWorkspaceBackend(LocalWorkspaceBackend):
    """The folder of a toolbox: `agent.run(…, workspace=WieldyWorkspaceBackend(box))`.

    What is denied, or would have to be asked where no one can answer, raises `WorkspacePermissionError`. Where the settings
    enable the sandbox, commands run in it. `await box.undo()` takes back what an operation changed.
    """

    def __init__(self, box: Toolbox, *, env: Mapping[str, str] | None = None) -> None:
        super().__init__(box.workspace.root, env=env)
        self.box = box
        self._numbers = count(1)
        self._given_env = dict(env or {})

    @property
    def _place(self) -> Backend:
        """The files and processes of the toolbox: those of its backend, or of this machine."""
        workspace = self.box.workspace
        return workspace.files.backend or workspace.services.local_backend

    def _ensure_alive(self) -> Path:
        if self.box.workspace.files.is_local:
            folder: Path = super()._ensure_alive()
            return folder
        root = self.box.workspace.root
        if not self.box.workspace.files.is_folder(root):
            raise WorkspaceUnavailableError(f"the folder {root} of the workspace does not exist on {self._place.id}")
        return Path(root)

    async def read_bytes(self, path: str) -> bytes:
        real = await self._permit_path("Read", path)
        return await self._do(self._place.read, real)

    async def stat(self, path: str) -> FileEntry:
        real = await self._permit_path("Read", path)
        return _file_entry(path, await self._do(self._look, path, real))

    async def exists(self, path: str) -> bool:
        real = await self._permit_path("Read", path)
        try:
            await self._do(self._look, path, real)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    async def realpath(self, path: str) -> str:
        return await self._permit_path("Read", path)

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        real = await self._permit_path("LS", path)
        return await self._do(self._list, path, real)

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Replace a file atomically, or make it with the folders that it lacks. Recorded, so that it can be undone."""
        self._path(path)
        plan = await self._permit("Write", file_path=path, content="")
        journal = self.box.workspace.services.journal
        real = next(iter(plan.resolved_paths.values()))
        await self._do(self._refuse_special, path, real)
        request = _Overwrite(path, real, data)
        origin = ChangeOrigin(journal.session, plan.call.id, "Write")
        try:
            await journal.run(write_files, journal, [request], origin)
        except WriteError as error:
            raise OSError(error.number or errno.EINVAL, error.message, path) from None

    async def make_dir(self, path: str) -> None:
        self._path(path)
        real = await self._do(self._place.realpath, path)
        await self._permit_command("mkdir", "-p", path, real)
        await self._do(self._place.make_folder, real)

    async def remove(self, path: str) -> None:
        """Remove a file, a link or a whole folder. A cancellation takes effect when that is done."""
        self._path(path)
        real = await self._do(self._resolve_removed, path)
        if f"{self.box.workspace.root}/".startswith(f"{real.rstrip('/')}/"):
            raise ValueError("cannot remove the workspace root or its ancestor")
        plan = await self._permit_command("rm", "-r", path, real)
        remove = _remove_local if self.box.workspace.files.is_local else self._remove_remote
        async with self._undoable(plan):
            with anyio.CancelScope(shield=True):
                await self._do(remove, real, run=in_thread_uncancellable)

    def _look(self, path: str, real: str) -> FileInfo:
        info = self._place.stat(real, follow=False)
        if info.kind == "link":  # it was none when the path was judged
            raise PathChanged(path)
        return info

    def _refuse_special(self, path: str, real: str) -> None:
        """Refuse what is no regular file, or is below one."""
        try:
            kind = self._look(path, real).kind
        except FileNotFoundError:
            return
        if kind == "folder":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if kind != "file":
            raise OSError(errno.EINVAL, "it is not a regular file", path)

    def _resolve_removed(self, path: str) -> str:
        """Where an entry is, which may itself be a link."""
        target = Path(path)
        if target.name == "..":
            return self._place.realpath(path)
        return os.path.join(self._place.realpath(str(target.parent)), target.name)

    def _remove_remote(self, real: str) -> None:
        self._place.stat(real, follow=False)
        env = {"PATH": os.environ.get("PATH", os.defpath)} if self._place.has_host_programs else {}
        argv = ["rm", "-rf", "--", real]
        code, _, errors = run_on(self._place, argv, cwd="/", env=env, seconds=REMOVE_SECONDS)
        if code:
            raise OSError(errno.EACCES, errors.decode("utf-8", "replace").strip() or "it cannot be removed", real)

    def _list(self, path: str, real: str) -> list[FileEntry]:
        entries = []
        for entry in sorted(self._place.list_folder(real), key=lambda entry: entry.name):
            child = os.path.join(path, entry.name)
            try:
                entries.append(_file_entry(child, self._place.stat(os.path.join(real, entry.name))))
            except OSError:  # a link that leads nowhere
                entries.append(FileEntry(name=entry.name, path=child, is_dir=False, size=None))
        return entries

    async def _permit_path(self, tool: str, path: str) -> str:
        """Permit an operation on a file or folder; returns where it leads."""
        self._path(path)
        plan = await self._permit(tool, file_path=path)
        return next(iter(plan.resolved_paths.values()))

    async def _permit_command(self, program: str, option: str, path: str, real: str) -> PlannedCall:
        """Permit what a program does to a path, under the name given and under the one that is used."""
        return await self._permit("Bash", command=shlex.join([program, option, "--", *dict.fromkeys((path, real))]))

    async def _do(self, function: Callable[..., T], *arguments: Any, run: Any = in_thread) -> T:
        """Call an operation in a thread. Raises `WorkspaceUnavailableError` where the folder is gone."""

        def call() -> T:
            self._ensure_alive()
            return function(*arguments)

        result: T = await run(call)
        return result

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
            if not self.box.workspace.files.is_local:
                return await self._run_remote(command, env, timeout)
            async with self._watched(plan) as watch:
                if not self.box.settings.get("sandbox.enabled"):
                    return await super().run(command, shell=shell, env=env, timeout=timeout)
                confine = await self._confinement(watch)
                argv = [SHELL, "-c", command] if isinstance(command, str) else list(command)
                confined, confined_env = confine(list(argv), {**self._env, **(env or {})})
                return await super().run([os.fsdecode(word) for word in confined], env=confined_env, timeout=timeout)

    async def _run_remote(
        self, command: str | Sequence[str], env: Mapping[str, str] | None, timeout: float | None
    ) -> CommandResult:
        """Run a command on the backend of the toolbox to its end."""
        if self.box.settings.get("sandbox.enabled"):
            raise WorkspacePermissionError(f"the settings enable the sandbox, and none works on {self._place.id}")
        root = str(await self._get_working_dir())
        argv = [SHELL, "-c", command] if isinstance(command, str) else list(command)
        variables = self._env if self._place.has_host_programs else self._given_env
        output = bytearray()

        def take(chunk: bytes) -> bool:
            output.extend(chunk)
            return len(output) > MAX_OUTPUT_BYTES

        try:
            result = await run_process(
                argv,
                cwd=root,
                env={**variables, **(env or {})},
                seconds=NO_TIMEOUT if timeout is None else timeout,
                consume=take,
                backend=self._place,
            )
        except (FileNotFoundError, PermissionError) as error:
            missing = isinstance(error, FileNotFoundError)
            words = "command not found" if missing else "Permission denied"
            return CommandResult(exit_code=127 if missing else 126, stdout="", stderr=f"{argv[0]}: {words}\n")
        text = output.decode("utf-8", "replace")
        if result.timed_out:
            raise WorkspaceTimeoutError(f"command timed out after {timeout:g}s", stdout=text, stderr=result.stderr)
        if result.exit_code is None:
            raise WorkspaceOutputLimitError(
                "the output exceeded 10 MiB; redirect it to a file and read part of that",
                limit=MAX_OUTPUT_BYTES,
                stdout=text[:PREVIEW_CHARS],
                stderr=result.stderr,
            )
        code = result.exit_code
        return CommandResult(exit_code=128 - code if code < 0 else code, stdout=text, stderr=result.stderr)

    @asynccontextmanager
    async def _watched(self, plan: PlannedCall) -> AsyncIterator[ProtectedWatch]:
        """Put aside what the body changes of protected files."""
        box = self.box
        analysis = box.policy.analyze(plan.input["command"])
        sandboxed = bool(box.settings.get("sandbox.enabled"))
        watch = await box.workspace.services.protected_files.watch_command(box.policy, analysis, sandboxed=sandboxed)
        try:
            yield watch
        finally:
            with anyio.CancelScope(shield=True):
                await watch.finish()

    async def _confinement(self, watch: ProtectedWatch) -> Confinement:
        """What puts a command into the sandbox. Raises `WorkspacePermissionError` where none works."""
        sandbox = self.box.workspace.services.sandbox
        if (await sandbox.wrapper()).mechanism == "none":
            raise WorkspacePermissionError("the settings enable the sandbox, and none works on this system")
        return await sandbox.confinement(read_only=watch.mounts)

    async def _permit(self, tool: str, **input: Any) -> PlannedCall:
        """Have the toolbox judge an operation as a call of a tool. Raises `WorkspacePermissionError`."""
        box = self.box
        call = ToolCall(f"workspace_{box.id}_{next(self._numbers)}", tool, input)
        try:
            plan = normalize(bind(call, lookup(call, box.catalog)), box.workspace)
            plan = await resolve_remote(plan, box.workspace)
            decision = await decide(plan, (), box.services.judge, box.workspace)
            allowed = decision.behavior == "allow"
            if decision.behavior == "ask" and not isinstance(box.services.person, NoApprover):
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
        if not box.workspace.files.is_local:
            place = box.workspace.files.place
            uncovered = Uncovered(box.workspace.root, f"what a command changes on {place} is not recorded", False)
            await record_unwatched(box.workspace, uncovered, call_id=plan.call.id, tool=plan.tool.name, turn=None)
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


def _remove_local(real: str) -> None:
    """Remove an entry by the descriptor of its folder, so that no link swapped in meanwhile is followed."""
    folder, name = open_resolved_folder(os.path.dirname(real)), os.path.basename(real)
    try:
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            shutil.rmtree(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)
    finally:
        os.close(folder)


def _file_entry(path: str, info: FileInfo) -> FileEntry:
    is_dir = info.kind == "folder"
    return FileEntry(name=os.path.basename(path), path=path, is_dir=is_dir, size=None if is_dir else info.size)
