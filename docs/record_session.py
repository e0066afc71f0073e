"""Record an interactive session on a pseudo-terminal and write it as an animated docs/images/session.svg."""

from __future__ import annotations

import fcntl
import html
import json
import os
import pty
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

import pyte
import pyte.graphics

import wieldy.faces.terminal.demo

IMAGE = Path(__file__).parent / "images" / "session.svg"
COLUMNS, LINES = 96, 46
LINE, CHAR = 18, 8.43
FRAME_SECONDS = 0.25
POSTER_SECONDS = 2.0
"""The finished session is shown first: it is all that a renderer without animation or a printed page shows."""
COLORS = {
    "red": "#e06c75",
    "green": "#98c379",
    "brown": "#e5c07b",
    "blue": "#61afef",
    "magenta": "#c678dd",
    "cyan": "#56b6c2",
}
TEXT, BACKGROUND = "#d7dae0", "#1e2127"
pyte.graphics.TEXT[2] = "+blink"  # pyte knows no faint text; nothing here blinks

PROMPT = "The tests of this shop till fail. Find out why and fix it."
# What is waited for on the screen, the pause before the keys, and the keys.
STEPS = [
    ("Ask, or type", 1.0, PROMPT),
    (PROMPT[-20:], 0.6, "\r"),
    ("Run this command?", 2.0, "\x1b[B"),
    ("◂ ▸", 1.2, "\r"),
    ("Change till.py?", 2.5, "1"),
    ("Esc stops", 0.5, "Add a test for the rounding"),
    ("for the rounding", 0.6, "\r"),
    ("removes the home folder", 2.5, "2"),
    ("covers the rounding", 2.0, ""),
]


def record(folder: Path) -> list[tuple[float, list[str]]]:
    """Run the session; returns the moments at which the screen changed, and its rows as SVG."""
    root = folder / "till"
    shutil.copytree(
        Path(wieldy.faces.terminal.demo.__file__).parent / "sample", root, ignore=shutil.ignore_patterns("__pycache__")
    )
    script = json.loads((Path(wieldy.faces.terminal.demo.__file__).parent / "script.json").read_text())
    script["turns"].append([{"text": "Now a test covers the rounding, too."}])
    (folder / "script.json").write_text(json.dumps({**script, "delay": 0.03}))
    (folder / "home").mkdir()
    (folder / "home" / "settings.json").write_text('{"sandbox": {"autoAllow": false}}')  # nothing is offered
    master, child = pty.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "WIELDY_HOME": str(folder / "home"), "HOME": str(folder)}
    command = [sys.executable, "-m", "wieldy", "--model", f"script:{folder / 'script.json'}"]
    process = subprocess.Popen(command, cwd=root, env=environment, stdin=child, stdout=child, stderr=child)
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    frames: list[tuple[float, list[str]]] = []
    started = time.monotonic()

    def watch(seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([master], [], [], min(left, FRAME_SECONDS))[0]:
                stream.feed(os.read(master, 65536))
            now = time.monotonic() - started
            if screen.display[0].strip() and (not frames or now - frames[-1][0] >= FRAME_SECONDS):
                rows = [svg_row(screen, number).replace(str(folder), "~") for number in range(LINES)]
                if not frames or rows != frames[-1][1]:
                    frames.append((now, rows))

    try:
        for words, pause, keys in STEPS:
            while not any(words in row for row in screen.display):
                watch(0.1)
            watch(pause)
            for key in [keys] if keys.startswith("\x1b") else keys:
                os.write(master, key.encode())
                watch(0.04)
        watch(3.0)
        os.write(master, b"\x04")
        while process.poll() is None and select.select([master], [], [], 10)[0]:
            os.read(master, 65536)
    finally:
        process.kill()
        process.wait()
        os.close(child)
        os.close(master)
    return frames


def svg_row(screen: pyte.Screen, number: int) -> str:
    """One row as SVG text; blanks at its end are left out."""
    line = screen.buffer[number]
    cells = [line[column] for column in range(COLUMNS)]
    while cells and cells[-1].data == " " and not cells[-1].reverse:
        cells.pop()
    cursor = (
        f'<rect x="{screen.cursor.x * CHAR:.1f}" y="-13" width="8" height="16" fill="{TEXT}" opacity="0.7"/>'
        if screen.cursor.y == number
        else ""
    )
    parts: list[tuple[str, str]] = []
    boxes = ""
    for column, cell in enumerate(cells):
        color = COLORS.get(cell.fg, TEXT)
        if cell.reverse:
            boxes += f'<rect x="{column * CHAR:.1f}" y="-13" width="{CHAR + 0.3:.1f}" height="17" fill="{color}"/>'
        style = f' fill="{BACKGROUND if cell.reverse else color}"'
        style += ' font-weight="bold"' if cell.bold else ""
        style += ' font-style="italic"' if cell.italics else ""
        style += ' opacity="0.6"' if cell.blink else ""
        style += ' text-decoration="underline"' if cell.underscore else ""
        if parts and parts[-1][0] == style:
            parts[-1] = (style, parts[-1][1] + cell.data)
        else:
            parts.append((style, cell.data))
    text = "".join(f"<tspan{style}>{html.escape(part)}</tspan>" for style, part in parts)
    return f'{cursor}{boxes}<text xml:space="preserve">{text}</text>' if cells or cursor else ""


def animate(frames: list[tuple[float, list[str]]]) -> str:
    """One group per frame, shown in turn, the last one also at the start; equal rows are defined once."""
    frames = [(start - frames[0][0] + POSTER_SECONDS, rows) for start, rows in frames]
    total = frames[-1][0] + 5
    ids: dict[str, str] = {}
    for _, rows in frames:
        for row in rows:
            if row:
                ids.setdefault(row, f"r{len(ids)}")
    width, height = int(COLUMNS * CHAR) + 32, LINES * LINE + 28
    style, groups = [], []
    for number, (start, rows) in enumerate(frames):
        end = frames[number + 1][0] if number + 1 < len(frames) else total
        begin, stop = start / total * 100, end / total * 100
        is_last = number == len(frames) - 1
        first = f"0%{{opacity:1}}{POSTER_SECONDS / total * 100:.2f}%{{opacity:0}}" if is_last else "0%{opacity:0}"
        style.append(
            f"@keyframes f{number}{{{first}{begin:.2f}%{{opacity:1}}{stop:.2f}%{{opacity:{int(is_last)}}}}}"
            f"#f{number}{{animation:f{number} {total:.1f}s step-end infinite}}"
        )
        uses = "".join(f'<use href="#{ids[row]}" y="{28 + line * LINE}"/>' for line, row in enumerate(rows) if row)
        groups.append(f'<g id="f{number}" opacity="{int(is_last)}">{uses}</g>')
    definitions = "\n".join(f'<g id="{name}">{row}</g>' for row, name in ids.items())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">\n'
        f"<style>{''.join(style)}@media (prefers-reduced-motion:reduce){{g{{animation:none!important}}}}</style>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>\n'
        f'<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14" fill="{TEXT}">\n'
        f'<defs>\n{definitions}\n</defs>\n<g transform="translate(16 0)">\n'
        + "\n".join(groups)
        + "\n</g>\n</g>\n</svg>\n"
    )


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="wieldy-") as folder:
        IMAGE.write_text(animate(record(Path(folder))), encoding="utf-8")


if __name__ == "__main__":
    main()
