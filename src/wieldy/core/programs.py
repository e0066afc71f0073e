"""Finds programs on PATH so that a project cannot put one of its own in their place."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence

_roots: list[str] = []
_found: dict[tuple[str, str, str], tuple[str, int]] = {}


def add_roots(*roots: str) -> None:
    """Take nothing that we run ourselves from these folders, for as long as this process lives."""
    _roots.extend(root for root in roots if root not in _roots)


def own_program(name: str, env: Mapping[str, str] = os.environ) -> str:
    """The path of a program that we run ourselves, such as git: found once, outside all projects. Raises `FileNotFoundError`."""
    if os.path.isabs(name):
        return name
    key = (name, env.get("PATH", os.defpath), env.get("HOME", ""))
    path, checked = _found.get(key, ("", 0))
    if not path or (len(_roots) > checked and is_in_project(path, env, _roots[checked:])):
        found = None if os.sep in name else find_program(name, env, _roots)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        path = found
    _found[key] = (path, len(_roots))
    return path


def find_program(name: str, env: Mapping[str, str], roots: Sequence[str] = ()) -> str | None:
    """The path of a program in an absolute folder on PATH; not of one that is in a project, by its name or by what it links to.

    A root that holds the home folder is no project: the person's own programs are in it.
    """
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, name)
        is_program = os.path.isabs(folder) and os.path.isfile(path) and os.access(path, os.X_OK)
        if is_program and not is_in_project(path, env, roots):
            return path
    return None


def is_in_project(path: str, env: Mapping[str, str], roots: Sequence[str]) -> bool:
    """Whether a file, its folder, or what one of them links to is in a project."""
    home = os.path.realpath(env.get("HOME") or os.path.expanduser("~"))
    places = (os.path.realpath(os.path.dirname(path)), os.path.realpath(path))
    real_roots = (os.path.realpath(root) for root in roots)
    return any(not is_inside(home, root) and any(is_inside(place, root) for place in places) for root in real_roots)


def is_inside(path: str, folder: str) -> bool:
    """Whether a path is a folder or below it, both real."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
