"""Images come from the clipboard by a program of the desktop; where that cannot work, a line says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from wieldy.faces.terminal.desktop import copy_text, paste_image

pytestmark = pytest.mark.asyncio


def program(folder: Path, name: str, body: str) -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin", "WAYLAND_DISPLAY": "wayland-0", "WIELDY_HOME": f"{folder}/home"}


async def test_an_image_is_saved_and_its_path_returned(tmp_path: Path) -> None:
    env = program(tmp_path / "bin", "wl-paste", "printf '\\211PNG\\r\\n'")
    path = await paste_image(tmp_path / "images", env)
    assert isinstance(path, Path)
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("body", "why"), [("exit 1", "no image"), ("echo text", "no image"), ("exec sleep 60", "no image")]
)
async def test_what_is_no_image_is_said(tmp_path: Path, body: str, why: str) -> None:
    env = program(tmp_path / "bin", "wl-paste", body)
    assert why in str(await paste_image(tmp_path / "images", env, seconds=0.5))


async def test_over_ssh_and_without_a_program_it_says_what_to_do(tmp_path: Path) -> None:
    assert "over ssh" in str(await paste_image(tmp_path, {"SSH_TTY": "x"}))
    assert "wl-paste, xclip or pngpaste" in str(await paste_image(tmp_path, {"PATH": str(tmp_path)}))


async def test_text_goes_to_the_program_of_the_desktop(tmp_path: Path) -> None:
    env = program(tmp_path / "bin", "wl-copy", f"cat > {tmp_path}/copied; (sleep 2 &) ")
    assert await copy_text("größe\n", "the last answer", env) == "copied the last answer (6 characters)"
    assert (tmp_path / "copied").read_text() == "größe\n"
