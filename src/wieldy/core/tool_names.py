"""Names of tools in rules, matchers and agent files that were written for Claude Code."""

from __future__ import annotations

# Names that Claude Code gives or gave its tools → ours.
RENAMED_TOOLS = {
    "Task": "Agent",
    "KillBash": "KillShell",
    "Monitor": "Bash",
    "AskUserQuestion": "AskUser",
    "ExitPlanMode": "ExitPlan",
    "ListMcpResourcesTool": "ListMcpResources",
    "ReadMcpResourceTool": "ReadMcpResource",
}
