"""Edits with what they broke: an adviser that keeps what was there, and a reviewer that adds the new errors to the result."""

from __future__ import annotations

import asyncio
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

from wieldy.core.abort import Abort
from wieldy.core.call import PlannedCall
from wieldy.core.content import Text
from wieldy.core.decision import Advice
from wieldy.core.effects import Writes
from wieldy.core.outcome import Done, Outcome
from wieldy.core.threads import in_thread
from wieldy.core.workspace import Workspace
from wieldy.diagnostics.checkers import BY_SUFFIX, Checker, Problem, Subject, checkers_for, new_problems, output_of

T = TypeVar("T")

EDITS = frozenset({"Edit", "MultiEdit", "Write"})
SECONDS = 5.0
LARGEST = 1 << 20
KEPT = 32
SHOWN = 10


class Diagnostics:
    """Reports errors that an edit brought in. On with the setting `edit.diagnostics`: `true`, or the seconds it may take."""

    def __init__(self, workspace: Workspace, stop: Callable[[], Abort]) -> None:
        self._workspace = workspace
        self._stop = stop
        self._before: OrderedDict[str, tuple[str, bytes]] = OrderedDict()

    @property
    def seconds(self) -> float:
        """How long an edit may be held up; nothing where this is off."""
        value: Any = self._workspace.setting("edit.diagnostics", None)
        if isinstance(value, bool):
            return SECONDS if value else 0.0
        return float(value) if isinstance(value, int | float) and value > 0 else 0.0

    def wants(self, plan: PlannedCall) -> bool:
        """Whether the call edits a file that can be checked."""
        return self._edited(plan) is not None

    async def advise(self, plan: PlannedCall) -> Advice:
        """Keep what is in the file now; no opinion."""
        path = self._edited(plan)
        if path is not None and (content := await in_thread(_content, path, missing=b"")) is not None:
            self._before[plan.call.id] = path, content
            while len(self._before) > KEPT:
                self._before.popitem(last=False)
        return Advice()

    async def review(self, plan: PlannedCall, outcome: Outcome, seconds: float) -> Outcome:
        """The outcome, with the errors that are new in the file."""
        path, before = self._before.pop(plan.call.id, ("", b""))
        if not path or path != self._edited(plan) or not isinstance(outcome, Done) or outcome.is_error:
            return outcome
        after = await in_thread(_content, path)
        if not after or after == before:
            return outcome
        try:
            found = await _until(self._stop(), self._introduced(path, before, after))
        except (TimeoutError, OSError):
            return outcome  # interrupted, or no room for a copy: that is no fault of the edit
        if not found:
            return outcome
        data = (
            {**outcome.data, "diagnostics": list(map(asdict, found))}
            if isinstance(outcome.data, dict)
            else outcome.data
        )
        return Done((*outcome.content, Text(_told(path, found))), data)

    async def _introduced(self, path: str, before: bytes, after: bytes) -> list[Problem]:

        workspace = self._workspace
        cache = str(workspace.session_dir / "checkers")
        return await Edited(path, before, after, workspace.root, cache, workspace.env).introduced(self.seconds)

    def _edited(self, plan: PlannedCall) -> str | None:
        """The file a call edits, where there are checkers for such."""
        if plan.tool.name not in EDITS or not self.seconds:
            return None
        path = next((effect.path for effect in plan.effects if isinstance(effect, Writes)), "")
        return plan.resolved_paths.get(path, path) if os.path.splitext(path)[1] in BY_SUFFIX else None


async def _until(stop: Abort, work: Awaitable[T]) -> T:
    """The result of some work. Raises `TimeoutError` when the person interrupts."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as limit:
        key = stop.listen(lambda: _expire(limit, loop))
        try:
            return await work
        finally:
            stop.forget(key)


def _expire(limit: asyncio.Timeout, loop: asyncio.AbstractEventLoop) -> None:
    def now() -> None:
        with suppress(RuntimeError):  # the work has just ended
            limit.reschedule(loop.time())

    loop.call_soon_threadsafe(now)


def _told(path: str, found: list[Problem]) -> str:
    lines = [f"  {problem}" for problem in found[:SHOWN]]
    if len(found) > SHOWN:
        lines.append(f"  … and {len(found) - SHOWN} more")
    count = "1 new problem" if len(found) == 1 else f"{len(found)} new problems"
    return f"This edit brought {count} into {path}:\n" + "\n".join(lines)


def _content(path: str, missing: bytes | None = None) -> bytes | None:
    """What is in a regular file of moderate size; None where that cannot be told."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return missing
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        return file.read() if stat.S_ISREG(found.st_mode) and found.st_size <= LARGEST else None


class Edited(Struct, frozen=True):
    """A file before and after. `cache` is a folder where checkers may keep what makes them faster the next time."""

    path: str
    before: bytes
    after: bytes
    root: str
    cache: str
    env: Mapping[str, str]

    async def introduced(self, seconds: float) -> list[Problem]:
        """The errors that came in. A checker that takes longer than `seconds` is not heard: what it would have said
        cannot be told from what was there already."""
        found = checkers_for(self.path, self.env)
        if not found:
            return []
        folder = await in_thread(tempfile.mkdtemp, prefix="wieldy-check-")
        try:
            heard = await asyncio.gather(*(self._new(checker, program, folder, seconds) for checker, program in found))
        finally:
            await in_thread(shutil.rmtree, folder, ignore_errors=True)
        return sorted((problem for problems in heard for problem in problems), key=lambda problem: problem.line)

    async def _new(self, checker: Checker, program: str, folder: str, seconds: float) -> list[Problem]:
        try:
            async with asyncio.timeout(seconds):
                now = await self._problems(checker, program, self.after, folder)
                if not now or not self.before:
                    return now
                return new_problems(await self._problems(checker, program, self.before, folder), now)
        except TimeoutError:
            return []

    async def _problems(self, checker: Checker, program: str, content: bytes, folder: str) -> list[Problem]:
        subject = await in_thread(self._laid_out, content, folder)
        arguments = await in_thread(checker.arguments, subject)
        stdin = content if checker.reads_stdin else b""
        output = await output_of((program, *arguments), stdin=stdin, cwd=self.root, env=self.env)
        return await in_thread(lambda: list(checker.parse(output, subject))) if output else []

    def _laid_out(self, content: bytes, folder: str) -> Subject:
        """A copy of the content under the file's own name, in a folder of its own."""
        scratch = tempfile.mkdtemp(dir=folder)
        copy = os.path.join(scratch, os.path.basename(self.path))
        with open(copy, "wb") as file:
            file.write(content)
        return Subject(self.path, self.root, copy, scratch, self.cache)
