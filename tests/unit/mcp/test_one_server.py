"""What a server says about its tools decides nothing: names, rules, resources and sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wieldy import Toolbox
from wieldy.core.outcome import Refused

pytestmark = pytest.mark.asyncio

ANYTHING = {"type": "object"}


def entry_of(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "description": f"Does {name}.", "inputSchema": ANYTHING, **fields}


async def behaviors(box: Toolbox, *calls: tuple[str, dict[str, Any]]) -> list[str]:
    await box.connected(20)
    return [(await box.explain(name, input)).behavior for name, input in calls]


READ = ("ReadMcpResource", {"server": "s", "uri": "mem://a"})
LIST = ("ListMcpResources", {"server": "s"})
LIST_ALL: tuple[str, dict[str, Any]] = ("ListMcpResources", {})


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({}, "ask"),
        ({"deny": ["mcp__s"]}, "deny"),
        ({"deny": ["mcp__s__*"]}, "deny"),
        ({"deny": ["mcp__*"]}, "deny"),
        ({"allow": ["mcp__s"]}, "allow"),
        ({"allow": ["mcp__s__resources.read", "mcp__s__resources.list"]}, "allow"),
        ({"allow": ["mcp__s__*"]}, "allow"),
        ({"allow": ["mcp__other"]}, "ask"),
        ({"allow": ["ReadMcpResource", "ListMcpResources"]}, "allow"),
        ({"allow": ["ReadMcpResource", "ListMcpResources"], "deny": ["mcp__s"]}, "deny"),
        ({"allow": ["mcp__s"], "ask": ["mcp__s__*"]}, "ask"),
    ],
)
async def test_resources_are_judged_by_the_rules_about_their_server(stage, rules, expected):
    async with stage.box(s=stage.entry(), settings={"permissions": rules}) as box:
        assert await behaviors(box, READ, LIST, LIST_ALL) == [expected] * 3


async def test_a_resource_is_read_by_nobody_unasked_and_a_yes_reads_it(stage):
    asked: list[str] = []

    def ask(question: Any) -> bool:
        asked.append(question.plan.tool.name)
        return True

    async with stage.box(s=stage.entry(), settings={"permissions": {}}) as box:
        refused = await box.call(*READ)
        assert isinstance(refused.outcome, Refused) and refused.outcome.stage == "permission"
    async with stage.box(s=stage.entry(), settings={"permissions": {}}, ask=ask) as box:
        assert (await box.call(*READ)).text == "contents"
        assert "mem://a" in (await box.call(*LIST_ALL)).text
    assert asked == ["ReadMcpResource", "ListMcpResources"]


@pytest.mark.parametrize("mode", ["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"])
@pytest.mark.parametrize(
    "uri",
    [
        "file://ROOT/.env",
        "FILE:ROOT/.env",
        " file://localhost/ROOT/.env",
        "file://ROOT/sub/../.env",
        "file://ROOT/%2eenv",
        "file://ROOT/%252eenv",
        "file://.env",
        "file:.env",
        "file://ROOT/.env?x=1#y",
        "file:\\\\ROOT\\.env",
        "fi\tle://ROOT/.e\nnv",
        "\xa0file://ROOT/.env ",
        "file://ROOT/.env%00.txt",
        "file://ROOT/link",
    ],
)
async def test_a_file_uri_is_a_read_of_that_file(stage, uri, mode):
    (stage.folder / ".env").write_text("SECRET")
    (stage.folder / "link").symlink_to(".env")
    rules = {"deny": ["Read(.env)"], "allow": ["mcp__s", "ReadMcpResource"], "defaultMode": mode}
    async with stage.box(s=stage.entry(), settings={"permissions": rules}) as box:
        read = ("ReadMcpResource", {"server": "s", "uri": uri.replace("ROOT", str(stage.folder))})
        assert await behaviors(box, read, READ) == ["deny", "allow"]


async def test_a_read_only_hint_decides_nothing_in_plan_mode(stage):
    tools = [entry_of("look", annotations={"readOnlyHint": True}), entry_of("change")]
    for rules in ({}, {"allow": ["mcp__s__*"]}):
        settings = {"permissions": {**rules, "defaultMode": "plan"}}
        async with stage.box(s=stage.entry(tools=tools), settings=settings) as box:
            assert await behaviors(box, ("mcp__s__look", {}), ("mcp__s__change", {})) == ["deny", "deny"]
            assert not {row.tool.name for row in await box.offer() if row.offered and "mcp__" in row.tool.name}


async def test_a_tool_in_the_place_of_another_is_a_changed_tool(stage):
    old, new = [entry_of("read_file")], [entry_of("read.file")]
    async with stage.box(s=stage.entry(tools=old)) as box:
        assert not (await box.call("mcp__s__read_file", {})).is_error
    async with stage.box(s=stage.entry(tools=new)) as box:
        (behavior,) = await behaviors(box, ("mcp__s__read_file", {}))
        assert behavior == "ask"
        assert (await box.call("mcp__s__read_file", {})).is_error


async def test_of_two_tools_of_one_name_the_odd_one_is_left_out_by_name(stage):
    tools = [entry_of("read.file"), entry_of("read_file")]
    async with stage.box(s=stage.entry(tools=tools)) as box:
        await box.connected(20)
        server = box.workspace.services.mcp_servers.servers["s"]
        assert list(server.tools) == ["mcp__s__read_file"]
        assert server.quarantined["read.file"] == "another tool has its name, mcp__s__read_file"


async def test_a_projects_server_takes_no_name_from_your_own(stage):
    home = Path(stage.folder.parent / "home")
    home.mkdir(exist_ok=True)
    mine, theirs = stage.entry(tools=[entry_of("mine")]), stage.entry(tools=[entry_of("theirs")])
    (home / "settings.json").write_text(json.dumps({"mcpServers": {"my.files": mine}}))
    (stage.folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"my_files": theirs}}))
    from wieldy.policy.settings.consent import Trust

    async with Toolbox(stage.folder, load_settings=True) as box:
        Trust().accept(str(stage.folder), box.settings.pending)
    async with Toolbox(stage.folder, load_settings=True) as box:
        await box.connected(20)
        names = [name for name in box.catalog if name.startswith("mcp__")]
    assert "mcp__my_files__mine" in names
    assert any(name.endswith("__theirs") and not name.startswith("mcp__my_files__") for name in names), names


async def test_a_deep_tool_costs_the_server_that_tool_alone(stage):
    deep: Any = {}
    for _ in range(400):
        deep = {"properties": {"x": deep}}
    tools = [entry_of("deep", inputSchema={"type": "object", **deep}), entry_of("plain")]
    async with stage.box(s=stage.entry(tools=tools)) as box:
        await box.connected(20)
        server = box.workspace.services.mcp_servers.servers["s"]
        assert list(server.tools) == ["mcp__s__plain"], box.workspace.services.mcp_servers.states()
        assert "nested more than" in server.quarantined["deep"]


async def test_a_search_loads_no_more_than_a_request_may_carry(stage):
    properties = {f"p{number}": {"type": "string", "description": "d" * 1_900} for number in range(11)}
    tools = [entry_of(f"big{number}", inputSchema={"type": "object", "properties": properties}) for number in range(5)]
    async with stage.box(s=stage.entry(tools=tools), settings={"defer": "always"}) as box:
        await box.connected(20)
        await box.offering()
        server = box.workspace.services.mcp_servers
        assert server.servers["s"].tools, (server.states(), server.servers["s"].quarantined)
        found = await box.call("ToolSearch", query="big", max_results=50)
        assert 1 <= len(found.data["activated"]) <= 4, found.text[:500]
        assert "too large" in found.text
