"""Checks edited files: keeps the content before an edit and adds the errors that are new to the result."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import stat
import tempfile
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import asdict

from wieldy.core.call import PlannedCall
from wieldy.core.decision import Advice
from wieldy.core.effects import Writes
from wieldy.core.outcome import Done, Outcome, Text
from wieldy.core.programs import is_inside
from wieldy.core.supervise import Abort
from wieldy.core.text import plural
from wieldy.core.threads import in_thread
from wieldy.core.workspace import Workspace
from wieldy.shell.diagnostics.checkers import (
    BY_SUFFIX,
    CheckedFile,
    Checker,
    Diagnostic,
    checkers_for,
    new_diagnostics,
    run_program,
)
from wieldy.shell.running.launch import scrub_secrets
from wieldy.shell.sandbox.policy import policy_for

T = TypeVar("T")

DEFAULT_SECONDS = 5.0
MAX_FILE_BYTES = 1 << 20
MAX_PENDING = 32
MAX_SHOWN = 10


class Diagnostics:
    """Reports errors that an edit introduced, if `edit.diagnostics` is `true` or the seconds it may take."""

    def __init__(self, workspace: Workspace, abort: Abort) -> None:
        self._workspace = workspace
        self._abort = abort
        self._before: OrderedDict[str, tuple[str, bytes]] = OrderedDict()

    @property
    def seconds(self) -> float:
        """How long the checks of an edit may take; 0 if they are off."""
        value: Any = self._workspace.setting("edit.diagnostics")
        if isinstance(value, bool):
            return DEFAULT_SECONDS if value else 0.0
        return float(value) if isinstance(value, int | float) and value > 0 else 0.0

    def wants(self, plan: PlannedCall) -> bool:
        """Whether the call edits a file that can be checked."""
        return self._edited_path(plan) is not None

    async def advise(self, plan: PlannedCall) -> Advice:
        """Keep the content before the edit; gives no opinion."""
        path = self._edited_path(plan)
        if path is not None and (content := await in_thread(_read_content, path, missing=b"")) is not None:
            self._before[plan.call.id] = path, content
            while len(self._before) > MAX_PENDING:
                self._before.popitem(last=False)
        return Advice()

    async def review(self, plan: PlannedCall, outcome: Outcome, seconds: float) -> Outcome:
        """Add the errors that are new in the file to the outcome."""
        path, before = self._before.pop(plan.call.id, ("", b""))
        if not path or path != self._edited_path(plan) or not isinstance(outcome, Done) or outcome.is_error:
            return outcome
        after = await in_thread(_read_content, path)
        if not after or after == before:
            return outcome
        try:
            diagnostics = await _run_until(self._abort, self._find_new(path, before, after))
        except (TimeoutError, OSError):
            return outcome  # interrupted, or no space for a copy: the edit is not to blame
        if not diagnostics:
            return outcome
        data = outcome.data
        if isinstance(data, dict):
            data = {**data, "diagnostics": list(map(asdict, diagnostics))}
        return Done((*outcome.content, Text(_describe(path, diagnostics))), data)

    async def _find_new(self, path: str, before: bytes, after: bytes) -> list[Diagnostic]:
        workspace = self._workspace
        cache = str(workspace.session_dir / "checkers")
        # Checkers may run plugins that the project names: like commands, they get no secrets.
        env, _ = scrub_secrets(workspace.env, workspace.setting("bash.keepEnv"))
        wrapper = await workspace.services.sandbox.wrapper()
        policy = await in_thread(policy_for, workspace) if wrapper.is_complete else None

        def confine(command: list[str], writable: tuple[str, ...]) -> list[str]:
            assert policy is not None
            readable = (*policy.readable, *workspace.roots, os.path.dirname(command[0]))
            narrow = dataclasses.replace(policy, writable=writable, protected=(), readable=readable, network=False)
            return [*wrapper.prefix(narrow), *command]

        file = EditedFile(path, before, after, workspace.root, cache, env, None if policy is None else confine)
        return await file.new_diagnostics(self.seconds)

    def _edited_path(self, plan: PlannedCall) -> str | None:
        """The file that a call edits, if there are checkers for it."""
        if plan.tool.rules != "edit" or not self.seconds:
            return None
        path = next((effect.path for effect in plan.effects if isinstance(effect, Writes)), "")
        return plan.resolved_paths.get(path, path) if os.path.splitext(path)[1] in BY_SUFFIX else None


async def _run_until(abort: Abort, work: Awaitable[T]) -> T:
    """Await some work. Raises `TimeoutError` if the user interrupts."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as limit:
        key = abort.listen(lambda: _expire(limit, loop))
        try:
            return await work
        finally:
            abort.forget(key)


