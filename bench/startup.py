"""How long it takes to begin: the command line and the import, beside a bare interpreter in the same run."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.claim import Claim, best_of

ROUNDS = 15


def claims() -> Iterator[Claim]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "small.txt").write_text("hello\n" * 20)
        bare = _python(folder, "-c", "pass")
        version = _python(folder, "-m", "wieldy", "--version")
        read = _python(folder, "-m", "wieldy", "call", "Read", "file_path=small.txt")
        imported = _python(folder, "-c", "import wieldy")
        nothing, said, shown, loaded = best_of(ROUNDS, bare, version, read, imported)
    bare_ms = f"bare interpreter {nothing * 1e3:.0f} ms"
    yield Claim("wieldy --version beyond a bare interpreter", (said - nothing) * 1e3, 15, " ms", bare_ms)
    yield Claim("wieldy call Read beyond a bare interpreter", (shown - nothing) * 1e3, 150, " ms", bare_ms)
    yield Claim("import wieldy beyond a bare interpreter", (loaded - nothing) * 1e3, 15, " ms", bare_ms)


def _python(folder: str, *args: str):
    env = {**os.environ, "WIELDY_HOME": f"{folder}/home"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)

    def run() -> None:
        subprocess.run([sys.executable, *args], cwd=folder, env=env, check=True, stdout=subprocess.DEVNULL)

    return run
