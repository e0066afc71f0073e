"""Make the terminal pictures of the documentation: run the commands and write docs/images/*.svg."""

from __future__ import annotations

import html
import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path

IMAGES = Path(__file__).parent / "images"
COLORS = {"31": "#e06c75", "32": "#98c379", "33": "#e5c07b", "34": "#61afef", "35": "#c678dd", "36": "#56b6c2"}
WIDTH, LINE, CHAR = 104, 18, 8.4
WIELDY = [sys.executable, "-m", "wieldy"]
PICTURES = {
    "demo": ("wieldy demo", [*WIELDY, "demo"], 46),
    "explain": (
        "wieldy permissions explain Bash 'git log | xargs rm'",
        [*WIELDY, "permissions", "explain", "Bash", "git log | xargs rm"],
        20,
    ),
}


def capture(command: list[str], folder: Path) -> str:
    """Run a command in a pseudo-terminal and return what it printed."""
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(WIDTH), "WIELDY_HOME": str(folder / "home")}
    child = subprocess.Popen(command, cwd=folder, env=environment, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    output = bytearray()
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:
            break
        if not chunk:
            break
        output += chunk
    child.wait()
    os.close(master)
    text = re.sub(r"/\S*/wieldy-demo-\w+", "~/demo", output.decode())
    return text.replace("\r\n", "\n")


def spans(line: str) -> list[tuple[str, str]]:
    """Split a line at its color codes into pairs of style attributes and text, cut at the width of the terminal."""
    parts, style, left = [], "", WIDTH
    for piece in re.split(r"(\x1b\[[0-9;]*m)", line):
        if match := re.fullmatch(r"\x1b\[([0-9;]*)m", piece):
            codes = match[1].split(";")
            fill = next((f' fill="{COLORS[code]}"' for code in codes if code in COLORS), "")
            style = fill + (' font-weight="bold"' if "1" in codes else "") + (' opacity="0.6"' if "2" in codes else "")
        elif piece and left > 0:
            parts.append((style, piece[:left]))
            left -= len(piece)
    return parts


def svg(title: str, text: str, most: int) -> str:
    """Draw the first lines of a terminal's text."""
    lines = [f"$ {title}", *text.rstrip().split("\n")][:most]
    rows = []
    for number, line in enumerate(lines):
        row = "".join(f"<tspan{style}>{html.escape(part)}</tspan>" for style, part in spans(line))
        rows.append(f'<text x="16" y="{28 + number * LINE}" xml:space="preserve">{row}</text>')
    width, height = int(WIDTH * CHAR) + 32, len(lines) * LINE + 28
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="#1e2127"/>\n'
        f'<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14" fill="#d7dae0">\n'
        + "\n".join(rows)
        + "\n</g>\n</svg>\n"
    )


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    for name, (title, command, most) in PICTURES.items():
        with tempfile.TemporaryDirectory() as folder:
            (IMAGES / f"{name}.svg").write_text(svg(title, capture(command, Path(folder)), most), encoding="utf-8")


if __name__ == "__main__":
    main()
