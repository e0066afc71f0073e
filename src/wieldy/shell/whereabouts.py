"""Where the next command starts: the working directory goes from call to call, but never out of the allowed folders."""

from __future__ import annotations

import os

from wieldy.core.workspace import Workspace


def starting_point(workspace: Workspace) -> str | None:
    """Make sure that the working directory exists; a notice where it had to fall back to the project root."""
    if os.path.isdir(workspace.cwd):
        return None
    gone, workspace.cwd = workspace.cwd, workspace.root
    return f"The working directory {gone} no longer exists; the command ran in {workspace.root}."


def arrive(workspace: Workspace, started_in: str, ended_in: str | None) -> str | None:
    """Move the workspace to where a command ended; a notice where that is not allowed."""
    if ended_in is None or ended_in == started_in or not os.path.isdir(ended_in):
        return None
    real = os.path.realpath(ended_in)
    if any(real == root or real.startswith(root.rstrip(os.sep) + os.sep) for root in workspace.roots):
        workspace.cwd = real
        return None
    workspace.cwd = workspace.root
    return f"The command ended in {real}, outside the allowed folders; the working directory is {workspace.root} again."
