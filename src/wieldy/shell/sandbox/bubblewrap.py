"""The arguments that make bubblewrap hold a command within bounds."""

from __future__ import annotations

import os
import shutil

from wieldy.shell.sandbox.policy import Bounds


def find_bubblewrap(path: str | None) -> str | None:
    """The bwrap of this PATH."""
    return shutil.which("bwrap", path=path)


def bubblewrap_arguments(bwrap: str, bounds: Bounds, *, own_processes: bool = True) -> list[str]:
    """Everything read-only but the bounds. `own_processes` hides all others; some containers do not permit that."""
    arguments = [bwrap, "--ro-bind", "/", "/", "--dev", "/dev"]
    arguments += ["--unshare-pid", "--proc", "/proc"] if own_processes else []
    arguments += ["--unshare-ipc", "--cap-drop", "ALL", "--die-with-parent"]
    arguments += [] if bounds.network else ["--unshare-net"]
    # A later mount covers an earlier one: what is inside another folder must come after it.
    for path in sorted(bounds.writable):
        arguments += ["--bind", path, path]
    for path in sorted(bounds.protected):
        arguments += ["--ro-bind", path, path]
    for path in sorted(bounds.unreadable):
        arguments += ["--tmpfs", path] if os.path.isdir(path) else ["--ro-bind", "/dev/null", path]
    return [*arguments, "--"]
