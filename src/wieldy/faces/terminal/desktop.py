"""Programs around the session: the clipboard, notifications of the desktop, the pager, and the status line with its command."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from wieldy.core.console import BELL, TerminalCommand, notify, set_clipboard, through_tmux, write
from wieldy.core.errors import SessionError
from wieldy.core.events import Event, ModelAnswered, PermissionAsked, RunEnded, ToolEnded
from wieldy.core.programs import own_program
from wieldy.core.state_dirs import make_private_folder, state_home
from wieldy.core.text import format_cost, plural
from wieldy.core.threads import in_thread
from wieldy.faces.terminal.text import Row, TextSpan, clip_row, make_printable

if TYPE_CHECKING:
    from wieldy.agent.session import Session
    from wieldy.shell.running.background import BackgroundShell

COPY_PROGRAMS = (
    ("WAYLAND_DISPLAY", ("wl-copy",)),
    ("DISPLAY", ("xclip", "-selection", "clipboard")),
    ("DISPLAY", ("xsel", "--clipboard", "--input")),
    ("", ("pbcopy",)),
    ("WSL_DISTRO_NAME", ("clip.exe",)),
)
PASTE_IMAGE_PROGRAMS = (
    ("WAYLAND_DISPLAY", ("wl-paste", "--type", "image/png")),
    ("DISPLAY", ("xclip", "-selection", "clipboard", "-target", "image/png", "-out")),
    ("", ("pngpaste", "-")),
)
WITHOUT_OSC_52 = frozenset({"linux", "dumb", "vt100", "vt220", ""})
SECONDS = 3.0
MAX_IMAGE_BYTES = 30 << 20


async def copy_text(text: str, what: str, env: Mapping[str, str] = os.environ) -> str:
    """Copy a text and return a line that says how. Where no way is known, it is written to a file."""
    size = f"{len(text):,} characters"
    program = None if is_remote(env) else _find(COPY_PROGRAMS, env)
    if program is not None and await _run(program, text.encode("utf-8", "replace"), env) is not None:
        return f"copied {what} ({size})"
    command = set_clipboard(text) if env.get("TERM", "") not in WITHOUT_OSC_52 else None
    if command is not None:
        write(through_tmux(command) if env.get("TMUX") else command, end="", flush=True)
        return f"sent {what} ({size}) to the clipboard of the terminal; where that is switched off, use /export"
    folder = state_home(env) / "copies"
    make_private_folder(folder)
    descriptor, name = tempfile.mkstemp(".md", time.strftime("%Y%m%d-%H%M%S-"), folder)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
    return f"this terminal has no clipboard; {what} ({size}) is in {name}"


async def paste_image(folder: Path, env: Mapping[str, str] = os.environ, seconds: float = SECONDS) -> Path | str:
    """Save the image on the clipboard and return its path; or a line that says why there is none."""
    if is_remote(env):
        return "over ssh the clipboard of your machine cannot be read; copy the image here and name its path"
    program = _find(PASTE_IMAGE_PROGRAMS, env)
    if program is None:
        return "no program reads images from the clipboard here (wl-paste, xclip or pngpaste); name the path of a file"
    data = await _run(program, b"", env, seconds, reads=True)
    if not data or not data.startswith(b"\x89PNG") or len(data) > MAX_IMAGE_BYTES:
        return "there is no image on the clipboard"
    make_private_folder(folder)
    path = folder / f"clipboard-{time.strftime('%H%M%S')}.png"
    path.write_bytes(data)
    return path


def is_remote(env: Mapping[str, str]) -> bool:
    """Whether the terminal is on another machine, whose clipboard programs here do not reach."""
    return bool(env.get("SSH_CONNECTION") or env.get("SSH_TTY"))


def _find(programs: tuple[tuple[str, tuple[str, ...]], ...], env: Mapping[str, str]) -> tuple[str, ...] | None:
    for variable, program in programs:
        if not variable or env.get(variable):
            with contextlib.suppress(FileNotFoundError):
                return (own_program(program[0], env), *program[1:])
    return None


async def _run(
    program: tuple[str, ...], data: bytes, env: Mapping[str, str], seconds: float = SECONDS, *, reads: bool = False
) -> bytes | None:
    """Run a program; return its output if `reads`, None where it fails or takes too long."""
    try:
        process = await asyncio.create_subprocess_exec(
            *program,
            env=dict(env),
            stdin=asyncio.subprocess.PIPE,
            # A copy program may leave a process behind that would keep a pipe open.
            stdout=asyncio.subprocess.PIPE if reads else asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return None
    try:
        output, _ = await asyncio.wait_for(process.communicate(data), seconds)
    except TimeoutError:
        process.kill()
        await process.wait()
        return None
    return (output or b"") if process.returncode == 0 else None


QUIET_SECONDS = 10.0
_OSC_9_PROGRAMS = frozenset({"iTerm.app", "WezTerm", "ghostty"})


class TurnNotifier:
    """Notifies when a run ends or asks, more than ten seconds after the person last did something."""

    def __init__(
        self,
        channel: Callable[[], str],
        env: Mapping[str, str] = os.environ,
        *,
        clock: Callable[[], float] = time.monotonic,
        send: Callable[[Sequence[TerminalCommand]], None] | None = None,
    ) -> None:
        self._channel = channel  # the setting `notifications`
        self._env = env
        self._clock = clock
        self._send = send or _write_commands
        self._active_at = clock()

    def on_activity(self) -> None:
        self._active_at = self._clock()

    def observe(self, event: Event) -> None:
        if isinstance(event, RunEnded):
            self._notify("stopped" if event.is_error else "done")
        elif isinstance(event, PermissionAsked):
            self._notify(f"may {event.name} run?")

    def _notify(self, text: str) -> None:
        channel = self._channel()
        if channel == "off" or self._clock() - self._active_at < QUIET_SECONDS:
            return
        self.on_activity()  # one notification is enough until the person answers or time has passed again
        self._send(notification(text, self._env) if channel == "auto" else [BELL])


def notification(text: str, env: Mapping[str, str]) -> list[TerminalCommand]:
    """What to write: a bell, and a desktop notification where the terminal is known."""
    protocol = _protocol(env)
    if protocol is None:
        return [BELL]
    command = notify("wieldy", text, protocol=protocol)
    return [BELL, through_tmux(command) if env.get("TMUX") else command]


def _protocol(env: Mapping[str, str]) -> Literal["osc9", "osc777"] | None:
    term = env.get("TERM", "")
    if env.get("TERM_PROGRAM") in _OSC_9_PROGRAMS or env.get("LC_TERMINAL") == "iTerm2" or term == "xterm-kitty":
        return "osc9"
    return "osc777" if term.startswith(("foot", "rxvt")) or env.get("VTE_VERSION") else None


def _write_commands(commands: Sequence[TerminalCommand]) -> None:
    write(*commands, end="", flush=True)


async def show_in_pager(text: str) -> None:
    """Run `$PAGER`, else less or more, with the text; printed where there is none."""
    try:
        words = shlex.split(os.environ.get("PAGER", "")) or ["less"]
    except ValueError:  # a quote that is never closed
        words = ["less"]
    program, arguments = _find_pager(words)
    printable = make_printable(text)
    if program is None:
        write(printable)
        return
    env = {**os.environ, "LESS": os.environ.get("LESS", "-RS"), "LESSSECURE": "1"}
    process = await asyncio.create_subprocess_exec(program, *arguments, stdin=asyncio.subprocess.PIPE, env=env)
    await process.communicate(printable.encode(errors="replace"))


def _find_pager(words: list[str]) -> tuple[str | None, list[str]]:
    """The program to run and its arguments; not one of the project."""
    for candidate in (words, ["less"], ["more"]):
        with contextlib.suppress(FileNotFoundError):
            return own_program(candidate[0]), candidate[1:]
    return None, []


MODE_STYLES = {"acceptEdits": "magenta", "plan": "blue", "bypassPermissions": "red bold", "dontAsk": "yellow"}
MODE_LABELS = {"acceptEdits": "accept edits", "bypassPermissions": "bypass permissions", "dontAsk": "don't ask"}
INTERVAL_SECONDS = 0.3
TIMEOUT_SECONDS = 5.0
MAX_CHARS = 10_000
_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)")


def status_row(session: Session, line: str, hint: str, width: int) -> Row:
    """Lay out the status line. `line` replaces everything but the mode; `hint` says which key matters now."""
    mode = session.box.policy.mode
    parts = [make_printable(line).replace("\n", " ")] if line else list(_describe_session(session))
    spans = [TextSpan("  "), TextSpan(MODE_LABELS.get(mode, mode), MODE_STYLES.get(mode, "dim"))]
    spans += [TextSpan(f" · {part}", "dim") for part in (*parts, *([hint] if hint else []))]
    return clip_row(tuple(spans), max(width - 1, 10))


def _describe_session(session: Session) -> Iterator[str]:
    """The model, the part of its context window in use, the cost, and what runs in the background."""
    conversation = session.conversation
    try:
        window = session.provider.context_window
    except SessionError:
        yield "no model"
    else:
        yield make_printable(session.model_name.rpartition("/")[2])
        if conversation.tokens:
            yield f"{conversation.tokens / window * 100:.0f} % context"
    if cost := conversation.cost:
        yield format_cost(cost, len(conversation.unpriced), digits=2 if cost >= 0.1 else 4)
    if shells := running_shells(session):
        yield plural(len(shells), "shell")


def running_shells(session: Session) -> list[BackgroundShell]:
    shells = session.box.workspace.services.background_shells.all()
    return [shell for shell in shells if not shell.finished.done()]


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
        if not self.command:
            return
        self._is_stale = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def aclose(self) -> None:
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
    from wieldy.shell.running.program_output import run_for_output

    commands = workspace.commands
    if commands is not None and (problem := await in_thread(commands.problem, "statusLine", command)):
        return f"statusLine: {problem}"
    output = await run_for_output(
        ("bash", "-c", command),
        json.dumps(state).encode(),
        cwd=workspace.project_root,
        env=workspace.env,
        tag="WIELDY_STATUS_LINE",
        seconds=TIMEOUT_SECONDS,
    )
    if output.failure:
        return f"statusLine: {output.failure}"
    lines = _ESCAPE_SEQUENCE.sub("", output.stdout[:MAX_CHARS]).splitlines()
    line = next((line.strip() for line in lines if line.strip()), "")
    return line or (f"statusLine: exit code {output.exit_code}" if output.exit_code else "")
