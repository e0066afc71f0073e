"""Which tools a model is offered, in which order, and how others are found."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
import pytest

from wieldy import RateLimited, Tool, Toolbox
from wieldy.core.catalog import ask_enabled
from wieldy.core.supervise import Abort, Supervisor
from wieldy.engine.services import build_toolset
from wieldy.engine.workspace_services import HostServices
from wieldy.tools.toolset import (
    LISTING_HEADER,
    MAX_LISTING_CHARS,
    OfferContext,
    ToolIndex,
    check_availability,
    estimate_tokens,
    feature_gate,
    is_feature_enabled,
    list_deferred,
    order_tools,
    split_words,
    token_budget,
)


def make(name: str, **declared: object) -> Tool:
    return Tool.from_schema(name, f"Does {name}.", {"type": "object", "properties": {}}, lambda input: "", **declared)


async def itself(tool: Tool) -> str | None:
    return await ask_enabled(tool, None, Supervisor(), Abort())  # type: ignore[arg-type]


async def reasons(
    tools: list[Tool],
    context: OfferContext | None = None,
    removes: Callable[[str], object | None] = lambda name: None,
    disabled: Callable[[Tool], Awaitable[str | None]] = itself,
) -> dict[str, tuple[bool, str]]:
    rows = await check_availability(
        tools, context or OfferContext(), gate=lambda name: None, removes=removes, disabled=disabled
    )
    return {row.tool.name: (row.offered, row.reason) for row in rows}


@pytest.mark.asyncio
async def test_simple_mode_has_three_tools_and_says_so():
    found = await reasons([make("Bash"), make("Edit"), make("Grep"), make("Read")], OfferContext(simple=True))
    assert [name for name, (offered, _) in found.items() if offered] == ["Bash", "Edit", "Read"]
    assert "Bash, Edit, Read" in found["Grep"][1]


@pytest.mark.asyncio
async def test_plan_mode_offers_what_only_reads():
    found = await reasons([make("Look", read_only=True), make("Change")], OfferContext(mode="plan"))
    assert found["Look"][0] and not found["Change"][0]
    assert "plan mode" in found["Change"][1]


@pytest.mark.asyncio
async def test_a_list_of_names_and_patterns_is_all_that_a_sub_agent_gets():
    tools = [make("Read"), make("Write"), make("mcp__git__log"), make("mcp__web__get")]
    found = await reasons(tools, OfferContext(only=("Read", "mcp__git__*")))
    assert {name for name, (offered, _) in found.items() if offered} == {"Read", "mcp__git__log"}


@pytest.mark.asyncio
async def test_a_bare_deny_rule_takes_a_tool_away_and_is_the_reason():
    found = await reasons([make("Write")], removes=lambda name: "deny: rule `Write`")
    assert found["Write"] == (False, "deny: rule `Write`")


@pytest.mark.asyncio
async def test_self_checks_run_side_by_side_and_one_that_fails_loses_only_its_own_tool():
    both = asyncio.Barrier(2)

    async def meets(workspace):
        await both.wait()
        return True

    async def breaks(workspace):
        raise OSError("no display")

    tools = [make("One", enabled=meets), make("Two", enabled=meets), make("Three", enabled=breaks)]
    tools.append(make("Four", enabled=lambda workspace: "needs a key"))
    found = await asyncio.wait_for(reasons(tools), 5)
    assert found["One"][0] and found["Two"][0]
    assert found["Three"] == (False, "its self-check failed: no display")
    assert found["Four"] == (False, "needs a key")


@pytest.mark.asyncio
async def test_tools_without_a_self_check_are_not_asked():
    async def never(tool):
        raise AssertionError(tool.name)

    assert (await reasons([make("Read")], disabled=never))["Read"] == (True, "available")


def test_features_are_off_until_switched_on_and_the_environment_has_the_last_word():
    assert "features.memory" in str(feature_gate("MemoryRead", {}, {}))
    assert feature_gate("MemoryRead", {"features": {"memory": True}}, {}) is None
    assert feature_gate("MemoryRead", {}, {"WIELDY_FEATURE_MEMORY": "1"}) is None
    assert feature_gate("MemoryRead", {"features": {"memory": True}}, {"WIELDY_FEATURE_MEMORY": "0"}) is not None
    assert feature_gate("Read", {}, {}) is None
    assert "features.browser" in str(feature_gate("BrowserClick", {}, {}))
    assert feature_gate("BrowserClick", {"features": {"browser": True}}, {}) is None
    assert not is_feature_enabled("browser", {"features": {"browser": "yes"}}, {})


@pytest.mark.asyncio
async def test_what_is_off_by_name_is_looked_at_only_by_whoever_asks_for_every_tool(tmp_path):
    async with Toolbox(tmp_path, settings={}) as box:
        looked_at = {row.tool.name for row in (await box.offering()).availability}
        every = {row.tool.name: row.reason for row in await box.offer()}
    off = {"Architect", "BrowserClick", "MemoryRead", "StickerRequest", "ExitPlan"}
    assert not off & looked_at
    assert "Read" in looked_at
    assert off <= every.keys()
    assert every["ExitPlan"] == "only for plan mode"
    assert "features.browser" in every["BrowserClick"]


PLENTY = 10**9


def sized(name: str, chars: int = 0, **declared: object) -> Tool:
    return Tool.from_schema(name, "d" * chars or "d", {"type": "object"}, lambda input: "", **declared)


def names(tools) -> list[str]:
    return [tool.name for tool in tools]


def test_our_own_come_first_then_those_of_servers_each_sorted_and_broken_between():
    found = order_tools([sized("mcp__b__x"), sized("Write"), sized("mcp__a__z"), sized("Read")], tokens=PLENTY)
    assert names(found.tools) == ["Read", "Write", "mcp__a__z", "mcp__b__x"]
    assert found.breaks == (2, 4)
    assert not found.deferred


def test_of_two_tools_of_one_name_the_first_wins():
    first, second = sized("Read"), sized("Read")
    assert order_tools([first, second], tokens=PLENTY).tools == (first,)


def test_nothing_to_send_has_no_breaks():
    assert order_tools([], tokens=PLENTY).breaks == ()


def test_over_the_budget_servers_tools_are_deferred_and_our_own_are_not():
    found = order_tools(
        [sized("Read"), *(sized(f"mcp__s__t{n}", 400) for n in range(10))], builtin={"Read"}, tokens=300
    )
    assert names(found.tools) == ["Read"]
    assert len(found.deferred) == 10
    assert sum(map(estimate_tokens, found.tools)) <= 300


def test_tools_that_were_added_are_deferred_where_our_own_alone_are_too_heavy():
    tools = [sized("Read"), *(sized(f"mine{n:03}", 400) for n in range(500))]
    found = order_tools(tools, builtin={"Read"}, tokens=token_budget(200_000))
    assert names(found.tools) == ["Read"]
    assert len(found.deferred) == 500


def test_activated_tools_come_last_in_the_order_of_their_activation():
    tools = [sized("Read"), *(sized(f"mcp__s__t{n}") for n in range(4))]
    found = order_tools(tools, defer="always", tokens=PLENTY, activated=("mcp__s__t3", "gone", "mcp__s__t1"))
    assert names(found.tools) == ["Read", "mcp__s__t3", "mcp__s__t1"]
    assert found.breaks == (1, 3)
    assert names(found.deferred) == ["mcp__s__t0", "mcp__s__t2"]


def test_never_sends_all_and_always_defers_what_may_be_but_not_what_must_be_there():
    loaded = sized("mcp__s__must")
    loaded.always_load = True  # type: ignore[attr-defined]
    tools = [sized("Read"), sized("Rare", deferred=True), sized("mcp__s__may"), loaded]
    assert not order_tools(tools, defer="never", tokens=0).deferred
    found = order_tools(tools, defer="always", tokens=PLENTY)
    assert names(found.tools) == ["Read", "mcp__s__must"]


def test_a_tool_declared_as_deferred_is_named_only_even_where_there_is_room():
    assert names(order_tools([sized("Rare", deferred=True)], tokens=PLENTY).deferred) == ["Rare"]


def test_the_list_of_names_does_not_grow_with_the_number_of_tools():
    many = [sized(f"mcp__server{n % 7}__a_tool_with_a_long_name_{n}") for n in range(5_000)]
    text = list_deferred(many)
    assert len(text) <= MAX_LISTING_CHARS + len(LISTING_HEADER) + 200
    assert "mcp__server3: " in text
    few = list_deferred(many[:8])
    assert all(tool.name in few for tool in many[:8])
    assert list_deferred([]) == ""
    assert (
        len(list_deferred([sized(f"mcp__server{n}__tool") for n in range(5_000)]))
        <= MAX_LISTING_CHARS + len(LISTING_HEADER) + 2_000
    )


def deferred_tool(name: str, about: str, *parameters: str) -> Tool:
    schema = {
        "type": "object",
        "properties": {p: {"type": "string"} for p in parameters},
        "additionalProperties": False,
    }
    return Tool.from_schema(name, about, schema, lambda input: f"{name} ran", read_only=True, deferred=True)


SERVER = [
    deferred_tool("create_issue", "Open a new issue in a repository.", "title", "body"),
    deferred_tool("list_issues", "List issues.", "state"),
    deferred_tool("send_mail", "Send a message to a person.", "recipient", "subject"),
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


class Deploy(Tool):
    """A tool that describes itself by the state of its workspace."""

    name = "deploy"
    description = "Deploys."
    input_schema: Mapping[str, Any] = {"type": "object", "properties": {}}
    read_only = True
    targets = "staging"

    async def describe(self, workspace: Any, input: Mapping[str, Any] | None = None) -> str:
        if self.targets == "raise":
            raise ValueError("no targets")
        if self.targets == "exit":
            raise SystemExit(1)
        if self.targets == "blank":
            return " "
        await asyncio.sleep(0)
        return f"Deploys to {self.targets}."


async def offered(box: Toolbox) -> str:
    return {spec.name: spec.description for spec in (await box.offering()).definitions}["deploy"]


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.asyncio
async def test_a_model_is_sent_what_the_tool_says_about_itself_now(tmp_path, monkeypatch, wrapped):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    deploy = Deploy()
    async with Toolbox(tmp_path, settings={}, tools=[RateLimited(deploy, 5, 60) if wrapped else deploy]) as box:
        assert await offered(box) == "Deploys to staging."
        first = (await box.offering()).definitions
        assert all(a is b for a, b in zip(first, (await box.offering()).definitions, strict=True))
        deploy.targets = "production"
        assert await offered(box) == "Deploys to production."


@pytest.mark.parametrize("state", ["raise", "exit", "blank"])
@pytest.mark.asyncio
async def test_a_tool_that_cannot_describe_itself_is_sent_with_its_fixed_description(tmp_path, monkeypatch, state):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    deploy = Deploy()
    deploy.targets = state
    async with Toolbox(tmp_path, settings={}, tools=[deploy]) as box:
        assert await offered(box) == "Deploys."
