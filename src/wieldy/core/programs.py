"""Finds programs on PATH so that a project cannot put one of its own in their place."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence


def find_program(name: str, env: Mapping[str, str], roots: Sequence[str] = ()) -> str | None:
    """The path of a program in an absolute folder on PATH; not of one that is in a project, by its name or by what it links to.

    A root that holds the home folder is no project: the person's own programs are in it.
    """
    home = env.get("HOME") or os.path.expanduser("~")
    projects = [
        os.path.realpath(root) for root in roots if not is_inside(os.path.realpath(home), os.path.realpath(root))
    ]
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, name)
        if os.path.isabs(folder) and os.path.isfile(path) and os.access(path, os.X_OK):
            places = (os.path.realpath(folder), os.path.realpath(path))
            if not any(is_inside(place, root) for place in places for root in projects):
                return path
    return None


def is_inside(path: str, folder: str) -> bool:
    """Whether a path is a folder or below it, both real."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
