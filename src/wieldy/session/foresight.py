"""While a model thinks about its first answer, what first calls of the usual tools load is loaded, in a thread, and what they
start is started."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from importlib import import_module
from types import TracebackType
from typing import TypeAlias

from wieldy.core.message import Message
from wieldy.core.record import finish
from wieldy.core.threads import in_thread
from wieldy.core.workspace import Workspace

PATIENCE = 0.05
"""Seconds a request is out before anything is loaded: an answer that comes at once is not held up by it."""

SAMPLES = ("cd a && echo \"$b\" 'c' *.d > e 2>&1; true $(pwd) | cat", "git status; a-program-of-no-table")
"""Commands for which all is loaded that most commands are understood by."""

Step: TypeAlias = Callable[[], object]


class Foresight:
    """Around one request. At the end of the block the step it is at is waited for; the others are left out.

    The `last` step is taken on the event loop: what is started once must not be started from two places.
    """

    def __init__(self, steps: Iterable[Step], last: Step = lambda: None) -> None:
        self._steps = steps
        self._last = last
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._wait_and_load())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._over.set()
        assert self._task is not None
        await self._task

    async def _wait_and_load(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                await self._over.wait()
        except TimeoutError:
            await in_thread(self._take, self._steps)
            self._take((self._last,))

    def _take(self, steps: Iterable[Step]) -> None:
        for step in steps:
            if self._over.is_set():
                return
            with contextlib.suppress(Exception):  # the call itself will say what is wrong
                step()


def first_steps(tools: Iterable[str]) -> Iterator[Step]:
    """What first calls of these tools do once and for all; what any call does comes first."""
    return (step for name in (ANY, *tools) for step in STEPS.get(name, ()))


def make_ready(tools: Collection[str], workspace: Workspace) -> None:
    """Start what no call of these tools goes without."""
    if "Bash" in tools:
        from wieldy.shell.session import ShellSession

        workspace.resident(ShellSession).make_ready()


def _module(name: str) -> Step:
    return lambda: import_module(name)


def _records(name: str) -> Step:
    return lambda: finish(vars(import_module(name)))


def _text_cleaned() -> None:
    from wieldy.engine.clean import clean

    clean("two\nlines")


def _call_told() -> None:
    from wieldy.providers.extent import Extent
    from wieldy.session.repair import repair

    Extent().feed('{"a": "b"}')
    call = {"type": "tool_use", "id": "a", "name": "b", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "c"}
    repair([Message("assistant", (call,)), Message("user", (result,))], set(), whole=False)


def _command_checked() -> None:
    from wieldy.tools.bash import TOOL

    TOOL.parameters.accept({"command": "true"})


def _command_understood() -> None:
    from wieldy.shell.analysis import analyse

    for command in SAMPLES:
        analyse(command, cwd="/", home="/", root="/")


def _reading_checked() -> None:
    from wieldy.tools.read import TOOL

    TOOL.parameters.accept({"file_path": "/"})


ANY = ""
CALLED_FOR = (
    "wieldy.core.provider",
    "wieldy.core.call",
    "wieldy.core.effect",
    "wieldy.core.decision",
    "wieldy.permissions.finding",
    "wieldy.permissions.files",
    "wieldy.permissions.paths",
    "wieldy.core.event",
    "wieldy.core.tool",
    "wieldy.core.content",
    "wieldy.core.outcome",
    "wieldy.core.result",
    "wieldy.core.message",
)
"""The modules whose records are made with every call, in the order in which they are."""
STEPS: Mapping[str, tuple[Step, ...]] = {
    ANY: (
        _module("wieldy.engine.handle"),
        _module("wieldy.schema.mend"),
        _text_cleaned,
        _call_told,
        *map(_records, CALLED_FOR),
    ),
    "Read": (
        _reading_checked,
        _records("wieldy.edit.readstate"),
        _module("wieldy.reading.repeats"),
        _records("wieldy.reading.show"),
        _records("wieldy.reading.page"),
    ),
    "Bash": (
        _command_checked,
        _command_understood,
        _records("wieldy.shell.redirects"),
        _records("wieldy.shell.analysis"),
        _module("wieldy.shell.whereabouts"),
        _module("wieldy.shell.session"),
        _records("wieldy.shell.launch"),
        _module("wieldy.journal.journal"),
        _module("wieldy.journal.witness"),
        _module("wieldy.shell.account"),
        _records("wieldy.shell.run"),
        _records("wieldy.shell.exitcode"),
        _records("wieldy.shell.capture"),
        _records("wieldy.tools.bash"),
        _module("resource"),
    ),
}
