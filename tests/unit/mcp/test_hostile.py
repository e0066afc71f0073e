"""Servers that hang, lie, flood, die and leave children behind: bounded time, a clear word, and nothing left running."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from wieldy.engine.workspace_services import HostServices
from wieldy.mcp.connection import DISCONNECT_SECONDS


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except FileNotFoundError:
        return False


def vanished(pids: list[int], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while any(map(alive, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.asyncio
async def test_a_server_that_never_answers_fails_in_time_and_says_why(stage, states):
    async with stage.box(h=stage.entry(hang=True, startup=300, stderr=3)) as box:
        result = await box.call("mcp__h__echo", text="a")
        assert result.is_error
        state = box.workspace.services.mcp_servers.states()["h"]
        assert state.name in ("failed", "connecting")
        assert "no answer within 0.3 s (last words)" in state.why
    assert vanished(stage.pids())


@pytest.mark.asyncio
async def test_a_server_that_never_lists_its_tools_fails_in_time_and_holds_up_no_end(stage):
    async with stage.box(h=stage.entry(silent=["tools/list"], startup=300)) as box:
        await box.connected(10)
        assert "no answer within 0.3 s" in box.workspace.services.mcp_servers.states()["h"].why
    started = len(stage.pids())
    async with asyncio.timeout(8), stage.box(h=stage.entry(silent=["tools/list"])):
        while len(stage.pids()) == started:
            await asyncio.sleep(0.05)
    assert vanished(stage.pids())


@pytest.mark.asyncio
async def test_a_server_that_exits_at_once_is_failed_with_its_own_last_words(stage):
    async with stage.box(e=stage.entry(exit=True)) as box:
        await box.connected(10)
        assert "no licence" in box.workspace.services.mcp_servers.states()["e"].why


@pytest.mark.asyncio
async def test_a_late_server_is_used_as_soon_as_it_answers(stage):
    async with stage.box(s=stage.entry(delay=0.6)) as box:
        assert (await box.call("mcp__s__echo", text="late")).text == "late"


@pytest.mark.asyncio
async def test_a_death_in_mid_call_is_an_error_and_the_tools_come_back(stage):
    async with stage.box(s=stage.entry(stderr=2)) as box:
        died = await box.call("mcp__s__die", {})
        assert died.is_error
        assert "went away during the call" in died.text and "last words" in died.text
        assert (await box.call("mcp__s__echo", text="again")).text == "again"
        assert len(stage.pids()) == 2


@pytest.mark.asyncio
async def test_a_call_whose_connection_broke_is_made_once_more_only_where_the_hints_are_trusted(stage):
    async with stage.box(s=stage.entry()) as box:
        broken = await box.call("mcp__s__flaky", {})
        assert broken.is_error and "Unknown: the call may or may not have happened" in broken.text
    os.remove(f"{stage.log}.died")
    async with stage.box(s={**stage.entry(), "trustHints": True}) as box:
        assert (await box.call("mcp__s__flaky", {})).text == "came back"


@pytest.mark.asyncio
async def test_a_killed_server_is_started_again_for_the_next_call(stage, states):
    async with stage.box(s=stage.entry()) as box:
        await box.connected()
        before = box.catalog.find("mcp__s__echo")
        os.kill(stage.pids()[0], signal.SIGKILL)
        for _ in range(100):
            if states(box)["s"] != "ready":
                break
            await asyncio.sleep(0.02)
        assert (await box.call("mcp__s__echo", text="b")).text == "b"
        assert box.catalog.find("mcp__s__echo") is before


@pytest.mark.parametrize("tool", ["sleep", "nudge"])
@pytest.mark.asyncio
async def test_a_call_has_a_deadline_that_progress_does_not_move(stage, tool):
    async with stage.box(s=stage.entry(timeout=700)) as box:
        await box.connected()
        late = await asyncio.wait_for(box.call(f"mcp__s__{tool}", {}), 8)
        assert late.is_error and "did not answer within 0.7 s" in late.text


@pytest.mark.asyncio
async def test_an_interrupted_call_is_cancelled_at_the_server(stage):
    async with stage.box(s=stage.entry()) as box:
        await box.connected()
        call = asyncio.create_task(box.call("mcp__s__sleep", {}))
        while "sleeping" not in stage.words():
            await asyncio.sleep(0.01)
        box.abort()
        assert (await call).is_error
        assert (await box.call("mcp__s__echo", text="still here")).text == "still here"
        assert "cancelled" in stage.words()


@pytest.mark.asyncio
async def test_banners_on_stdout_and_a_flood_on_stderr_do_no_harm(stage):
    async with stage.box(s=stage.entry(banner=True, stderr=100_000)) as box:
        assert (await box.call("mcp__s__echo", text="fine")).text == "fine"
        connection = box.workspace.services.mcp_servers.connections["s"]
        assert len(connection.stderr.text) <= 16_384
        assert "last words" in connection.stderr.text or "(on stdout)" in connection.stderr.text


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        (
            '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"half \\ud83d of it"}]}}',
            "half \ufffd of it",
        ),
        ('{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"caf\xe9"}]}}', "caf\ufffd"),
        ('{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text"}]}}', "cannot be used"),
        ('{"jsonrpc":"2.0","id":ID,"result":7}', "malformed"),
        ('{"jsonrpc":"2.0","id":ID,"error":"no"}', "malformed"),
        ('{"jsonrpc":"2.0","id":ID}', "malformed"),
    ],
)
@pytest.mark.asyncio
async def test_a_damaged_answer_is_mended_or_is_an_error_at_once(stage, raw, wanted):
    async with stage.box(s=stage.entry(raw=raw)) as box:
        await box.connected()
        result = await asyncio.wait_for(box.call("mcp__s__raw", {}), 10)
        assert wanted in result.text
        assert "pydantic" not in result.text
        result.text.encode("utf-8")
        assert (await box.call("mcp__s__echo", text="still here")).text == "still here"


@pytest.mark.asyncio
async def test_twenty_megabytes_arrive_and_are_spilled(stage):
    async with stage.box(s=stage.entry()) as box:
        big = await box.call("mcp__s__big", {})
        assert not big.is_error
        assert len(big.text) < 100_000
        kept = max((stage.folder.parent / "home").rglob("*.txt"), key=lambda path: path.stat().st_size)
        assert kept.stat().st_size >= 20_000_000


@pytest.mark.asyncio
async def test_thirty_three_mebibytes_are_one_message(stage):
    async with stage.box(s=stage.entry(size=33 << 20)) as box:
        assert not (await box.call("mcp__s__big", {})).is_error


@pytest.mark.asyncio
async def test_bad_definitions_cost_only_themselves(stage):
    tools = [
        {"name": "good", "description": "Good.", "inputSchema": {"type": "object"}},
        {"name": "no_type", "inputSchema": {"properties": {"a": {"type": "string"}}, "required": ["a"]}},
        {"name": "missing"},
        {
            "name": "union",
            "inputSchema": {"anyOf": [{"properties": {"a": {}}, "required": ["a"]}, {"required": ["b"]}]},
        },
        {
            "name": "ref",
            "inputSchema": {"$ref": "#/$defs/T", "$defs": {"T": {"type": "object", "properties": {"a": {}}}}},
        },
        {"name": "a string", "inputSchema": {"type": "string"}},
        {"name": "elsewhere", "inputSchema": {"type": "object", "properties": {"a": {"$ref": "http://x.invalid/s"}}}},
        {"name": "x" * 90, "inputSchema": {"type": "object"}},
        {"name": "dot.ted", "description": 7, "annotations": "odd", "inputSchema": {"type": "object"}},
        {"title": "nameless"},
        "nonsense",
    ]
    async with stage.box(s=stage.entry(tools=tools)) as box:
        await box.connected()
        names = [name for name in box.catalog if name.startswith("mcp__")]
        assert {"mcp__s__good", "mcp__s__no_type", "mcp__s__missing", "mcp__s__union", "mcp__s__ref"} <= set(names)
        assert "mcp__s__dot_ted" in names
        assert all(len(name) <= 64 for name in names)
        assert len(names) == 7
        entry = box.workspace.services.mcp_servers.servers["s"]
        assert set(entry.quarantined) == {"a string", "elsewhere"}
        for name in names:
            schema = box.catalog.find(name).schema
            assert schema["type"] == "object" and isinstance(schema["properties"], dict)
            assert not {"anyOf", "oneOf", "allOf", "$ref"} & set(schema)
        assert (await box.call("mcp__s__no_type", {})).is_error
        assert not (await box.call("mcp__s__union", {"b": 1})).is_error
        assert (await box.call("mcp__s__union", {"c": 1})).is_error, "checked against what the server said"


@pytest.mark.asyncio
async def test_nothing_is_left_running_after_closing_not_even_what_hid_in_a_session_of_its_own(stage):
    async with stage.box(s=stage.entry(child=True), h=stage.entry(hang=True, child=True)) as box:
        await box.call("mcp__s__echo", text="a")
        while len(stage.pids()) < 4:
            await asyncio.sleep(0.02)
    assert vanished(stage.pids(), 1.0)


@pytest.mark.skipif(sys.platform != "linux", reason="the mark that survives an emptied environment is Linux's")
@pytest.mark.asyncio
async def test_a_daemon_that_emptied_its_environment_ends_with_its_server(stage):
    async with stage.box(s=stage.entry(daemon=True)) as box:
        assert (await box.call("mcp__s__echo", text="a")).text == "a"
        assert len(stage.pids()) == 2 and all(map(alive, stage.pids()))
    assert vanished(stage.pids(), 1.0)


def test_nothing_is_left_running_when_we_are_killed(stage, tmp_path: Path):
    script = tmp_path / "main.py"
    script.write_text(
        f"import asyncio, json\nfrom wieldy import Toolbox\nentry = {stage.entry(child=True)!r}\n"
        "async def main():\n"
        f"    async with Toolbox({str(stage.folder)!r}, settings={{'mcpServers': {{'s': entry}}}}) as box:\n"
        "        await box.connected()\n        print('ready', flush=True)\n        await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    owner = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE)
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"ready\n"
        pids = stage.pids()
        assert len(pids) == 2 and all(map(alive, pids))
    finally:
        owner.kill()
        owner.wait()
        assert owner.stdout is not None
        owner.stdout.close()
    assert vanished(pids)


def test_without_a_server_the_sdk_is_not_loaded(tmp_path: Path):
    code = (
        "import asyncio, sys\nfrom wieldy import Toolbox\n"
        f"async def main():\n    async with Toolbox({str(tmp_path)!r}, settings={{}}) as box:\n"
        "        await box.offer()\n        await box.call('LS', path='.')\nasyncio.run(main())\n"
        "print([name for name in sys.modules if name.partition('.')[0] in ('mcp', 'mcp_types', 'anyio', 'pydantic')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.asyncio
async def test_a_death_is_noticed_though_a_child_keeps_stdout_open(stage):
    async with stage.box(s=stage.entry(child=True)) as box:
        await box.connected()
        died = await asyncio.wait_for(box.call("mcp__s__die", {}), 10)
        assert "went away during the call" in died.text


@pytest.mark.parametrize("steps", range(2, 5))
@pytest.mark.asyncio
async def test_a_connection_that_cannot_be_left_in_time_is_made_anew(stage, steps):
    """The SDK cancels the task that holds a connection when its transport fails; that must not end the task for good."""
    import anyio

    async def relay(server: str, message: Mapping[str, Any]) -> Mapping[str, Any]:
        match message["method"], message.get("params", {}).get("name"):
            case "initialize", _:
                info = {"name": "r", "version": "1"}
                return {"result": {"protocolVersion": "2025-06-18", "serverInfo": info, "capabilities": {"tools": {}}}}
            case "tools/list", _:
                hints = {"inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
                return {"result": {"tools": [{"name": "stay", **hints}, {"name": "fail", **hints}]}}
            case "tools/call", "stay" if not staying.is_set():
                staying.set()
                try:
                    await anyio.sleep_forever()
                finally:
                    with anyio.CancelScope(shield=True):
                        for _ in range(steps):
                            await anyio.sleep(0)
                    time.sleep(DISCONNECT_SECONDS + 0.1)
            case "tools/call", "fail" if not failed.is_set():
                failed.set()
                raise RuntimeError("the transport fails")
            case "tools/call", name:
                return {"result": {"content": [{"type": "text", "text": f"{name} answers"}]}}
        return {"error": {"code": -32601, "message": "unknown"}}

    staying, failed = asyncio.Event(), asyncio.Event()
    async with stage.box(
        host=HostServices(mcp_relay=relay), r={"type": "sdk", "timeout": 20_000, "trustHints": True}
    ) as box:
        await box.connected()
        stay = asyncio.create_task(box.call("mcp__r__stay", {}))
        await staying.wait()
        assert (await box.call("mcp__r__fail", {})).text == "fail answers"
        assert (await stay).text == "stay answers"
