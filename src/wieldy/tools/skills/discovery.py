"""Finds definitions in Markdown files with a front matter, such as skills and kinds of subagents."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar, Generic, Literal, Protocol, TypeAlias, TypeVar

from wieldy.core.events import Notice
from wieldy.core.realpath import open_resolved
from wieldy.core.text import format_size, truncate
from wieldy.core.threads import in_thread
from wieldy.core.workspace import Workspace
from wieldy.tools.skills.frontmatter import FrontMatterError

Origin: TypeAlias = Literal["user", "project"]

MAX_BYTES = 256 << 10
MAX_FILES = 500


class Named(Protocol):
    """A definition read from a file."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def path(self) -> str: ...


T = TypeVar("T", bound=Named)


class MarkdownCatalog(ABC, Generic[T]):
    """The definitions of one workspace, read from the user's folders and the project's on request.

    A file of the project must lie in the project or in the user's folders: a symlink elsewhere is left out.
    """

    what: ClassVar[str]
    project_folders: ClassVar[tuple[str, ...]]
    # Which of two definitions with one name counts; the other is reported where the user's does.
    project_wins: ClassVar[bool] = False

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._reported: set[str] = set()
        self.definitions: dict[str, T] = self._built_in()
        self.problems: tuple[str, ...] = ()

    @property
    @abstractmethod
    def user_folders(self) -> tuple[Path, ...]: ...

    @abstractmethod
    def file_in(self, folder: Path, name: str) -> str | None:
        """Return the path of the definition that an entry of a folder stands for, if it may be one."""

    @abstractmethod
    def parse(self, text: str, path: str, origin: Origin) -> T:
        """Parse a file. Raises `FrontMatterError` for one that cannot be used."""

    def _built_in(self) -> dict[str, T]:
        return {}

    @property
    def folders(self) -> tuple[Path, ...]:
        own = tuple(Path(self._workspace.root, folder) for folder in self.project_folders)
        return (*own, *self.user_folders) if self.project_wins else (*self.user_folders, *own)

    async def refresh_in_thread(self) -> None:
        """Read the files again in a thread; where there are no folders, do nothing."""
        if any(map(os.path.isdir, self.folders)):
            await in_thread(self.refresh)
        else:
            self.definitions, self.problems = self._built_in(), ()

    def refresh(self) -> dict[str, T]:
        """Read the files again. Blocks on the disk."""
        definitions: dict[str, T] = {}
        problems: list[str] = []
        for path, origin in self._files():
            try:
                definition = self.parse(_read(path), path, origin)
            except FrontMatterError as error:
                problems.append(f"{path}: {error}")
            except (OSError, ValueError) as error:
                problems.append(f"{path}: {getattr(error, 'strerror', None) or error}")
            else:
                first = definitions.setdefault(definition.name, definition)
                if first is not definition and not self.project_wins:
                    problems.append(
                        f"{definition.path}: there is another {self.what} `{definition.name}`, which is used: {first.path}"
                    )
            if len(definitions) + len(problems) == MAX_FILES:
                problems.append(f"there are more than {MAX_FILES} {self.what}s; the rest are left out")
                break
        self.definitions = {**self._built_in(), **dict(sorted(definitions.items()))}
        self.problems = tuple(problems)
        return self.definitions

    def report_problems(self) -> None:
        """Show the person what is wrong, each problem once."""
        for problem in self.problems:
            if problem not in self._reported:
                self._reported.add(problem)
                article = "An" if self.what[0] in "aeiou" else "A"
                self._workspace.emit(Notice(text=f"{article} {self.what} is left out: {problem}"))

    def _files(self) -> Iterator[tuple[str, Origin]]:
        """Yield the real path of every file, the strongest first."""
        user_folders = self.user_folders
        trusted = (self._workspace.root, *map(os.path.realpath, user_folders))
        for folder in self.folders:
            origin: Origin = "user" if folder in user_folders else "project"
            for path in self._list(folder):
                if origin == "user" or any(path.startswith(place + os.sep) for place in trusted):
                    yield path, origin

    def _list(self, folder: Path) -> Iterator[str]:
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            return
        for name in names:
            path = None if name.startswith(".") else self.file_in(folder, name)
            if path is not None and os.path.isfile(path):
                yield os.path.realpath(path)


def format_listing(entries: Iterable[Named], *, max_chars: int, max_entry_chars: int) -> str:
    """List names and descriptions, a line each, within `max_chars`.

    Long lists get descriptions cut evenly, then none, and then only the number of the rest.
    """
    listed = list(entries)
    left = max_chars - len("… and 100000 more")
    room = (left - sum(len(entry.name) + 5 for entry in listed)) // len(listed) if listed else 0
    lines: list[str] = []
    for count, entry in enumerate(listed):
        description = f": {truncate(entry.description, min(room, max_entry_chars))}" if room >= 20 else ""
        line = f"- {entry.name}{description}"
        left -= len(line) + 1
        if left < 0:
            lines.append(f"… and {len(listed) - count} more")
            break
        lines.append(line)
    return "\n".join(lines)


def _read(path: str) -> str:
    descriptor = open_resolved(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise FrontMatterError(1, f"the file is larger than {format_size(MAX_BYTES)}")
    return data.decode("utf-8")
