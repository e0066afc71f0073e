"""The short answer about a shell command."""

from __future__ import annotations

import os
from typing import Literal

from wieldy.shell.analysis import analyse


def classify(command: str, *, cwd: str | None = None, home: str | None = None) -> Literal["read_only", "ask", "deny"]:
    """`read_only`: proven harmless. `deny`: no mode runs it. `ask`: everything else."""
    here = cwd or os.getcwd()
    analysis = analyse(command, cwd=here, home=home or os.path.expanduser("~"))
    if any(danger.behavior == "deny" for danger in analysis.catastrophic):
        return "deny"
    return "read_only" if analysis.verdict == "read_only" else "ask"
