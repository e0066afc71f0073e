"""ToolSearch through the toolbox: exact names, words, activation, and calls of tools that were never loaded."""

from __future__ import annotations

import msgspec
import pytest

from wieldy import Toolbox
from wieldy.core.tool import Tool
from wieldy.engine.services import build_toolset
from wieldy.engine.workspace_services import HostServices
from wieldy.tools.toolset.search import ToolIndex, split_words


def make(name: str, about: str, *parameters: str) -> Tool:
    schema = {
        "type": "object",
        "properties": {p: {"type": "string"} for p in parameters},
        "additionalProperties": False,
    }
    return Tool.from_schema(name, about, schema, lambda input: f"{name} ran", read_only=True, deferred=True)


SERVER = [
    make("create_issue", "Open a new issue in a repository.", "title", "body"),
    make("list_issues", "List issues.", "state"),
    make("send_mail", "Send a message to a person.", "recipient", "subject"),
]


def box_with(tmp_path, tools=SERVER, host=None, **settings) -> Toolbox:
    return Toolbox(tmp_path, tools=tools, host=host, settings=settings)


def test_names_of_any_style_are_taken_apart():
    assert list(split_words("createHTTPRequest_v2 issues")) == ["create", "http", "request", "v", "2", "issue"]


def test_the_best_fit_comes_first_and_parameters_and_beginnings_of_words_count():
    index = ToolIndex(SERVER)
    assert index.search("create issue", 5)[0].name == "create_issue"
    assert [tool.name for tool in index.search("recipient", 5)] == ["send_mail"]
    assert [tool.name for tool in index.search("repo", 5)] == ["create_issue"]
    assert index.search("zebra", 5) == []
    assert len(index.search("issue", 1)) == 1


@pytest.mark.asyncio
async def test_an_exact_selection_loads_these_tools_and_gives_their_schemas(tmp_path):
    async with box_with(tmp_path) as box:
        assert {tool.name for tool in (await box.offering()).deferred} == {tool.name for tool in SERVER}
        found = await box.call("ToolSearch", query="select:send_mail, create_issue")
        assert not found.is_error
        assert found.data["activated"] == ["send_mail", "create_issue"]
        assert '"recipient"' in found.text
        offering = await box.offering()
        assert [tool.name for tool in offering.tools][-2:] == ["send_mail", "create_issue"]
        assert [offer.name for offer in offering.definitions] == [tool.name for tool in offering.tools]
        assert offering.breaks == (len(offering.tools) - 2, len(offering.tools))


@pytest.mark.asyncio
async def test_words_load_at_most_the_number_asked_for(tmp_path):
    async with box_with(tmp_path) as box:
        found = await box.call("ToolSearch", query="issues of a repository", max_results=1)
        assert found.data["activated"] == ["create_issue"]


class NeverReady:
    """A server that is started and never ready."""

    def connecting(self) -> list[str]:
        return ["late"]

    async def wait(self, seconds: float | None = None) -> None:
        assert seconds is not None, "nobody waits for ever"


@pytest.mark.asyncio
async def test_a_search_names_the_servers_that_are_still_starting(tmp_path):
    async with box_with(tmp_path) as box:
        waiting = msgspec.structs.replace(box.services, servers=NeverReady())
        services = box.workspace.services
        services.toolset = build_toolset(box.catalog, waiting, box.workspace, services.activations)
        for query in ("select:mcp__late__go", "zebra"):
            assert "Still starting: the MCP servers late" in (await box.call("ToolSearch", query=query)).text
        assert "Still starting" not in (await box.call("ToolSearch", query="send mail")).text


@pytest.mark.asyncio
async def test_a_tool_of_a_server_that_may_be_starting_is_not_given_up(tmp_path):
    async with box_with(tmp_path) as box:
        call = box.turn()
        async with call as turn:
            turn.submit(("mcp__late__go", {}))
            (result,) = await turn.results()
        assert "ToolSearch with `select:mcp__late__go` waits for it" in result.text


@pytest.mark.asyncio
async def test_what_is_not_there_is_said_with_what_to_do(tmp_path):
    async with box_with(tmp_path) as box:
        missing = await box.call("ToolSearch", query="select:Nope")
        assert missing.is_error and "no tool named Nope" in missing.text
        assert "Try other words" in (await box.call("ToolSearch", query="zebra")).text


@pytest.mark.asyncio
async def test_a_deferred_tool_called_by_name_is_checked_runs_and_is_loaded(tmp_path):
    async with box_with(tmp_path) as box:
        await box.offering()
        wrong = await box.call("send_mail", {"to": "ann"})
        assert wrong.is_error and "to" in wrong.text
        assert "send_mail" in [tool.name for tool in (await box.offering()).tools]
        assert (await box.call("list_issues", {})).text == "list_issues ran"
        assert box.workspace.services.activations.names == ("send_mail", "list_issues")


@pytest.mark.asyncio
async def test_activations_are_told_and_can_be_given_back(tmp_path):
    told: list[tuple[str, ...]] = []
    async with box_with(tmp_path, host=HostServices(on_activated=told.append)) as box:
        await box.call("ToolSearch", query="select:send_mail")
        await box.call("ToolSearch", query="select:send_mail")
    assert told == [("send_mail",)]
    async with box_with(tmp_path) as box:
        box.workspace.services.activations.restore(told[0])
        assert [tool.name for tool in (await box.offering()).tools][-1] == "send_mail"


@pytest.mark.asyncio
async def test_a_denied_tool_cannot_be_found(tmp_path):
    async with box_with(tmp_path, permissions={"deny": ["send_mail"]}) as box:
        assert (await box.call("ToolSearch", query="select:send_mail")).is_error
        assert "send_mail" not in (await box.call("ToolSearch", query="send mail")).text


@pytest.mark.asyncio
async def test_every_tool_has_a_reason_and_never_deferring_sends_all(tmp_path):
    async with box_with(tmp_path, defer="never") as box:
        rows = {row.tool.name: row for row in await box.offer()}
        assert rows["send_mail"].reason == "available"
        assert not rows["ToolSearch"].offered
        assert "never" in rows["ToolSearch"].reason
        assert all(row.reason for row in rows.values())
    async with box_with(tmp_path) as box:
        assert {row.tool.name: row.reason for row in await box.offer()}["send_mail"].startswith("deferred")


@pytest.mark.asyncio
async def test_the_first_request_stays_under_the_budget_with_five_hundred_tools(tmp_path):
    many = [
        Tool.from_schema(f"tool_{n:03}", "Does a thing. " * 30, {"type": "object"}, lambda input: "")
        for n in range(500)
    ]
    async with Toolbox(tmp_path, tools=many, settings={}) as box:
        offering = await box.offering(200_000)
        sent = sum(len(o.name) + len(o.description) + len(str(o.input_schema)) for o in offering.definitions)
        assert (sent + len(offering.listing)) / 4 <= 20_000
        assert len(offering.deferred) == 500
