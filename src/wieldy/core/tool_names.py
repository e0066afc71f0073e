"""Names of tools: which are valid, and those that rules, matchers and agent files written for Claude Code use."""

from __future__ import annotations

import re

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

# Names that Claude Code gives or gave its tools → ours.
RENAMED_TOOLS = {
    "Task": "Agent",
    "KillBash": "KillShell",
    "TaskOutput": "BashOutput",
    "TaskStop": "KillShell",
    "Monitor": "Bash",
    "AskUserQuestion": "AskUser",
    "ExitPlanMode": "ExitPlan",
    "ListMcpResourcesTool": "ListMcpResources",
    "ReadMcpResourceTool": "ReadMcpResource",
}


def name_problem(name: object) -> str | None:
    """Why no model could call a tool of this name, or None."""
    if isinstance(name, str) and NAME.fullmatch(name):
        return None
    if name == "":
        return "a tool needs a name: 1 to 64 letters, digits, `_` or `-`"
    return f"`{name}` is not a tool name: use 1 to 64 letters, digits, `_` or `-`"
