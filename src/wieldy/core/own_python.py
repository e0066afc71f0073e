"""Starts our own Python, so that nothing of the folder one stands in, of the environment or of a project is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec

# The standard library comes first: without -S and with -I, Python looks nowhere else before these lines run.
_FIND_PACKAGES = "import sys; sys.path += sys.argv.pop(1).split(chr(10)); "
_FIND_INSTALLED = "import site; site.main(); "


def own_python(code: str, *arguments: str, installed: bool = True, needs: tuple[str, ...] = ()) -> list[str] | None:
    """The command that runs `code` with our package; None where there is no interpreter.

    `code` finds `arguments` in `sys.argv[1:]`. `needs` are packages of others that are looked for where this process has them.
    Without `installed`, only these and the standard library can be imported, which starts faster.
    """
    if not sys.executable or getattr(sys, "frozen", False):
        return None
    packages = "\n".join(dict.fromkeys(_folders(("wieldy", *(("msgspec",) if installed else ()), *needs))))
    begin = _FIND_PACKAGES + (_FIND_INSTALLED if installed else "")
    return [sys.executable, "-I", "-S", "-c", begin + code, packages, *arguments]


def _folders(packages: tuple[str, ...]) -> Iterator[str]:
    """The folder or archive that holds each package of this process."""
    for name in packages:
        spec = find_spec(name)
        if spec is not None and spec.origin is not None:
            place = os.path.dirname(os.path.abspath(spec.origin))
            yield os.path.dirname(place) if spec.submodule_search_locations is not None else place
