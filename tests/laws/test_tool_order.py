"""What a provider has cached stays valid: servers never move our own tools, activation only appends."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.core.tool import Tool
from wieldy.tools.toolset import is_mcp_tool, order_tools

own_names = st.lists(st.from_regex(r"[A-Z][a-z]{1,6}", fullmatch=True), unique=True, max_size=6)
server_names = st.lists(st.from_regex(r"mcp__[ab]__[a-z]{1,4}", fullmatch=True), unique=True, max_size=8)
policies = st.sampled_from(["auto", "always", "never"])
budgets = st.integers(0, 400)


def make(name: str, deferred: bool = False) -> Tool:
    about = f"{name} " * (len(name) * 3)
    return Tool.from_schema(name, about, {"type": "object"}, lambda input: "", deferred=deferred)


def as_bytes(tools) -> bytes:
    return json.dumps([[tool.name, tool.description, tool.schema] for tool in tools]).encode()


def first_block(arranged) -> bytes:
    own = [tool for tool in arranged.tools if not is_mcp_tool(tool)]
    assert list(arranged.tools[: len(own)]) == own, "our own tools are one block"
    assert not own or len(own) in arranged.breaks
    return as_bytes(own)


@settings(max_examples=150, deadline=None)
@given(own_names, server_names, server_names, policies, budgets)
def test_adding_or_removing_servers_never_changes_a_byte_of_our_own_block(own, before, after, defer, tokens):
    tools = [make(name) for name in own]
    one = order_tools([*tools, *map(make, before)], builtin=own[:3], defer=defer, tokens=tokens)
    other = order_tools([*map(make, after), *tools], builtin=own[:3], defer=defer, tokens=tokens)
    assert first_block(one) == first_block(other)


@settings(max_examples=150, deadline=None)
@given(own_names, server_names, st.data(), policies, budgets)
def test_activation_only_appends(own, foreign, data, defer, tokens):
    tools = [make(name, deferred=len(name) % 2 == 0) for name in own] + list(map(make, foreign))
    names = [tool.name for tool in tools]
    activated = data.draw(st.permutations(names)) if names else []
    cut = data.draw(st.integers(0, len(activated)))
    before = order_tools(tools, defer=defer, tokens=tokens, activated=activated[:cut])
    after = order_tools(tools, defer=defer, tokens=tokens, activated=activated)
    assert after.tools[: len(before.tools)] == before.tools
    assert {tool.name for tool in after.tools} | {tool.name for tool in after.deferred} == set(names)


@settings(max_examples=100, deadline=None)
@given(own_names, server_names, st.randoms(), policies, budgets)
def test_the_order_of_arrival_does_not_matter(own, foreign, random, defer, tokens):
    tools = list(map(make, [*own, *foreign]))
    shuffled = tools.copy()
    random.shuffle(shuffled)
    one = order_tools(tools, defer=defer, tokens=tokens)
    assert one == order_tools(shuffled, defer=defer, tokens=tokens)
    assert list(one.breaks) == sorted(set(one.breaks))
    assert not one.breaks or one.breaks[-1] == len(one.tools)
