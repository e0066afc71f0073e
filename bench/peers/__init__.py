"""Other frameworks, each in a virtual environment of its own, made when a bench first needs it."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / ".venv-peers"


def run_peer(name: str, requirements: tuple[str, ...], *args: str) -> dict[str, Any]:
    """What `bench/peers/<name>.py` prints (one JSON object), run where the peer is installed."""
    home = FOLDER / name
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
        subprocess.run(
            [
                python,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--prefer-binary",
                *requirements,
            ],
            check=True,
            stdout=sys.stderr,
        )
    done = subprocess.run([python, HERE / f"{name}.py", *args], capture_output=True, text=True, check=True, timeout=300)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
