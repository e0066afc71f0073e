"""The real command line, as a child process with a home of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    (tmp_path / "state").mkdir()
    # The choice about the sandbox is made, so that it is not offered at the start of every session.
    (tmp_path / "state/settings.json").write_text('{"sandbox": {"autoAllow": false}}')
    return {**kept, "HOME": str(tmp_path / "person"), "WIELDY_HOME": str(tmp_path / "state")}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "a project with späces"
    folder.mkdir()
    (folder / "a.py").write_text("x = 1  # TODO one\n")
    (folder / "b.txt").write_text("hello\nworld\n")
    return folder


@pytest.fixture
def wieldy(project: Path, environment: dict[str, str]) -> Run:
    def run(*args: str, input: str | None = None, env: dict[str, str] | None = None, **more: Any) -> Any:
        return subprocess.run(
            [sys.executable, "-m", "wieldy", *args],
            cwd=more.pop("cwd", project),
            env={**environment, **(env or {})},
            input=input,
            stdin=None if input is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            **more,
        )

    return run
