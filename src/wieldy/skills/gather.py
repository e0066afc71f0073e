"""Files that begin with a head, gathered from folders: each by its name, and what is wrong with the others."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from wieldy.core.exact import open_exact
from wieldy.core.workspace import Workspace
from wieldy.skills.frontmatter import BadHead
from wieldy.skills.skill import Origin

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
        except BadHead as error:
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
        raise BadHead(1, f"the file is larger than {LARGEST // 1024} KB")
    return data.decode("utf-8")
