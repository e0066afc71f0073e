"""`wieldy -p` against a real server on loopback, over all wires; and what it loads to get there."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
from typing import Any

import pytest
import trustme
from tests.unit.models.wire import STREAMS, loopback, status, stream

HEAVY = {
    "httpx",
    "httpx2",
    "pydantic",
    "rich",
    "mcp",
    "prompt_toolkit",
    "anthropic",
    "openai",
    "PIL",
    "ray",
}


async def ran(args: list[str], project: Any, env: dict[str, str]) -> tuple[int, str, str]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "wieldy", *args,
        cwd=project, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(child.communicate(), 60)
    assert child.returncode is not None
    return child.returncode, out.decode(), err.decode()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("wire", "model"),
    [("anthropic", "anthropic/claude-x"), ("openai", "openai/gpt-x"), ("responses", "openai-responses/gpt-x")],
)
async def test_a_whole_turn_with_a_tool_and_a_retry(wire, model, project, environment):
    call = STREAMS[wire]([("text", "let me see"), ("call", "call_1", "Read", '{"file_path": "b.txt"}')], 3)
    busy = status(529, {"error": {"message": "busy"}}, retry_after="0")
    env = {**environment, "ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}
    async with loopback(busy, stream(call), stream(STREAMS[wire]([("text", "it says hello")]))) as server:
        args = ["-p", "look", "--model", model, "--base-url", server.url, "--output-format", "stream-json"]
        code, out, err = await ran(args, project, env)
    assert (code, err) == (0, "")
    told = [json.loads(line) for line in out.splitlines()]
    kinds = [line.get("subtype") or line["type"] for line in told]
    assert kinds == ["init", "api_retry", "assistant", "user", "assistant", "success"]
    assert told[0]["apiKeySource"] == ("ANTHROPIC_API_KEY" if wire == "anthropic" else "OPENAI_API_KEY")
    assert (told[1]["attempt"], told[1]["error_status"]) == (1, 529)
    assert told[-1]["result"] == "it says hello"
    assert told[-1]["usage"]["output_tokens"] == 84
    assert len(server.received) == 3
    assert "hello" in json.dumps(server.received[2].body)
    assert server.connections == 1


@pytest.mark.asyncio
@pytest.mark.parametrize(("code", "says"), [(401, "did not accept the key"), (404, "knows no model")])
async def test_a_refusal_is_one_line(code, says, project, environment):
    async with loopback(status(code, {"error": {"message": "no"}})) as server:
        args = ["-p", "x", "--model", "anthropic/claude-x", "--base-url", server.url]
        exit_code, out, err = await ran(args, project, {**environment, "ANTHROPIC_API_KEY": "k"})
    assert (exit_code, out) == (1, "")
    assert says in err
    assert len(err.splitlines()) == 1


@pytest.mark.asyncio
async def test_nothing_heavy_is_loaded_on_the_way_to_the_first_answer(project, environment):
    async with loopback(stream(STREAMS["anthropic"]([("text", "hi")]))) as server:
        args = ["wieldy", "-p", "x", "--model", "anthropic/claude-x", "--base-url", server.url]
        code = (
            f"import sys; sys.argv = {args!r}; from wieldy.__main__ import main; code = main();"
            "loaded = [n for n, m in sys.modules.items() if type(m).__name__ != 'Deferred'];"
            "print(*loaded, file=sys.stderr); sys.exit(code)"
        )
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code,
            cwd=project, env={**environment, "ANTHROPIC_API_KEY": "k"},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        out, err = await asyncio.wait_for(child.communicate(), 60)
    assert (child.returncode, out) == (0, b"hi\n")
    loaded = set(err.decode().split())
    assert not HEAVY & {name.partition(".")[0] for name in loaded}


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["ours", "nobody's"])
async def test_what_was_put_off_is_there_when_the_address_is_https(kind, project, environment, tmp_path):
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    trusted = {"WIELDY_CA_FILE": str(tmp_path / "ca.pem")} if kind == "ours" else {}
    async with loopback(stream(STREAMS["anthropic"]([("text", "hi")])), tls=context, host="localhost") as server:
        args = ["-p", "x", "--model", "anthropic/claude-x", "--base-url", server.url]
        code, out, err = await ran(args, project, {**environment, **trusted, "ANTHROPIC_API_KEY": "k"})
    if kind == "ours":
        assert (code, out, err) == (0, "hi\n", "")
    else:
        assert (code, out) == (1, "")
        assert "certificate was not accepted" in err
