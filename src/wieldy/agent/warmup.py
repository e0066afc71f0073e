"""What first calls of the usual tools need is there before they come: what every such call needs before the model is first
asked, while the connection to it is made; what only some need while it thinks about its first answer, in a thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from types import TracebackType
from typing import Any, TypeAlias

from wieldy.core.record import finish
from wieldy.core.threads import in_thread
from wieldy.core.workspace import Workspace

PATIENCE = 0.05
"""Seconds a request is out before anything is loaded: an answer that comes at once is not held up by it."""

AT_MOST = 0.05
"""Seconds that a first request is held up by what is loaded before it, once there is a connection for it: about twice what
that took at best on a shared machine."""

SAMPLES = ("cd a && echo \"$b\" 'c' *.d > e 2>&1; true $(pwd) | cat", "git status; a-program-of-no-table")
"""Commands for which all is loaded that most commands are understood by."""

RECORDS_OF_EDITS = (
    *(
        f"wieldy.files.editing.{name}"
        for name in ("commit", "diff", "document", "landing", "locate", "policy", "readstate")
    ),
    *(f"wieldy.files.editing.{name}" for name in ("report", "revision", "splice")),
    *(
        f"wieldy.files.journal.{name}"
        for name in ("account", "amend", "change", "delta", "names", "record", "segment", "writer")
    ),
)
"""Modules whose records every edit makes."""

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
            tried(step)


def first_steps(tools: Collection[str]) -> Iterator[Step]:
    """What every first call of these tools would do once and for all; what a call of any tool would do comes first."""
    return (step for name, steps in FIRST.items() if name == ANY or name in tools for step in steps)


def later_steps(tools: Collection[str]) -> Iterator[Step]:
    """What some first calls of these tools would do once and for all."""
    return (step for name, steps in LATER.items() if name == ANY or name in tools for step in steps)


def tried(step: Step) -> None:
    """Take a step. If it fails, the call that it was for will say what is wrong."""
    with contextlib.suppress(Exception):
        step()


def make_ready(tools: Collection[str], workspace: Workspace) -> None:
    """Start what no call of these tools goes without."""
    if "Bash" in tools:
        from wieldy.shell.running.shells import ShellSession

        workspace.resident(ShellSession).make_ready()


def _module(name: str) -> Step:
    return lambda: import_module(name)


def _records(module: str, *names: str) -> Step:
    """Have the records of a module ready to be made in numbers; all of them, or those of some names."""

    def ready() -> None:
        there = vars(import_module(module))
        finish({name: there[name] for name in names} if names else there)

    return ready


def _json_outlined() -> None:
    from wieldy.providers.sse import Extent

    Extent().feed('{"a": "b"}')


def _text_cleaned() -> None:
    from wieldy.engine.results import clean

    clean("é\n")


def _checked(tool: str, input: dict[str, Any]) -> None:
    from wieldy.tools import builtin_loaders

    builtin_loaders()[tool]().parameters.accept(input)


def _commands_understood(*commands: str) -> None:
    from wieldy.shell.policy.analysis import analyse

    for command in commands:
        analyse(command, cwd="/", home="/", root="/")


ANY = ""
FIRST: Mapping[str, tuple[Step, ...]] = {
    ANY: (
        _module("wieldy.engine.pipeline"),
        _module("wieldy.schema.json_repair"),
    ),
    "Read": (
        partial(_checked, "Read", {"file_path": "/"}),
        _module("wieldy.files.editing.read_state"),
        _module("wieldy.files.reading.read_file"),
        _module("wieldy.files.reading.read_file"),
        _module("wieldy.files.reading.pages"),
    ),
    "Bash": (
        partial(_checked, "Bash", {"command": "true"}),
        _module("wieldy.shell.running.shells"),
        partial(_commands_understood, "true"),
        _module("wieldy.shell.running.shells"),
        _module("resource"),
    ),
}
"""What no call goes without."""
LATER: Mapping[str, tuple[Step, ...]] = {
    ANY: (
        _json_outlined,
        _text_cleaned,
        _records("wieldy.core.provider"),
        _records("wieldy.core.call"),
        _records("wieldy.core.effects"),
        _records("wieldy.core.decision"),
        _records("wieldy.permissions.findings"),
        _records("wieldy.permissions.files"),
        _records("wieldy.permissions.paths"),
        _records("wieldy.core.events"),
        _records("wieldy.core.tool"),
        _records("wieldy.core.content"),
        _records("wieldy.core.outcome"),
        _records("wieldy.core.outcome"),
        _records("wieldy.core.messages"),
        _records("wieldy.providers.http1"),
        _records("wieldy.agent.model_turn"),
    ),
    "Read": (
        _records("wieldy.files.editing.read_state"),
        _records("wieldy.files.reading.read_file"),
        _records("wieldy.files.reading.pages"),
    ),
    "Edit": (
        partial(_checked, "Edit", {"file_path": "/", "old_string": "a", "new_string": "b"}),
        _module("wieldy.files.apply_edit"),
        *map(_records, RECORDS_OF_EDITS),
    ),
    "Bash": (
        partial(_commands_understood, *SAMPLES),
        _records("wieldy.shell.policy.simple_command"),
        _records("wieldy.shell.policy.analysis"),
        _records("wieldy.shell.running.launch"),
        _module("wieldy.files.journal.journal"),
        _module("wieldy.files.journal.command_snapshots"),
        _module("wieldy.shell.running.exit_notes"),
        _records("wieldy.shell.running.shell"),
        _records("wieldy.shell.running.exit_notes"),
        _records("wieldy.shell.running.output"),
        _records("wieldy.tools.bash"),
    ),
}
