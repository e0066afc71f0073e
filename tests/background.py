"""Starts commands in the background, as Bash does."""

from __future__ import annotations

from wieldy.core.workspace import Workspace
from wieldy.shell.running.background import BackgroundShell


def start_in_background(workspace: Workspace, command: str) -> BackgroundShell:
    shells = workspace.services.background_shells
    shells.require_room()
    return shells.adopt(workspace.services.shells.start(command, cwd=workspace.cwd), command)
