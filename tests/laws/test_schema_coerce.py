"""Coercion either makes a value fit or leaves it alone, and never lays a hand on a string that may be one."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema_rs
from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.core.schema.coerce import coerce

LAW = settings(max_examples=200, deadline=None)

STRINGS = st.sampled_from(
    [
        "5",
        "007",
        "-1",
        "1.5",
        "1e3",
        "true",
        "False",
        "null",
        "",
        "[1,2]",
        '["a"]',
        "{}",
        '{"a": 1}',
        "[",
        "x",
        "NaN",
        "1" * 400,
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | STRINGS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abx"), inner, max_size=3),
    max_leaves=6,
)
KEYWORDS = ("string", "integer", "number", "boolean", "array", "object", "null")


def _nested(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(
        inner.map(lambda schema: {"type": "array", "items": schema}),
        st.lists(inner, min_size=1, max_size=2).map(lambda schemas: {"anyOf": schemas}),
        st.tuples(inner, inner, st.sampled_from([[], ["a"]])).map(
            lambda p: {
                "type": "object",
                "properties": {"a": p[0], "b": p[1]},
                "required": p[2],
                "additionalProperties": False,
            }
        ),
    )


SCHEMAS = st.recursive(
    st.sampled_from(KEYWORDS).map(lambda kind: {"type": kind})
    | st.lists(st.sampled_from(KEYWORDS), min_size=1, max_size=2, unique=True).map(lambda kinds: {"type": kinds})
    | st.sampled_from(
        [{"enum": [1, 2]}, {"enum": ["5", 5]}, {"const": True}, {"$ref": "#/$defs/few"}, {}, {"minLength": 2}]
    ),
    _nested,
    max_leaves=4,
)


@st.composite
def cases(draw):
    properties = draw(st.dictionaries(st.sampled_from("abx"), SCHEMAS, min_size=1, max_size=3))
    schema = {
        "type": "object",
        "properties": properties,
        "required": draw(st.lists(st.sampled_from(sorted(properties)), max_size=1)),
        "$defs": {"few": {"type": "array", "items": {"type": "integer"}, "maxItems": 2}},
    }
    return schema, draw(st.dictionaries(st.sampled_from([*properties]), JSON, max_size=3))


@LAW
@given(cases())
def test_the_result_fits_or_nothing_has_changed(case):
    schema, value = case
    before = copy.deepcopy(value)
    coerced, notes = coerce(schema, value)
    assert value == before, "the caller's value was changed in place"
    if notes:
        assert jsonschema_rs.Draft202012Validator(schema).is_valid(coerced)
    else:
        assert coerced is value


@LAW
@given(cases())
def test_a_value_that_fits_is_never_changed(case):
    schema, value = case
    if jsonschema_rs.Draft202012Validator(schema).is_valid(value):
        assert coerce(schema, value) == (value, ())


@LAW
@given(st.text(max_size=10) | STRINGS, st.dictionaries(st.sampled_from(["n", "flag", "items"]), JSON))
def test_a_string_property_is_never_altered(text, others):
    schema = {
        "type": "object",
        "properties": {
            "text": {"type": "string", "maxLength": 5},
            "maybe": {"type": ["string", "integer", "array", "null"]},
            "n": {"type": "integer"},
            "flag": {"type": "boolean"},
            "items": {"type": "array", "items": {"type": "integer"}},
        },
    }
    coerced, _ = coerce(schema, {"text": text, "maybe": text, **others})
    assert coerced["text"] == text
    assert coerced["maybe"] == text
    assert isinstance(coerced["text"], str)


@LAW
@given(st.lists(st.integers()), st.integers(), st.booleans())
def test_what_was_encoded_once_too_often_is_understood(numbers, number, flag):
    schema = {
        "type": "object",
        "properties": {
            "many": {"type": "array", "items": {"type": "integer"}},
            "one": {"type": "integer"},
            "flag": {"type": "boolean"},
        },
    }
    meant = {"many": numbers, "one": number, "flag": flag}
    coerced, notes = coerce(schema, {key: json.dumps(value) for key, value in meant.items()})
    assert coerced == meant
    assert len(notes) == 3
