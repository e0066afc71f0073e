"""The order of the pool, its blocks, and what is deferred."""

from __future__ import annotations

from wieldy.core.tool import Tool
from wieldy.tools.toolset.order import (
    LISTING_HEADER,
    MAX_LISTING_CHARS,
    estimate_tokens,
    list_deferred,
    order_tools,
    token_budget,
)

PLENTY = 10**9


def make(name: str, chars: int = 0, **declared: object) -> Tool:
    return Tool.from_schema(name, "d" * chars or "d", {"type": "object"}, lambda input: "", **declared)


def names(tools) -> list[str]:
    return [tool.name for tool in tools]


def test_our_own_come_first_then_those_of_servers_each_sorted_and_broken_between():
    found = order_tools([make("mcp__b__x"), make("Write"), make("mcp__a__z"), make("Read")], tokens=PLENTY)
    assert names(found.tools) == ["Read", "Write", "mcp__a__z", "mcp__b__x"]
    assert found.breaks == (2, 4)
    assert not found.deferred


def test_of_two_tools_of_one_name_the_first_wins():
    first, second = make("Read"), make("Read")
    assert order_tools([first, second], tokens=PLENTY).tools == (first,)


def test_nothing_to_send_has_no_breaks():
    assert order_tools([], tokens=PLENTY).breaks == ()


def test_over_the_budget_servers_tools_are_deferred_and_our_own_are_not():
    found = order_tools([make("Read"), *(make(f"mcp__s__t{n}", 400) for n in range(10))], builtin={"Read"}, tokens=300)
    assert names(found.tools) == ["Read"]
    assert len(found.deferred) == 10
    assert sum(map(estimate_tokens, found.tools)) <= 300


def test_tools_that_were_added_are_deferred_where_our_own_alone_are_too_heavy():
    tools = [make("Read"), *(make(f"mine{n:03}", 400) for n in range(500))]
    found = order_tools(tools, builtin={"Read"}, tokens=token_budget(200_000))
    assert names(found.tools) == ["Read"]
    assert len(found.deferred) == 500


def test_activated_tools_come_last_in_the_order_of_their_activation():
    tools = [make("Read"), *(make(f"mcp__s__t{n}") for n in range(4))]
    found = order_tools(tools, defer="always", tokens=PLENTY, activated=("mcp__s__t3", "gone", "mcp__s__t1"))
    assert names(found.tools) == ["Read", "mcp__s__t3", "mcp__s__t1"]
    assert found.breaks == (1, 3)
    assert names(found.deferred) == ["mcp__s__t0", "mcp__s__t2"]


def test_never_sends_all_and_always_defers_what_may_be_but_not_what_must_be_there():
    loaded = make("mcp__s__must")
    loaded.always_load = True  # type: ignore[attr-defined]
    tools = [make("Read"), make("Rare", deferred=True), make("mcp__s__may"), loaded]
    assert not order_tools(tools, defer="never", tokens=0).deferred
    found = order_tools(tools, defer="always", tokens=PLENTY)
    assert names(found.tools) == ["Read", "mcp__s__must"]


def test_a_tool_declared_as_deferred_is_named_only_even_where_there_is_room():
    assert names(order_tools([make("Rare", deferred=True)], tokens=PLENTY).deferred) == ["Rare"]


def test_the_list_of_names_does_not_grow_with_the_number_of_tools():
    many = [make(f"mcp__server{n % 7}__a_tool_with_a_long_name_{n}") for n in range(5_000)]
    text = list_deferred(many)
    assert len(text) <= MAX_LISTING_CHARS + len(LISTING_HEADER) + 200
    assert "mcp__server3: " in text
    few = list_deferred(many[:8])
    assert all(tool.name in few for tool in many[:8])
    assert list_deferred([]) == ""
    assert (
        len(list_deferred([make(f"mcp__server{n}__tool") for n in range(5_000)]))
        <= MAX_LISTING_CHARS + len(LISTING_HEADER) + 2_000
    )
