"""Names that every provider takes, and that stay the same."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.core.schema.check import InvalidInput
from wieldy.mcp.definitions import (
    INPUT_SCHEMA_KEY,
    OUTPUT_SCHEMA_KEY,
    REJECTED_KEY,
    TASK_KEY,
    InvalidDefinition,
    ToolPins,
    parse_definition,
    parse_definitions,
    parse_input_schema,
    sanitize_result,
    server_keys,
    wire_names,
)
from wieldy.mcp.transport import OutputTail

FIT = re.compile(r"mcp__[A-Za-z0-9_-]+__[A-Za-z0-9_-]*")


def test_plain_names_are_not_touched_and_odd_ones_are_made_plain():
    assert wire_names("github", ["create_issue"]) == ({"create_issue": "mcp__github__create_issue"}, {})
    names = {"files.read": "mcp__s__files_read", "a/b c": "mcp__s__a_b_c"}
    assert wire_names("s", ["files.read", "a/b c"]) == (names, {})


def test_a_name_that_is_right_keeps_it_and_an_odd_one_that_would_take_it_is_left_out():
    assert wire_names("s", ["a.b", "a_b"]) == ({"a_b": "mcp__s__a_b"}, {"a.b": "mcp__s__a_b"})
    names, collisions = wire_names("s", ["a.b", "a b"])
    assert (names, collisions) == ({"a b": "mcp__s__a_b"}, {"a.b": "mcp__s__a_b"})


def test_a_users_own_server_keeps_its_key_whatever_a_project_calls_its_servers():
    for foreign in ("my files", "my_files", "my/files"):
        keys = server_keys(["my.files", foreign], {foreign})
        assert keys["my.files"] == "my_files" and keys[foreign] != "my_files"


def test_a_long_name_is_shortened_the_same_way_every_time():
    long = "x" * 100
    name = wire_names("s", [long])[0][long]
    assert len(name) == 64
    assert wire_names("s", ["other", long])[0][long] == name
    assert wire_names("s", [long + "y"])[0][long + "y"] != name


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(min_size=1, max_size=80), unique=True, max_size=12), st.text(max_size=60))
def test_names_are_unique_fit_and_can_be_turned_back(tools, server):
    key = server_keys([server])[server]
    names, collisions = wire_names(key, tools)
    assert {*names, *collisions} == set(tools) and not names.keys() & collisions.keys()
    assert len(set(names.values())) == len(names)
    assert set(collisions.values()) <= set(names.values())
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
    long = parse_definition(tool(description="d" * 10_000)).description
    assert len(long) < 4_100 and long.endswith("… (cut: the server sent 10,000 characters)")


def test_what_a_schema_says_is_cut_and_what_it_checks_stays():
    text = "x" * 2_000_000
    inner = {"type": "object", "properties": {"description": {"type": "string", "description": text}}}
    schema = {"type": "object", "title": text, "properties": {"a": inner}, "required": ["a"]}
    definition = parse_definition(tool(input_schema=schema, title=text, meta={"anthropic/alwaysLoad": True}))
    shown = json.dumps(definition.parameters.schema)
    assert len(shown) < 5_000 and shown.count("(cut: the server sent 2,000,000 characters)") == 2
    assert len(definition.title) < 300 and definition.always_load
    with pytest.raises(InvalidInput):
        definition.parameters.accept({})


def test_a_tool_that_is_too_large_is_refused_and_its_servers_wish_counts_only_where_it_is_small():
    properties = {f"p{number}": {"type": "string", "description": "d" * 200} for number in range(40)}
    always = {"anthropic/alwaysLoad": True}
    definitions, _ = parse_definitions([tool(input_schema={"type": "object", "properties": properties}, meta=always)])
    assert [each.always_load for each in definitions.values()] == [False]
    enum = {"type": "object", "properties": {"a": {"enum": [f"value{number}" for number in range(10_000)]}}}
    with pytest.raises(InvalidDefinition, match="at most 32,000 are sent"):
        parse_definition(tool(input_schema=enum))
    enum = {"type": "object", "properties": {"a": {"enum": list(range(30_000))}}}
    with pytest.raises(InvalidDefinition, match="more than 20,000 parts"):
        parse_definition(tool(input_schema=enum))


def test_the_wishes_of_a_server_count_only_as_far_as_they_are_small_altogether():
    always = {"anthropic/alwaysLoad": True}
    listed = [tool(name=f"t{number}", description="d" * 500, meta=always) for number in range(1_000)]
    definitions, _ = parse_definitions([*listed, tool(name="other")])
    wished = [each for each in definitions.values() if each.always_load]
    assert len(definitions) == 1_001 and 10 < len(wished) < 17
    assert sum(each.shown_chars for each in wished) <= 8_000


def chain(length: int) -> dict[str, Any]:
    """A schema that doubles with each of its references."""
    steps = {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(length)}
    properties = {"x": {"$ref": "#/$defs/a0"}}
    return {"type": "object", "properties": properties, "$defs": {**steps, f"a{length}": {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (chain(11), "alternatives where its references are followed"),
        (json.loads(json.dumps(chain(16)).replace("anyOf", "allOf")), "parts where its references are followed"),
        (json.loads(json.dumps(chain(11)).replace("#/$defs/", "#/%24defs/")), "alternatives"),
        ({"type": "object", "$defs": {f"a{n}": {"not": {"$ref": f"#/$defs/a{n + 1}"}} for n in range(500)},
          "properties": {"x": {"$ref": "#/$defs/a0"}}}, "nested more than 64 levels"),
        ({"type": "object", "properties": {"x": {"$id": "http://a/b", "$ref": "#"}}}, "an `\\$id` inside"),
        ({"$id": "http://a/s", **json.loads(json.dumps(chain(11)).replace("#/", "http://a/s#/"))}, "is not a place in it"),
        ({"$id": "http://a/s", **json.loads(json.dumps(chain(11)).replace("#/", "s#/"))}, "is not a place in it"),
        (json.loads(json.dumps(chain(11)).replace("#/", "json-schema:///#/")), "is not a place in it"),
        ({"type": "object", "properties": {"x": {"$ref": "#a"}}, "$defs": {"a": {"$anchor": "a"}}}, "`#a` is not a place"),
        ({"type": "object", "properties": {"x": {"$dynamicRef": "#a"}}, "$defs": {"a": {"$dynamicAnchor": "a"}}}, "not a pl"),
    ],
)  # fmt: skip
def test_a_small_schema_that_is_huge_where_its_references_are_followed_is_refused(schema, reason):
    with pytest.raises(InvalidDefinition, match=reason):
        parse_input_schema(schema)


def test_ordinary_recursion_is_taken_and_its_errors_take_no_time():
    value = {
        "anyOf": [{"type": "string"}, {"$ref": "#/$defs/node"}, {"type": "array", "items": {"$ref": "#/$defs/node"}}]
    }
    node = {"type": "object", "properties": {"x": value, "y": value}, "additionalProperties": False}
    parameters = parse_input_schema({"type": "object", "$defs": {"node": node}, "properties": {"x": value}})
    deep: Any = {"x": "a"}
    for _ in range(60):
        deep = {"x": deep}
    assert parameters.accept(deep) == deep
    bad: Any = {"x": 3}
    for _ in range(60):
        bad = {"x": bad}
    with pytest.raises(InvalidInput, match=r"x\.x\.x: expected a string"):
        parameters.accept(bad)
    with pytest.raises(InvalidInput, match=r"x"):
        parameters.accept({"x": {"z": 1}})


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
