"""The kinds of sub-agent of a workspace: built-in ones, those the user has written, and those that come with the project."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from wieldy.core.event import Notice
from wieldy.core.places import config_home
from wieldy.core.threads import in_thread
from wieldy.core.workspace import Workspace

if TYPE_CHECKING:
    from wieldy.agents.definition import Definition
    from wieldy.agents.definition import Origin

IN_PROJECT = (".wieldy/agents", ".claude/agents")
ENTRY_CHARS = 300
LISTING_CHARS = 4_000


class AgentTypes:
    """`workspace.resident(AgentTypes)`. Of two with one name the project's wins over the user's, and either over a built-in."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._reported: set[str] = set()
        self.problems: tuple[str, ...] = ()

    @cached_property
    def found(self) -> dict[str, Definition]:
        """Every kind by its name, as found last; at first those that are built in."""
        from wieldy.agents.builtin import BUILT_IN

        return dict(BUILT_IN)

    async def refreshed(self) -> None:
        """Look again, in a thread; where there is no folder to look into, there is nothing to wait for."""
        if any(map(os.path.isdir, self.folders)):
            await in_thread(self.refresh)
        else:
            vars(self).pop("found", None)
            self.problems = ()

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where files are looked for."""
        return (*(Path(self._workspace.root, place) for place in IN_PROJECT), *_homes(self._workspace))

    def refresh(self) -> dict[str, Definition]:
        """Look again. Reads files: call it in a thread where there may be many."""
        from wieldy.agents.builtin import BUILT_IN
        from wieldy.agents.definition import read_definition
        from wieldy.skills.gather import gathered

        found, problems = gathered(_files(self._workspace), read_definition, "agents")
        self.found, self.problems = {**BUILT_IN, **found}, tuple(problems)
        return self.found

    def report(self) -> None:
        """Tell the person what is wrong, each fault once."""
        for problem in self.problems:
            if problem not in self._reported:
                self._reported.add(problem)
                self._workspace.emit(Notice(text=f"An agent is left out: {problem}"))

    def listing(self) -> str:
        """Every kind, a line each."""
        return _lines(self.found.values())

    def briefing(self) -> str:
        """What a system prompt says of the kinds that files bring; empty where there are none."""
        if "found" not in vars(self):
            return ""
        lines = _lines(one for one in self.found.values() if one.origin != "built-in")
        return f"# Agents\nThe tool Agent takes these as `agent_type`, too.\n{lines}" if lines else ""


def _lines(definitions: Iterable[Definition]) -> str:
    lines: list[str] = []
    left = LISTING_CHARS
    for one in definitions:
        text = one.description if len(one.description) <= ENTRY_CHARS else one.description[: ENTRY_CHARS - 1] + "…"
        line = f"- {one.name}: {text}" if left > ENTRY_CHARS else f"- {one.name}"
        left -= len(line) + 1
        if left < 0:
            lines.append("… and more")
            break
        lines.append(line)
    return "\n".join(lines)


def _files(workspace: Workspace) -> Iterator[tuple[str, Origin]]:
    """Every file by its real path, strongest first; those of the project that are links out of it are left out."""
    from wieldy.skills.gather import of_project

    homes = _homes(workspace)
    yield from of_project(workspace, IN_PROJECT, homes, _in)
    for home in homes:
        for path in _in(home):
            yield path, "user"


def _homes(workspace: Workspace) -> tuple[Path, ...]:
    env = workspace.env
    return config_home(env) / "agents", Path(env.get("HOME") or Path.home(), ".claude", "agents")


def _in(folder: Path) -> Iterator[str]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        path = os.path.join(folder, name)
        if name.endswith(".md") and not name.startswith(".") and os.path.isfile(path):
            yield os.path.realpath(path)
