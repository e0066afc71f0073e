"""Where skills are, and which of them can be used. A project's skills must lie in the project; what is broken is said."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from wieldy.core.events import Notice
from wieldy.core.realpath import open_exact
from wieldy.core.state_dirs import skill_homes
from wieldy.core.threads import in_thread
from wieldy.core.workspace import Workspace
from wieldy.skills.frontmatter import FrontMatterError
from wieldy.skills.skill import Origin

if TYPE_CHECKING:
    from wieldy.skills.skill import Origin, Skill


FILE = "SKILL.md"
IN_PROJECT = (".wieldy/skills", ".claude/skills", ".agents/skills")


class Skills:
    """The skills of one workspace, looked for anew on request: `workspace.service(Skills)`.

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


LARGEST = 256 << 10
MOST = 500


class Written(Protocol):
    """What was read from a file, and where that is."""

    @property
    def name(self) -> str:
        """What it is called by."""
        ...


T = TypeVar("T", bound=Written)


def gathered(
    files: Iterable[tuple[str, Origin]],
    read: Callable[[str, str, Origin], T],
    kinds: str,
    hidden: Callable[[T, T], str | None] = lambda later, first: None,
) -> tuple[dict[str, T], list[str]]:
    """The first of every name, by name, and what is wrong; `hidden` may complain of one whose name is taken."""
    found: dict[str, T] = {}
    problems: list[str] = []
    for path, source in files:
        try:
            one = read(_text(path), path, source)
        except FrontMatterError as error:
            problems.append(f"{path}: {error}")
        except (OSError, ValueError) as error:
            problems.append(f"{path}: {getattr(error, 'strerror', None) or error}")
        else:
            first = found.setdefault(one.name, one)
            if first is not one and (complaint := hidden(one, first)):
                problems.append(complaint)
        if len(found) + len(problems) == MOST:
            problems.append(f"there are more than {MOST} {kinds}; the rest are left out")
            break
    return dict(sorted(found.items())), problems


def of_project(
    workspace: Workspace, places: Iterable[str], homes: Iterable[Path], listed: Callable[[Path], Iterator[str]]
) -> Iterator[tuple[str, Origin]]:
    """The files in these places of a project; links out of it, other than to the user's own, are left out."""
    own = (workspace.root, *map(os.path.realpath, homes))
    for place in places:
        for path in listed(Path(workspace.root, place)):
            if any(path.startswith(folder + os.sep) for folder in own):
                yield path, "project"


def _text(path: str) -> str:
    descriptor = open_exact(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise FrontMatterError(1, f"the file is larger than {LARGEST // 1024} KB")
    return data.decode("utf-8")
