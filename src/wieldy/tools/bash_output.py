"""BashOutput: the new output of a background shell."""

from __future__ import annotations

from typing import Annotated, Any

from wieldy.core.effects import USES_SHELLS, InTurn
from wieldy.core.schema.fields import Param
from wieldy.core.text import format_duration
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import drop_fields, tool

MAX_WAIT_SECONDS = 600
DEFAULT_BLOCK_SECONDS = 30  # of Claude Code


def _translate(input: dict[str, Any]) -> dict[str, Any]:
    """`block` with `wait_up_to` in seconds, or with `timeout` in milliseconds, is `wait`."""
    ours = drop_fields(input, "block", "wait_up_to", "timeout")
    if len(ours) == len(input) or "wait" in ours:
        return input
    seconds = input.get("wait_up_to", DEFAULT_BLOCK_SECONDS)
    if isinstance(milliseconds := input.get("timeout"), int | float):
        seconds = milliseconds / 1000
    if input.get("block", True) and isinstance(seconds, int | float):
        ours["wait"] = max(0.0, min(seconds, MAX_WAIT_SECONDS))
    return ours


@tool(
    name="BashOutput",
    described_in=__file__,
    fails={"shell_id": "bash_9"},
    translate=_translate,
    read_only=True,
    effects=lambda input, workspace: (USES_SHELLS, InTurn(input["shell_id"])),
    aliases={"bash_id": "shell_id", "task_id": "shell_id"},
    max_result_chars=100_000,
    timeout=660.0,
)
async def bash_output(
    shell_id: str,
    ctx: ToolContext,
    filter: Annotated[str, "regex; only matching lines"] = "",
    wait: Annotated[float, Param("seconds to wait for new output", ge=0, le=MAX_WAIT_SECONDS)] = 0.0,
) -> Output:

    shells = ctx.workspace.services.background_shells
    output = await shells.read_output(shell_id, filter=filter, wait=wait)
    notes = [_status(output.status, output.exit_code, output.seconds)]
    if output.omitted:
        location = f"; output is kept in {output.path}" if output.path else ""
        notes.insert(0, f"{output.omitted} earlier bytes not shown{location}")
    notes += output.notes
    text = output.text.rstrip("\n") or ("(no new matching output)" if filter else "(no new output)")
    data: dict[str, Any] = {
        "shellId": shell_id,
        "pid": shells.find(shell_id).pid,
        "status": output.status,
        "exitCode": output.exit_code,
        "output": output.text,
        "stdout": output.text,
        "bytes": output.total_bytes,
        "notices": list(output.notes),
        "persistedOutputPath": output.path,
    }
    return Output("\n".join((text, *(f"[{note}]" for note in notes))), data)


def _status(status: str, code: int | None, seconds: float) -> str:
    if status == "running":
        ended = f"; bash itself ended with exit code {code}, children of it still run" if code is not None else ""
        return f"running for {format_duration(int(seconds))}{ended}"
    return f"{status}, exit code {code}" if code is not None else status
