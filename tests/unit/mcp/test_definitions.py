"""Names that every provider takes, and that stay the same."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.mcp.client.definitions import (
    INPUT_SCHEMA_KEY,
    OUTPUT_SCHEMA_KEY,
    REJECTED_KEY,
    TASK_KEY,
    InvalidDefinition,
    ToolPins,
    parse_definition,
    parse_input_schema,
    sanitize_result,
    server_keys,
    wire_names,
)
from wieldy.mcp.client.transport import OutputTail
from wieldy.schema.check import InvalidInput

FIT = re.compile(r"mcp__[A-Za-z0-9_-]+__[A-Za-z0-9_-]*")


def test_plain_names_are_not_touched_and_odd_ones_are_made_plain():
    assert wire_names("github", ["create_issue"]) == {"create_issue": "mcp__github__create_issue"}
    assert wire_names("s", ["files.read", "a/b c"]) == {"files.read": "mcp__s__files_read", "a/b c": "mcp__s__a_b_c"}


def test_a_name_that_is_right_keeps_it_when_an_odd_one_would_take_it():
    names = wire_names("s", ["a.b", "a_b"])
    assert names["a_b"] == "mcp__s__a_b"
    assert names["a.b"] != names["a_b"]


def test_a_long_name_is_shortened_the_same_way_every_time():
    long = "x" * 100
    name = wire_names("s", [long])[long]
    assert len(name) == 64
    assert wire_names("s", ["other", long])[long] == name
    assert wire_names("s", [long + "y"])[long + "y"] != name


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(min_size=1, max_size=80), unique=True, max_size=12), st.text(max_size=60))
def test_names_are_unique_fit_and_can_be_turned_back(tools, server):
    key = server_keys([server])[server]
    names = wire_names(key, tools)
    assert set(names) == set(tools)
    assert len(set(names.values())) == len(tools)
    assert all(FIT.fullmatch(name) and len(name) <= 64 for name in names.values())


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=50), unique=True, max_size=8))
def test_no_two_servers_share_a_key(servers):
    keys = server_keys(servers)
    assert len(set(keys.values())) == len(servers)
    assert all("__" not in key and re.fullmatch(r"[A-Za-z0-9_-]{1,30}", key) for key in keys.values())


def test_a_list_is_mended_entry_by_entry():
    union = {"anyOf": [{"type": "object"}]}
    result: dict[str, Any] = {
        "tools": [
            {"name": "good", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}},
            {
                "name": "union",
                "inputSchema": union,
                "_meta": "odd",
                "annotations": {"readOnlyHint": "yes", "title": "T"},
            },
            {"name": 3},
            None,
        ]
    }
    sanitize_result(result)
    good, odd = result["tools"]
    assert good["_meta"] == {OUTPUT_SCHEMA_KEY: {"type": "object"}} and "outputSchema" not in good
    assert odd["inputSchema"] == {"type": "object"} and odd["_meta"] == {INPUT_SCHEMA_KEY: union}
    assert odd["annotations"] == {"title": "T"}
    assert len(result["_meta"][REJECTED_KEY]) == 2


def test_other_results_are_left_alone_and_a_task_is_set_aside():
    others: list[Any] = [None, 3, {"messages": []}, {"tools": 3}]
    for result in others:
        before = repr(result)
        sanitize_result(result)
        assert repr(result) == before
    made: dict[str, Any] = {"task": {"taskId": "1"}}
    sanitize_result(made)
    assert made == {"content": [], "resultType": "complete", "_meta": {TASK_KEY: {"taskId": "1"}}}


def test_a_result_that_does_not_say_so_is_complete():
    plain: dict[str, Any] = {"content": []}
    asking: dict[str, Any] = {"content": [], "resultType": "input_required"}
    sanitize_result(plain)
    sanitize_result(asking)
    assert (plain["resultType"], asking["resultType"]) == ("complete", "input_required")


@pytest.mark.parametrize(
    "schema", ["x", 3, [], False, {"type": "array"}, {"type": ["string", "null"]}, {"type": "objct"}]
)
def test_a_schema_that_takes_no_object_is_unfit(schema):
    with pytest.raises(InvalidDefinition):
        parse_input_schema(schema)


def test_the_shown_schema_is_acceptable_and_the_given_one_decides():
    given = {"oneOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]}, {"required": ["b"]}]}
    parameters = parse_input_schema(given)
    assert parameters.schema["type"] == "object" and "oneOf" not in parameters.schema
    assert parameters.accept({"a": "x"}) == {"a": "x"}
    with pytest.raises(InvalidInput):
        parameters.accept({})


def tool(**fields: Any) -> Any:
    defaults = {"name": "t", "title": None, "description": "d", "meta": None, "annotations": None, "execution": None}
    return SimpleNamespace(**{**defaults, "input_schema": {"type": "object"}, **fields})


def test_the_fingerprint_follows_what_a_reader_would_see():
    one = parse_definition(tool()).digest
    assert parse_definition(tool()).digest == one
    assert parse_definition(tool(description="other")).digest != one
    assert parse_definition(tool(title="other")).digest != one
    assert parse_definition(tool(input_schema={"type": "object", "properties": {"a": {}}})).digest != one


def test_limits_and_wishes_of_a_tool_are_read_from_its_meta():
    found = parse_definition(tool(meta={"anthropic/maxResultSizeChars": 10**9, "anthropic/alwaysLoad": True}))
    assert (found.max_result_chars, found.always_load) == (500_000, True)
    assert len(parse_definition(tool(description="d" * 10_000)).description) == 4_000


def test_pins_know_what_changed_and_only_that(tmp_path):
    pins = ToolPins(str(tmp_path), tmp_path / "pins.json")
    assert pins.changed("s", {"a": "1", "b": "2"}) == frozenset()
    assert pins.changed("s", {"a": "1", "b": "3", "c": "4"}) == {"b"}
    assert pins.changed("s", {"b": "3"}) == {"b"}
    pins.pin("s", {"b": "3"})
    assert pins.changed("s", {"a": "1", "b": "3"}) == frozenset()
    assert ToolPins(str(tmp_path / "other"), tmp_path / "pins.json").changed("s", {"a": "9"}) == frozenset()
    (tmp_path / "pins.json").write_text("{broken")
    assert pins.changed("s", {"a": "1"}) == frozenset()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=30))
def test_a_tail_is_bounded_and_ends_where_the_words_end(pieces):
    tail = OutputTail(max_bytes=50)
    for piece in pieces:
        tail.add(piece)
    whole = b"".join(pieces)
    assert len(tail.text.encode("utf-8", "replace")) <= 50 * 3
    assert whole.decode("utf-8", "replace").endswith(tail.text[-5:]) or "\ufffd" in tail.text
