"""Environment variables that keep `python3 -m json.tool` from importing modules of the current folder."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping

from wieldy.core.errors import ToolFailure
from wieldy.shell.running.launch import STARTUP_FILE_VARIABLES

_PROGRAM = re.compile(r"python3\.(\d+)t?")  # `t`: without the global interpreter lock
_FIRST_SAFE = 11  # PYTHONSAFEPATH is read from Python 3.11 on


def neutral_python_environment(
    programs: Iterable[str], roots: Iterable[str], *, surrounding: Mapping[str, str], on_host: bool = True
) -> dict[str, str]:
    """Variables that leave only folders outside `roots` to import from. Raises `ToolFailure` for an older Python.

    The versions of programs that are not `on_host`, this machine, are not known.
    """
    for program in programs:
        if not on_host or not _reads_safe_path(program, surrounding):
            raise ToolFailure(
                f"`{program} -m` could run a file of this folder, such as json.py: {program} is not known to be Python "
                f"3.{_FIRST_SAFE} or newer. Nothing was run.",
                f"Write `{program} -I -m json.tool` instead.",
            )
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": _outside(surrounding.get("PYTHONPATH", ""), roots)}


def _reads_safe_path(program: str, env: Mapping[str, str]) -> bool:
    """Whether the program behind all links is named after a version that is new enough."""
    if not STARTUP_FILE_VARIABLES.isdisjoint(env):
        return False  # the file could change PATH
    path = shutil.which(program, path=env.get("PATH", os.defpath))
    version = _PROGRAM.fullmatch(os.path.basename(os.path.realpath(path))) if path else None
    return path is None or (version is not None and int(version[1]) >= _FIRST_SAFE)


def _outside(search_path: str, roots: Iterable[str]) -> str:
    """The absolute folders of a PYTHONPATH that are not in a project."""
    prefixes = tuple(os.path.join(os.path.realpath(root), "") for root in roots)
    folders = [folder for folder in search_path.split(os.pathsep) if os.path.isabs(folder)]
    return os.pathsep.join(
        folder for folder in folders if not os.path.join(os.path.realpath(folder), "").startswith(prefixes)
    )
