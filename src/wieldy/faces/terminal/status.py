"""The status line: mode, model, context, cost and background work, or what the `statusLine` command of the settings prints.

The command gets the state of the session as JSON on stdin, with the fields that scripts for Claude Code read.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from wieldy.core.events import Event, ModelAnswered, RunEnded, ToolEnded
from wieldy.core.text import plural
from wieldy.core.threads import in_thread
from wieldy.faces.terminal.text import Row, TextSpan, clip_row, make_printable

if TYPE_CHECKING:
    from wieldy.agent.session import Session

MODE_STYLES = {"acceptEdits": "magenta", "plan": "blue", "bypassPermissions": "red bold", "dontAsk": "yellow"}
MODE_LABELS = {"acceptEdits": "accept edits", "bypassPermissions": "bypass permissions", "dontAsk": "don't ask"}
INTERVAL_SECONDS = 0.3
TIMEOUT_SECONDS = 5.0
MAX_BYTES = 10_000
_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)")


class Status(Struct, frozen=True):
    """What the status line says. `context` is the part of the window in use; `line` replaces everything but the mode."""

    mode: str
    model: str = ""
    context: float | None = None
    cost: float = 0.0
    shells: int = 0
    line: str = ""


def status_row(status: Status, hint: str, width: int) -> Row:
    """Lay out the status line; `hint` says which key matters now."""
    spans: list[TextSpan] = [
        TextSpan("  "),
        TextSpan(MODE_LABELS.get(status.mode, status.mode), MODE_STYLES.get(status.mode, "dim")),
    ]
    if status.line:
        parts = [make_printable(status.line).replace("\n", " ")]
    else:
        parts = [make_printable(status.model)] if status.model else []
        if status.context is not None:
            parts.append(f"{status.context * 100:.0f} % context")
        if status.cost:
            parts.append(f"${status.cost:.2f}" if status.cost >= 0.1 else f"${status.cost:.4f}")
        if status.shells:
            parts.append(plural(status.shells, "shell"))
    parts += [hint] if hint else []
    spans += [TextSpan(f" · {part}", "dim") for part in parts]
    return clip_row(tuple(spans), max(width - 1, 10))


class StatusCommand:
    """Runs the command after changes, at most one at a time and about three times a second. `line` is its last line."""

    def __init__(self, session: Callable[[], Session], on_change: Callable[[], None]) -> None:
        self._session = session
        self._on_change = on_change
        self._started = time.monotonic()
        self._model_seconds = 0.0
        self._added = self._removed = 0
        self._task: asyncio.Task[None] | None = None
        self._is_stale = False
        self.line = ""

    @property
    def command(self) -> str:
        """The configured command, or an empty text."""
        setting = self._session().box.workspace.setting("statusLine")
        if not isinstance(setting, Mapping) or setting.get("type", "command") != "command":
            return ""
        return str(setting.get("command") or "")

    def observe(self, event: Event) -> None:
        """Count, and run the command after an answer, a call or the end of a run."""
        match event:
            case ModelAnswered():
                self._model_seconds += event.seconds
            case ToolEnded():
                self._count_lines(event.result.data)
            case RunEnded():
                pass
            case _:
                return
        self.refresh()

    def refresh(self) -> None:
        """Run the command soon."""
        if not self.command:
            return
        self._is_stale = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def aclose(self) -> None:
        """Stop a command that runs."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while self._is_stale:
            self._is_stale = False
            line = await run_status_command(self.command, self.describe(), self._session().box.workspace)
            if line != self.line:
                self.line = line
                self._on_change()
            await asyncio.sleep(INTERVAL_SECONDS)

    def _count_lines(self, data: Any) -> None:
        hunks = data.get("structuredPatch") if isinstance(data, Mapping) else None
        for hunk in hunks if isinstance(hunks, list | tuple) else ():
            lines = hunk.get("lines", ()) if isinstance(hunk, Mapping) else ()
            self._added += sum(line.startswith("+") for line in lines)
            self._removed += sum(line.startswith("-") for line in lines)

    def describe(self) -> dict[str, Any]:
        """The state of the session as scripts for Claude Code expect it."""
        from wieldy import __version__

        session = self._session()
        workspace, conversation = session.box.workspace, session.conversation
        transcript = session.transcript.path
        model = session.model_name
        window, used = 0, conversation.tokens
        with contextlib.suppress(Exception):  # there is no model
            window = session.provider.context_window
        percentage = round(used / window * 100) if window else 0
        return {
            "hook_event_name": "Status",
            "session_id": session.id,
            "transcript_path": str(transcript) if transcript is not None else "",
            "cwd": str(workspace.cwd),
            "model": {"id": model, "display_name": model.rpartition("/")[2] or model},
            "workspace": {"current_dir": str(workspace.cwd), "project_dir": workspace.project_root},
            "version": __version__,
            "output_style": {"name": "default"},
            "permission_mode": session.mode,
            "cost": {
                "total_cost_usd": conversation.cost,
                "total_duration_ms": round((time.monotonic() - self._started) * 1000),
                "total_api_duration_ms": round(self._model_seconds * 1000),
                "total_lines_added": self._added,
                "total_lines_removed": self._removed,
            },
            "context_window": {
                "total_input_tokens": used,
                "context_window_size": window,
                "used_percentage": percentage,
                "remaining_percentage": 100 - percentage,
            },
            "exceeds_200k_tokens": used > 200_000,
        }


async def run_status_command(command: str, state: Mapping[str, Any], workspace: Any) -> str:
    """Run the command and return the first line that it prints, without colors; a failure is said in the line."""
    commands = workspace.commands
    if commands is not None and (problem := await in_thread(commands.problem, "statusLine", command)):
        return f"statusLine: {problem}"
    try:
        process = await asyncio.create_subprocess_exec(
            *("bash", "-c", command),
            cwd=workspace.project_root,
            env=dict(workspace.env),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        return f"statusLine: {error.strerror}"
    try:
        output, _ = await asyncio.wait_for(process.communicate(json.dumps(state).encode()), TIMEOUT_SECONDS)
    except TimeoutError:
        return f"statusLine: no answer within {TIMEOUT_SECONDS:g} s"
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    text = _ESCAPE_SEQUENCE.sub("", output[:MAX_BYTES].decode("utf-8", "replace"))
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line or (f"statusLine: exit code {process.returncode}" if process.returncode else "")