def _expire(limit: asyncio.Timeout, loop: asyncio.AbstractEventLoop) -> None:
    def now() -> None:
        with suppress(RuntimeError):  # the work has just ended
            limit.reschedule(loop.time())

    loop.call_soon_threadsafe(now)


def _describe(path: str, diagnostics: list[Diagnostic]) -> str:
    lines = [f"  {diagnostic}" for diagnostic in diagnostics[:MAX_SHOWN]]
    if len(diagnostics) > MAX_SHOWN:
        lines.append(f"  … and {len(diagnostics) - MAX_SHOWN} more")
    count = plural(len(diagnostics), "new problem")
    return f"This edit brought {count} into {path}:\n" + "\n".join(lines)


def _read_content(path: str, missing: bytes | None = None) -> bytes | None:
    """The content of a regular file; None if it is too large or cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return missing
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        return file.read() if stat.S_ISREG(status.st_mode) and status.st_size <= MAX_FILE_BYTES else None


class EditedFile(Struct, frozen=True):
    """A file before and after an edit. `cache` is a folder where checkers may keep their caches.

    `confine` turns a command into one that writes only in some folders; where there is none, no code of the project runs.
    """

    path: str
    before: bytes
    after: bytes
    root: str
    cache: str
    env: Mapping[str, str]
    confine: Callable[[list[str], tuple[str, ...]], list[str]] | None = None

    async def new_diagnostics(self, seconds: float) -> list[Diagnostic]:
        """The errors that the edit introduced. A checker that takes longer than `seconds` is ignored."""
        checkers = checkers_for(self.path, self.env, () if self.confine else (self.root,))
        if not checkers:
            return []
        folder = await in_thread(self._make_folder)
        try:
            results = await asyncio.gather(
                *(self._compare(checker, program, folder, seconds) for checker, program in checkers)
            )
        finally:
            await in_thread(shutil.rmtree, folder, ignore_errors=True)
        return sorted((diagnostic for result in results for diagnostic in result), key=lambda each: each.line)

    async def _compare(self, checker: Checker, program: str, folder: str, seconds: float) -> list[Diagnostic]:
        try:
            async with asyncio.timeout(seconds):
                after = await self._check(checker, program, self.after, folder)
                if not after or not self.before:
                    return after
                return new_diagnostics(await self._check(checker, program, self.before, folder), after)
        except TimeoutError:
            return []

    async def _check(self, checker: Checker, program: str, content: bytes, folder: str) -> list[Diagnostic]:
        file = await in_thread(self._write_copy, content, folder)
        arguments = await in_thread(checker.arguments, file)
        stdin = content if checker.reads_stdin else b""
        command = [program, *arguments]
        is_of_project = any(
            is_inside(os.path.realpath(place), self.root) for place in (program, os.path.dirname(program))
        )
        if self.confine is not None and (is_of_project or checker.without_plugins):
            command = self.confine(command, (folder, self.cache))
        else:
            command[1:1] = checker.without_plugins
        cwd = file.scratch if checker.in_scratch else self.root
        output = await run_program(command, stdin=stdin, cwd=cwd, env={**self.env, **checker.env})
        return await in_thread(lambda: list(checker.parse(output, file))) if output else []

    def _make_folder(self) -> str:
        os.makedirs(self.cache, mode=0o700, exist_ok=True)
        return tempfile.mkdtemp(prefix="check-", dir=self.cache)

    def _write_copy(self, content: bytes, folder: str) -> CheckedFile:
        """Write the content to a file of the same name in a new folder."""
        scratch = tempfile.mkdtemp(dir=folder)
        copy = os.path.join(scratch, os.path.basename(self.path))
        with open(copy, "wb") as file:
            file.write(content)
        return CheckedFile(self.path, self.root, copy, scratch, self.cache)
