"""A real model for these tests: llama.cpp with 135 million parameters. `make test-model` says where to find it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.model.recorder import Recorder, recorder

PYTHON = os.environ.get("MODEL_PYTHON", "")
# Without a model there is nothing to test: `make test` leaves this folder out.
collect_ignore_glob = [] if PYTHON else ["test_*.py"]


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    process = subprocess.Popen(
        [PYTHON, str(Path(__file__).with_name("serve.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout and process.stdin
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), f"the server ended with {process.wait(10)}"
        yield address
    finally:
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


@pytest.fixture
def wire(server: str) -> Iterator[Recorder]:
    with recorder(server) as between:
        yield between


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.txt").write_text("the lantern is in the shed\n")
    (folder / "plan.md").write_text("# Plan\nbuy oil for the lantern\n")
    return folder
