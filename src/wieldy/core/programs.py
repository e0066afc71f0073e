"""Programs that we run: found where a project cannot put its own in their place, our own Python, bounded and killed."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

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
    if not path or (len(_roots) > checked and is_in_folders(path, project_folders(env, _roots[checked:]))):
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
    projects = project_folders(env, roots)
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, name)
        is_program = os.path.isabs(folder) and os.path.isfile(path) and os.access(path, os.X_OK)
        if is_program and not is_in_folders(path, projects):
            return path
    return None


def project_folders(env: Mapping[str, str], roots: Sequence[str]) -> list[str]:
    """The real paths of the roots that are projects."""
    home = os.path.realpath(env.get("HOME") or os.path.expanduser("~"))
    return [root for root in map(os.path.realpath, roots) if not is_inside(home, root)]


def is_in_folders(path: str, folders: Sequence[str]) -> bool:
    """Whether a file, its folder, or what one of them links to is in one of these real folders."""
    places = (os.path.realpath(os.path.dirname(path)), os.path.realpath(path)) if folders else ()
    return any(is_inside(place, folder) for place in places for folder in folders)


def is_inside(path: str, folder: str) -> bool:
    """Whether a path is a folder or below it, both real."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


# The standard library comes first: without -S and with -I, Python looks nowhere else before these lines run.
_FIND_PACKAGES = "import sys; sys.path += sys.argv.pop(1).split(chr(10)); "
_FIND_INSTALLED = "import site; site.main(); "


def own_python(code: str, *arguments: str, installed: bool = True, needs: tuple[str, ...] = ()) -> list[str] | None:
    """The command that runs `code` with our package, so that nothing of the current folder or of a project is imported.

    None where there is no interpreter. `code` finds `arguments` in `sys.argv[1:]`. `needs` are packages of others that are
    looked for where this process has them. Without `installed`, only these and the standard library can be imported, which
    starts faster.
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


MAX_MEMORY = 2 << 30
"""ripgrep maps no files into memory here, but reads one whole for a match over several lines."""


def kill_process(process: asyncio.subprocess.Process) -> None:
    """Send SIGKILL, also to what the program has started where it leads a process group.

    `Process.kill` polls first, which takes the exit status away from asyncio (CPython gh-127049).
    """
    if process.returncode is None:
        with suppress(ProcessLookupError):
            send = os.killpg if os.getpgid(process.pid) == process.pid else os.kill
            send(process.pid, signal.SIGKILL)


def limit_memory(pid: int) -> None:
    """Bound the memory of a program: an ignore file, say, may be a device without end."""
    with suppress(AttributeError, ImportError, OSError, ValueError):  # macOS cannot, and a stricter limit stays
        import resource

        resource.prlimit(pid, resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))


def run_limited(command: Sequence[str], cwd: str, seconds: float) -> subprocess.CompletedProcess[bytes]:
    """Run a program without input, bounded in memory and time. Raises `OSError` and `subprocess.TimeoutExpired`."""
    with subprocess.Popen(
        command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        limit_memory(process.pid)
        try:
            output, errors = process.communicate(timeout=seconds)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)
