"""The official conformance suite against our server; what does not apply is listed in the docs, exactly."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from tests.peers.mcp_npm import Node, installed

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(700)]

DOCS = Path(__file__).parents[2] / "docs" / "mcp-server.md"
SERVER = Path(__file__).with_name("mcp_conformance_server.py")
ROW = re.compile(r"^\| `(?P<scenarios>[^|]+)` \| (?P<revisions>[^|]+) \|", re.MULTILINE)
VERDICT = re.compile(
    r"^(?P<mark>[✓✗]) (?P<name>[a-z0-9-]+): (?P<passed>\d+) passed, (?P<failed>\d+) failed", re.MULTILINE
)


@pytest.fixture(scope="module")
def node() -> Node:
    return installed()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    environment = {**os.environ, "WIELDY_HOME": str(tmp_path / "state")}
    (root := tmp_path / "project").mkdir()
    process = subprocess.Popen([sys.executable, SERVER, root], env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        yield process.stdout.readline().strip()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        process.stdout.close()


def excused(revision: str) -> list[str]:
    """Patterns of the scenarios that the docs say do not apply to a revision."""
    text = DOCS.read_text(encoding="utf-8").partition("## Conformance")[2]
    return [
        name
        for row in ROW.finditer(text)
        if revision in row["revisions"]
        for name in row["scenarios"].replace("`", "").split(", ")
    ]


@pytest.mark.parametrize(
    ("package", "options", "revision"),
    [
        ("conformance", ("--suite", "all"), "2025-11-25"),
        ("conformance-next", ("--requirements", "2026-07-28"), "2026-07-28"),
    ],
)
def test_every_scenario_that_applies_passes(
    node: Node, server: str, tmp_path: Path, package: str, options: tuple[str, ...], revision: str
):
    done = node.run(f"{package}/dist/index.js", "server", "--url", server, *options, cwd=tmp_path, seconds=300)
    verdicts = {found["name"]: found["mark"] for found in VERDICT.finditer(done.stdout)}
    assert len(verdicts) > 25, f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
    patterns = excused(revision)
    failed = {name for name, mark in verdicts.items() if mark == "✗"}
    unexpected = {name for name in failed if not any(fnmatchcase(name, pattern) for pattern in patterns)}
    assert not unexpected, done.stdout[-6000:]
    needless = {pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in failed)}
    assert not needless, "these pass: take them off the list in the docs"
