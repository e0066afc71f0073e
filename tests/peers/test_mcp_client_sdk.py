"""Beside servers on the official Python SDK, in the newest revision of the protocol, and beside ports where nobody answers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from wieldy import Toolbox
from wieldy.core.decision import Answer

pytestmark = pytest.mark.peer

SCRIPT = str(Path(__file__).with_name("sdk_server.py"))
STDIO = {"command": sys.executable, "args": [SCRIPT, "stdio"]}


def box_with(root: Path, entry: dict[str, Any], ask: Any = None) -> Toolbox:
    return Toolbox(root, ask=ask, settings={"mcpServers": {"p": entry}, "permissions": {"allow": ["mcp__p__*"]}})


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


class Http:
    """The SDK's server on a port, to be started and stopped."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen([sys.executable, SCRIPT, str(self.port)])
        for _ in range(600):
            if self.process.poll() is not None:
                pytest.fail("the server could not open its port: another program has it")
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        pytest.fail("the server did not open its port")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@pytest.fixture
def http(port: int) -> Iterator[Http]:
    server = Http(port)
    server.start()
    yield server
    server.stop()


@pytest.mark.asyncio
async def test_the_newest_revision_over_stdio_with_changes_subscribed_to(tmp_path: Path):
    async with box_with(tmp_path, STDIO) as box:
        assert (await box.call("mcp__p__echo", text="hi")).text == "hi"
        connection = box.workspace.services.mcp_servers.connections["p"]
        assert connection.client.protocol_version >= "2026"
        before = [tool.name for tool in (await box.offering()).tools if not tool.name.startswith("mcp__")]
        assert (await box.call("mcp__p__grow", {})).text == "grew"
        for _ in range(500):
            if "mcp__p__grown" in box.catalog:
                break
            await asyncio.sleep(0.02)
        after = [tool.name for tool in (await box.offering()).tools]
        assert "mcp__p__grown" in after
        assert after[: len(before)] == before


@pytest.mark.asyncio
async def test_a_question_that_comes_as_a_result_is_answered_and_the_call_goes_on(tmp_path: Path):
    async with box_with(tmp_path, STDIO, ask=lambda question: Answer(True, updated_input={"colour": "red"})) as box:
        said = json.loads((await box.call("mcp__p__ask", {})).text)
        assert (said["action"], said["content"]) == ("accept", {"colour": "red"})


@pytest.mark.asyncio
async def test_streamable_http_survives_a_restart_of_the_server(tmp_path: Path, http: Http):
    url = f"http://127.0.0.1:{http.port}/mcp"
    entry = {"type": "http", "url": url, "headers": {"X-Test": "1"}, "timeout": 60_000}
    async with box_with(tmp_path, entry) as box:
        assert (await box.call("mcp__p__echo", text="one")).text == "one"
        http.stop()
        gone = await asyncio.wait_for(box.call("mcp__p__grow", {}), 20)
        assert gone.is_error
        await asyncio.to_thread(http.start)
        assert (await box.call("mcp__p__echo", text="two")).text == "two"


@pytest.mark.asyncio
async def test_thirty_three_mebibytes_arrive_over_streamable_http(tmp_path: Path, http: Http):
    async with box_with(tmp_path, {"url": f"http://127.0.0.1:{http.port}/mcp"}) as box:
        big = await box.call("mcp__p__big", {})
        assert not big.is_error, big.text[:300]
        assert len(big.text) < 100_000


@pytest.mark.asyncio
async def test_many_calls_at_once_get_their_own_answers(tmp_path: Path, http: Http):
    async with box_with(tmp_path, {"url": f"http://127.0.0.1:{http.port}/mcp"}) as box:
        await box.connected()
        results = await box.call_many([("mcp__p__echo", {"text": str(n)}) for n in range(30)])
        assert [result.text for result in results] == [str(n) for n in range(30)]


@pytest.mark.parametrize("kind", ["http", "sse"])
@pytest.mark.asyncio
async def test_a_port_that_accepts_and_stays_silent_is_given_up_in_time(tmp_path: Path, kind: str):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/mcp"
        async with box_with(tmp_path, {"type": kind, "url": url, "startupTimeout": 500}) as box:
            await asyncio.wait_for(box.connected(), 15)
            state = box.workspace.services.mcp_servers.states()["p"]
            assert "no answer within 0.5 s" in state.why


@pytest.mark.asyncio
async def test_a_port_where_nobody_listens_is_said_to_be_so(tmp_path: Path, port: int):
    async with box_with(tmp_path, {"type": "http", "url": f"http://127.0.0.1:{port}/mcp"}) as box:
        await asyncio.wait_for(box.connected(), 15)
        state = box.workspace.services.mcp_servers.states()["p"]
        assert state.name == "failed"
        assert state.why


@pytest.mark.asyncio
async def test_a_server_that_falls_silent_holds_up_neither_a_call_nor_the_end(tmp_path: Path, http: Http):
    entry = {"type": "http", "url": f"http://127.0.0.1:{http.port}/mcp", "timeout": 1000}
    started = time.monotonic()
    async with box_with(tmp_path, entry) as box:
        assert (await box.call("mcp__p__echo", text="one")).text == "one"
        assert http.process is not None
        os.kill(http.process.pid, signal.SIGSTOP)
        late = await box.call("mcp__p__grow", {})
        assert late.is_error and "did not answer within 1 s" in late.text
        closing = time.monotonic()
    assert time.monotonic() - closing < 10, "a bound, not a speed"
    assert time.monotonic() - started < 60
