"""KillShell: ends a background shell and everything it started."""

from __future__ import annotations

from wieldy.core.effects import CHANGES_SHELLS
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool


@tool(
    name="KillShell",
    described_in=__file__,
    fails={"shell_id": "bash_9"},
    effects=lambda input, workspace: (CHANGES_SHELLS,),
    # It reaches only shells this workspace started itself.
    needs_permission=False,
    aliases={"bash_id": "shell_id", "task_id": "shell_id"},
)
async def kill_shell(shell_id: str, ctx: ToolContext) -> Output:

    shells = ctx.workspace.services.background_shells
    had_ended = shells.find(shell_id).status != "running"
    background = await shells.kill(shell_id)
    data = {"shellId": shell_id, "pid": background.pid, "status": background.status, "exitCode": background.exit_code}
    if had_ended:
        return Output(f"{shell_id} had already ended with exit code {background.exit_code}.", data)
    return Output(f"{shell_id} and everything it had started were ended.", data)
