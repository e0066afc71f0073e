"""The MCP Inspector's command line lists and calls our tools."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.peers.mcp_npm import Node, installed

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(700)]

LAUNCHER = "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
IS_ERROR = 5
SERVE = (sys.executable, "-m", "wieldy", "mcp", "serve")


@pytest.fixture(scope="module")
def node() -> Node:
    return installed()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (folder := tmp_path / "project").mkdir()
    (folder / "a.txt").write_text("alpha\nbeta\n")
    return folder


def inspect(node: Node, project: Path, method: str, *options: str, code: int = 0) -> dict[str, Any]:
    state = f"WIELDY_HOME={project.parent / 'state'}"
    done = node.run(
        LAUNCHER, "--cli", "-e", state, *SERVE, "--root", str(project), "--method", method, *options, cwd=project
    )
    assert done.returncode == code, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_the_inspector_lists_every_tool_and_finds_no_error_in_their_schemas(node: Node, project: Path):
    listed = inspect(node, project, "tools/list", "--strict")
    names = {one["name"] for one in listed["tools"]}
    assert {"Bash", "Edit", "Glob", "Grep", "Read", "Think", "Write"} <= names
    assert all(one["annotations"]["readOnlyHint"] in (True, False) for one in listed["tools"])


def test_the_inspector_calls_tools_and_sees_what_failed(node: Node, project: Path):
    read = inspect(node, project, "tools/call", "--tool-name", "Read", "--tool-arg", f"file_path={project / 'a.txt'}")
    assert "beta" in read["content"][0]["text"]
    found = inspect(node, project, "tools/call", "--tool-name", "Grep", "--tool-arg", "pattern=beta")
    assert isinstance(found["structuredContent"], dict)
    denied = inspect(
        node, project, "tools/call", "--tool-name", "Bash", "--tool-arg", "command=rm a.txt", code=IS_ERROR
    )
    assert denied["isError"]
    assert (project / "a.txt").exists()


def test_the_inspector_connects_over_http_with_a_token(node: Node, project: Path):
    token = "a-token-of-enough-length"
    environment = {**os.environ, "WIELDY_HOME": str(project.parent / "state"), "WIELDY_MCP_TOKEN": token}
    command = [*SERVE, "--root", str(project), "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr
        try:
            url = server.stderr.readline().split()[-1]
            bearer = f"Authorization: Bearer {token}"
            called = ("--method", "tools/call", "--tool-name", "Think", "--tool-arg", "thought=x")
            done = node.run(LAUNCHER, "--cli", url, "--header", bearer, *called, cwd=project)
            assert json.loads(done.stdout)["content"][0]["text"] == "Noted."
            assert node.run(LAUNCHER, "--cli", url, *called, cwd=project).returncode != 0
        finally:
            server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 128 + signal.SIGTERM
