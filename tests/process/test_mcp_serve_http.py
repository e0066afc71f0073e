"""`wieldy mcp serve --http` as a child process: how it starts, what it keeps to itself, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from wieldy.shell.running.reaper import HAS_PROC

SERVE = [sys.executable, "-m", "wieldy", "mcp", "serve", "--mode", "bypassPermissions", "--http"]
TOKEN = "a-token-of-enough-length"
PATIENCE = 30.0

Start = Callable[..., "Served"]


class Served:
    """A server, and a session with it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr
        self.process = process
        self.url = urlsplit(process.stderr.readline().split()[-1])
        self.headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "authorization": f"Bearer {TOKEN}",
        }

    def post(self, method: str, params: dict[str, Any], request: int = 1) -> dict[str, Any]:
        web = HTTPConnection(str(self.url.hostname), self.url.port or 0, timeout=PATIENCE)
        body = json.dumps({"jsonrpc": "2.0", "id": request, "method": method, "params": params})
        try:
            web.request("POST", self.url.path, body, self.headers)
            answer = web.getresponse()
            if session := answer.getheader("mcp-session-id"):
                self.headers["mcp-session-id"] = session
            data = [line for line in answer.read().decode().splitlines() if line.startswith("data: {")]
        finally:
            web.close()
        message: dict[str, Any] = json.loads(data[-1].removeprefix("data: "))
        return message

    def shake_hands(self) -> Served:
        client = {"name": "a test", "version": "1"}
        self.post("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
        return self

    def bash(self, command: str) -> str:
        answer = self.post("tools/call", {"name": "Bash", "arguments": {"command": command}}, request=2)
        return str(answer["result"]["content"][0]["text"])


@pytest.fixture
def serve(project: Path, environment: dict[str, str]) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def start() -> Served:
        process = subprocess.Popen(
            [*SERVE, "127.0.0.1:0"],
            cwd=project,
            env={**environment, "WIELDY_MCP_TOKEN": TOKEN},
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return Served(process).shake_hands()

    yield start
    for process in started:
        process.kill()
        process.wait()
        if process.stderr:
            process.stderr.close()


def running(mark: str) -> bool:
    """Whether a process whose command line holds a mark is there."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark.encode() in Path("/proc", entry, "cmdline").read_bytes() and int(entry) != os.getpid():
                return True
        except OSError:
            continue
    return False


def wait_until(holds: Callable[[], bool], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def test_commands_are_not_told_the_token(serve: Start):
    assert serve().bash("echo ${WIELDY_MCP_TOKEN-nothing}").strip() == "nothing"


@pytest.mark.skipif(not HAS_PROC, reason="NOT TESTED: orphan processes: there is no /proc")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=str)
def test_however_the_server_ends_nothing_it_started_outlives_it(serve: Start, how: signal.Signals):
    served = serve()
    mark = f"30.{uuid.uuid4().int % 10**9}"

    def call() -> None:
        try:
            served.bash(f"(setsid sleep {mark} &); sleep {mark}")
        except (OSError, HTTPException, IndexError):
            return  # the server left in the middle, as it should

    calling = threading.Thread(target=call)
    calling.start()
    assert wait_until(lambda: running(mark))
    served.process.send_signal(how)
    assert served.process.wait(PATIENCE) == (-how if how == signal.SIGKILL else 128 + how)
    assert wait_until(lambda: not running(mark)), "a command outlived the server"
    calling.join(PATIENCE)


def test_an_address_that_is_taken_is_said_in_a_line(project: Path, environment: dict[str, str]):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run(
            [*SERVE, address, "--no-token"],
            cwd=project,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    assert done.returncode == 1
    assert done.stderr == f"wieldy: cannot listen on {address}: Address already in use\n"
