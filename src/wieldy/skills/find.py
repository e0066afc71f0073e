"""Where skills are, and which of them can be used. A project's skills must lie in the project; what is broken is said."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from wieldy.core.event import Notice
from wieldy.core.places import skill_homes
from wieldy.core.threads import in_thread
from wieldy.core.workspace import Workspace

if TYPE_CHECKING:
    from wieldy.skills.skill import Origin, Skill

FILE = "SKILL.md"
IN_PROJECT = (".wieldy/skills", ".claude/skills", ".agents/skills")


class Skills:
    """The skills of one workspace, looked for anew on request: `workspace.resident(Skills)`.

    Of two of one name the user's wins over the project's, so that a project cannot put its words in place of theirs.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._reported: set[str] = set()
        self.found: dict[str, Skill] = {}
        self.problems: tuple[str, ...] = ()

    @property
    def folders(self) -> tuple[str, ...]:
        """Where skills are looked for."""
        return (
            *map(str, skill_homes(self._workspace.env)),
            *(f"{self._workspace.root}/{place}" for place in IN_PROJECT),
        )

    async def refreshed(self) -> None:
        """Look again, in a thread; where there is no folder to look into, there is nothing to wait for."""
        if any(map(os.path.isdir, self.folders)):
            await in_thread(self.refresh)
        else:
            self.found, self.problems = {}, ()

    def refresh(self) -> dict[str, Skill]:
        """Look again. Reads files: call it in a thread where there may be many."""
        from wieldy.skills.gather import gathered
        from wieldy.skills.skill import read_skill

        self.found, problems = gathered(_files(self._workspace), read_skill, "skills", _hidden)
        self.problems = tuple(problems)
        return self.found

    def report(self) -> None:
        """Tell the person what is wrong, each fault once."""
        for problem in self.problems:
            if problem not in self._reported:
                self._reported.add(problem)
                self._workspace.emit(Notice(text=f"A skill is left out: {problem}"))

    def listing(self) -> str:
        """The skills a model may load, a line each; empty where there are none."""
        if not self.found:
            return ""
        from wieldy.skills.skill import listing

        return listing(list(self.found.values()))

    def briefing(self) -> str:
        """What a system prompt says of the skills that were found last; empty where there are none."""
        lines = self.listing()
        return (
            f"# Skills\nWhen a task matches one of these, load it with the tool Skill first.\n{lines}" if lines else ""
        )


def _files(workspace: Workspace) -> Iterator[tuple[str, Origin]]:
    """Every SKILL.md by its real path, the user's first; those of the project that are links out of it are left out."""
    from wieldy.skills.gather import of_project

    homes = skill_homes(workspace.env)
    for home in homes:
        for path in _in(home):
            yield path, "user"
    yield from of_project(workspace, IN_PROJECT, homes, _in)


def _in(folder: Path) -> Iterator[str]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        path = os.path.join(folder, name, FILE)
        if not name.startswith(".") and os.path.isfile(path):
            yield os.path.realpath(path)


def _hidden(skill: Skill, other: Skill) -> str:
    return f"{skill.path}: there is another skill `{skill.name}`, which is used: {other.path}"
