"""The clipboard: text goes there by a program of the desktop or by the terminal (OSC 52), images come from there."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from wieldy.core.console import set_clipboard, through_tmux, write
from wieldy.core.programs import own_program
from wieldy.core.state_dirs import make_private_folder, state_home

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
