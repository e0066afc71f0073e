"""Programs around the session: the clipboard, notifications of the desktop, and the pager."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from wieldy.core.console import BELL, TerminalCommand, notify, set_clipboard, through_tmux, write
from wieldy.core.events import Event, PermissionAsked, RunEnded
from wieldy.core.programs import own_program
from wieldy.core.state_dirs import make_private_folder, state_home
from wieldy.faces.terminal.text import make_printable

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
        """The person did something."""
        self._active_at = self._clock()

    def observe(self, event: Event) -> None:
        """Follow the events of a session."""
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
