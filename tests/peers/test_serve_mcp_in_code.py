"""`wieldy.serve_mcp` in a program of one's own, with the official SDK as the client."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters

import wieldy
from wieldy import Toolbox, tool
from wieldy.core.errors import SessionError

pytestmark = pytest.mark.asyncio


@tool(read_only=True)
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@tool
def launch(place: str) -> str:
    """Launch something."""
    return f"launched {place}"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))


@asynccontextmanager
async def served(root: Path, **options: Any) -> AsyncIterator[str]:
    """Serve in this process; yields the URL."""
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        wieldy.serve_mcp(
            lambda ask: Toolbox(root, tools=[double, launch], settings={}, builtins=False, ask=ask),
            http=0,
            on_ready=url.set_result,
            **options,
        )
    )
    try:
        yield await asyncio.wait_for(url, 20)
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def text(result: types.CallToolResult) -> str:
    return "".join(block.text for block in result.content if isinstance(block, types.TextContent))


async def test_own_tools_are_served_over_http_and_their_questions_reach_the_client(tmp_path):
    asked: list[str] = []

    async def elicited(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "Allow once"})

    async with served(tmp_path) as url, Client(url, elicitation_callback=elicited) as client:
        names = [each.name for each in (await client.list_tools()).tools]
        assert {"double", "launch"} <= {*names}
        assert text(await client.call_tool("double", {"number": 4})) == "8"
        assert not asked
        assert text(await client.call_tool("launch", {"place": "here"})) == "launched here"
        assert "launch" in asked[0]


def post(url: str, headers: dict[str, str]) -> int:
    body = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
    both = {"accept": "application/json, text/event-stream", "content-type": "application/json", **headers}
    try:
        with urlopen(Request(url, body, both), timeout=20) as reply:
            return int(reply.status)
    except HTTPError as error:
        with error:
            return error.code


async def test_a_token_is_checked_where_one_is_given(tmp_path):
    token = "a-token-of-enough-length"
    async with served(tmp_path, token=token) as url:
        assert await asyncio.to_thread(post, url, {}) == 401
        assert await asyncio.to_thread(post, url, {"authorization": f"Bearer {token}"}) != 401


async def test_other_machines_need_a_token(tmp_path):
    with pytest.raises(SessionError, match="other machines"):
        await wieldy.serve_mcp(lambda ask: Toolbox(tmp_path, ask=ask), http="0.0.0.0:0")
    with pytest.raises(ValueError, match="HOST:PORT"):
        await wieldy.serve_mcp(lambda ask: Toolbox(tmp_path, ask=ask), http="nonsense")


async def test_it_ends_when_it_is_told_to(tmp_path):
    stop = asyncio.Event()
    await asyncio.wait_for(
        wieldy.serve_mcp(lambda ask: Toolbox(tmp_path, ask=ask), http=0, stop=stop, on_ready=lambda url: stop.set()), 30
    )


async def test_a_program_serves_its_tools_on_stdin_and_stdout(tmp_path):
    program = tmp_path / "server.py"
    program.write_text(
        "import asyncio, wieldy\n"
        "from wieldy import Toolbox, tool\n\n"
        "@tool(read_only=True)\n"
        "def double(number: int) -> int:\n"
        '    """Double a number."""\n'
        "    return 2 * number\n\n"
        "def make(ask, host):\n"
        "    return Toolbox(tools=[double], settings={}, ask=ask, host=host)\n\n"
        "asyncio.run(wieldy.serve_mcp(make))\n"
    )
    environment = {**os.environ, "WIELDY_HOME": str(tmp_path / "home")}
    server = StdioServerParameters(command=sys.executable, args=[str(program)], cwd=tmp_path, env=environment)

    async def elicited(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="cancel")

    async with Client(server, elicitation_callback=elicited) as client:
        names = [each.name for each in (await client.list_tools()).tools]
        assert {"double", "AskUser"} <= {*names}
        assert text(await client.call_tool("double", {"number": 21})) == "42"
