"""Where `rg` is: named by `WIELDY_RIPGREP`, beside this interpreter, or on PATH; else the built-in engine runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, TypeAlias

from wieldy.core.record import record
from wieldy.search.failure import SearchFailure

VARIABLE = "WIELDY_RIPGREP"
BUILTIN = "builtin"
Source: TypeAlias = Literal["environment", "bundled", "path"]


@record
class Ripgrep:
    """An `rg` that can be run, and how it was found."""

    path: str
    source: Source

    @property
    def version(self) -> str:
        """What it says its version is; empty when it does not answer. Runs the program."""
        return _version(self.path)


def find_ripgrep(env: Mapping[str, str] = os.environ) -> Ripgrep | None:
    """The `rg` to use, or None for the built-in engine."""
    return _find(env.get(VARIABLE, ""), env.get("PATH", os.defpath))


@lru_cache(maxsize=16)
def _find(chosen: str, search_path: str) -> Ripgrep | None:
    if chosen == BUILTIN:
        return None
    if chosen:
        path = shutil.which(os.path.expanduser(chosen), path=search_path)
        if path is None:
            raise SearchFailure(
                f"{VARIABLE} is set to {chosen!r}, which is no program that can be run. "
                f"Set it to the path of rg, to {BUILTIN!r}, or not at all."
            )
        return Ripgrep(os.path.abspath(path), "environment")
    beside = (sysconfig.get_path("scripts"), os.path.dirname(sys.executable))
    for folder in dict.fromkeys(filter(None, beside)):
        if path := shutil.which("rg", path=folder):
            return Ripgrep(path, "bundled")
    path = shutil.which("rg", path=search_path)
    return Ripgrep(os.path.abspath(path), "path") if path else None


@lru_cache(maxsize=16)
def _version(path: str) -> str:
    try:
        said = subprocess.run(
            [path, "--no-config", "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    words = said.stdout.decode(errors="replace").split()
    return words[1] if len(words) > 1 and words[0] == "ripgrep" else ""
