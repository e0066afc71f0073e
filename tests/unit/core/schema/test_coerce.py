from typing import Any

import pytest

from wieldy.core.schema.coerce import coerce

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "values": {"type": "array", "items": {"type": "integer"}},
        "options": {"type": "object", "properties": {"depth": {"type": "integer"}}, "additionalProperties": False},
        "content": {"type": "string"},
        "count": {"type": "integer", "minimum": 0},
        "share": {"type": "number"},
        "force": {"type": "boolean"},
        "choice": {"enum": [1, 2]},
        "maybe": {"type": ["integer", "null"]},
        "either": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"$ref": "#/$defs/node"}]},
        "loose": {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^[a-z]+$"}]},
        "any": {},
    },
    "required": ["content"],
    "additionalProperties": False,
    "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "n": {"type": "integer"}}}},
}


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({"values": "[1,2,3]"}, {"values": [1, 2, 3]}),
        ({"values": ["1", 2]}, {"values": [1, 2]}),
        ({"options": '{"depth": 2}'}, {"options": {"depth": 2}}),
        ({"options": {"depth": "2"}}, {"options": {"depth": 2}}),
        ({"count": "5"}, {"count": 5}),
        ({"share": "0.5"}, {"share": 0.5}),
        ({"share": "-1e3"}, {"share": -1000.0}),
        ({"force": "true"}, {"force": True}),
        ({"force": "False"}, {"force": False}),
        ({"choice": "2"}, {"choice": 2}),
        ({"maybe": "7"}, {"maybe": 7}),
        ({"either": '["a"]'}, {"either": ["a"]}),
        ({"either": {"next": {"n": "3"}}}, {"either": {"next": {"n": 3}}}),
        ({"count": None}, {}),
        ({"options": {"depth": None}}, {"options": {}}),
    ],
)
def test_what_is_nearly_right_is_put_right_and_noted(given, made):
    coerced, notes = coerce(SCHEMA, {"content": "x", **given})
    assert coerced == {"content": "x", **made}
    assert len(notes) == 1
    assert next(iter(given)) in notes[0]


@pytest.mark.parametrize(
    "given",
    [
        {"values": 5},
        {"values": "5"},
        {"values": "1,2,3"},
        {"values": '["a"]'},
        {"values": '{"a": 1}'},
        {"values": "[1, 2"},
        {"values": "[NaN]"},
        {"count": "5.0"},
        {"count": "007"},
        {"count": "-5"},
        {"count": " 5"},
        {"count": ""},
        {"count": True},
        {"count": 1.5},
        {"force": "yes"},
        {"force": 1},
        {"force": "1"},
        {"choice": "3"},
        {"loose": "5"},
        {"content": 5},
        {"content": None},
        {"content": ["x"]},
        {"unknown": "5"},
        {"count": "5", "values": "no list"},
    ],
)
def test_anything_else_stays_as_it_came(given):
    value = {"content": "x", **given}
    assert coerce(SCHEMA, value) == (value, ())


@pytest.mark.parametrize("text", ['{"a":1}', "[1]", "007", "true", "null", "5"])
def test_a_string_where_strings_are_allowed_is_never_decoded(text):
    coerced, notes = coerce(SCHEMA, {"content": text, "any": text, "count": "5"})
    assert coerced == {"content": text, "any": text, "count": 5}
    assert len(notes) == 1


def test_draft_seven_spellings_are_understood():
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"pair": {"type": "array", "items": [{"type": "integer"}, {"$ref": "#/definitions/flag"}]}},
        "definitions": {"flag": {"type": "boolean"}},
    }
    assert coerce(schema, {"pair": ["1", "true"]})[0] == {"pair": [1, True]}


def test_a_reference_that_leads_in_a_circle_ends():
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}}
    assert coerce(schema, {"a": "5"}) == ({"a": "5"}, ())


def test_all_of_narrows_what_is_permitted():
    schema = {"type": "object", "properties": {"n": {"allOf": [{"type": ["integer", "string"]}, {"type": "integer"}]}}}
    assert coerce(schema, {"n": "5"})[0] == {"n": 5}


def test_additional_properties_are_coerced_by_their_schema():
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    assert coerce(schema, {"a": "1", "b": 2})[0] == {"a": 1, "b": 2}
