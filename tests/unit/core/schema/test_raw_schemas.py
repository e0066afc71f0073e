from __future__ import annotations

from typing import Any

import pytest

from wieldy.core.schema.check import InvalidInput, SchemaError
from wieldy.core.schema.parameters import Parameters, object_schema_problem

DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def fits(schema: dict[str, Any], value: dict[str, Any]) -> bool:
    try:
        assert Parameters.from_schema({"type": "object", **schema}).accept(value) is value
    except InvalidInput as misfit:
        assert misfit.problems
        return False
    return True


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (
            {"allOf": [{"properties": {"a": True}}], "properties": {"b": True}, "unevaluatedProperties": False},
            {"a": 1, "b": 2},
            {"c": 3},
        ),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"b": 1}, {"a": 1}),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1, "b": 1}, {"a": 1}),
        ({"properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}, {"a": 1}, {"a": "x"}),
        ({"properties": {"a": {"$ref": "#odd"}}, "$defs": {"n": {"$anchor": "odd", "const": 3}}}, {"a": 3}, {"a": 2}),
        (
            {"properties": {"kid": {"$ref": "#"}}, "additionalProperties": False},
            {"kid": {"kid": {}}},
            {"kid": {"x": 1}},
        ),
        (
            {"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}, "else": {"required": ["c"]}},
            {"a": 1, "b": 0},
            {"a": 1, "c": 0},
        ),
        ({"properties": {"a": {"prefixItems": [{"type": "integer"}], "items": False}}}, {"a": [1]}, {"a": [1, 2]}),
        ({"properties": {"a": {"contains": {"const": 5}, "maxContains": 1}}}, {"a": [5, 6]}, {"a": [5, 5]}),
        ({"propertyNames": {"pattern": "^[a-z]+$"}}, {"abc": 1}, {"A": 1}),
        ({"patternProperties": {"^n": {"type": "integer"}}}, {"n1": 1, "x": "y"}, {"n1": "x"}),
        ({"properties": {"a": {"not": {"type": "string"}}}}, {"a": 1}, {"a": "x"}),
        ({"properties": {"a": {"oneOf": [{"multipleOf": 2}, {"multipleOf": 3}]}}}, {"a": 4}, {"a": 6}),
        ({"properties": {"a": {"uniqueItems": True}}}, {"a": [1, True]}, {"a": [1, 1.0]}),
        ({"minProperties": 1}, {"a": 1}, {}),
        ({"properties": {"a": {"type": "integer"}}}, {"a": 1.0}, {"a": 1.5}),
    ],
)
def test_the_keywords_of_draft_2020_12_are_obeyed(schema, good, bad):
    assert fits(schema, good)
    assert not fits(schema, bad)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"properties": {"a": {"items": [{"type": "integer"}], "additionalItems": False}}}, {"a": [1]}, {"a": [1, 2]}),
        ({"dependencies": {"a": ["b"]}}, {"a": 1, "b": 1}, {"a": 1}),
        (
            {"properties": {"a": {"$ref": "#/definitions/n"}}, "definitions": {"n": {"type": "integer"}}},
            {"a": 1},
            {"a": ""},
        ),
        # beside $ref, draft 7 ignores everything else
        (
            {"properties": {"a": {"$ref": "#/definitions/n", "minimum": 5}}, "definitions": {"n": {"maximum": 9}}},
            {"a": 1},
            {"a": 10},
        ),
    ],
)
def test_draft_7_is_obeyed_where_it_is_named(schema, good, bad):
    assert fits({"$schema": DRAFT_7, **schema}, good)
    assert not fits({"$schema": DRAFT_7, **schema}, bad)


def test_without_a_named_draft_the_newest_rules_hold():
    sibling = {"properties": {"a": {"$ref": "#/$defs/n", "minimum": 5}}, "$defs": {"n": {"maximum": 9}}}
    assert not fits(sibling, {"a": 1})
    with pytest.raises(SchemaError):
        fits({"properties": {"a": {"items": [{"type": "integer"}]}}}, {})


@pytest.mark.parametrize("draft", [{}, {"$schema": DRAFT_7}])
def test_formats_are_notes_and_not_rules(draft):
    assert fits({**draft, "properties": {"a": {"type": "string", "format": "email"}}}, {"a": "nobody"})


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"properties": {"a": {"$ref": "#/$defs/nowhere"}}}, "nowhere"),
        ({"properties": {"a": {"type": "strin"}}}, '"strin" is no type of JSON Schema: use one of string, number,'),
        (
            {"properties": {"a": {"type": "float"}}},
            '"float" is no type of JSON Schema: use "number" (at `properties.a.type`)',
        ),
        ({"properties": {"a": {"items": {"type": ["Int", "null"]}}}}, 'use "integer" (at `properties.a.items.type`)'),
        ({"properties": {"a": {"type": "String"}}}, 'use "string"'),
        ({"properties": {"a": {"type": ["string", "string"]}}}, "properties.a.type"),
        ({"properties": {"type": {"type": 5}}}, "properties.type.type"),
        ({"properties": {"a": {"pattern": "("}}}, "("),
        ({"required": "a"}, "required"),
        ({"properties": {"a": {"$ref": "http://127.0.0.1:9/schema.json"}}}, "127.0.0.1"),
        ({"$schema": "http://127.0.0.1:9/draft"}, "127.0.0.1"),
    ],
)
def test_a_schema_that_cannot_be_used_says_why(schema, told):
    parameters = Parameters.from_schema({"type": "object", **schema})
    with pytest.raises(SchemaError) as caught:
        parameters.compile()
    assert told in str(caught.value)
    with pytest.raises(SchemaError):
        parameters.accept({})


def test_the_error_of_the_only_fitting_alternative_is_told():
    schema = {
        "type": "object",
        "properties": {
            "a": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}, {"type": "null"}]}
        },
    }
    with pytest.raises(InvalidInput) as caught:
        Parameters.from_schema(schema).accept({"a": [1, "x"]})
    assert str(caught.value) == 'a[1]: expected an integer, got the string "x"'
    with pytest.raises(InvalidInput) as caught:
        Parameters.from_schema(schema).accept({"a": 5})
    assert str(caught.value) == "a: expected a string, a list or null, got the number 5"


def test_of_several_objects_the_one_that_was_meant_is_explained():
    def shape(name: str, field: str) -> dict[str, Any]:
        properties = {"kind": {"const": name}, field: {"type": "number"}}
        return {"type": "object", "properties": properties, "required": ["kind", field], "additionalProperties": False}

    tagged = {"type": "object", "properties": {"s": {"anyOf": [shape("circle", "radius"), shape("square", "side")]}}}
    with pytest.raises(InvalidInput) as caught:
        Parameters.from_schema(tagged).accept({"s": {"kind": "square", "side": "x", "radius": 1}})
    assert {problem.path for problem in caught.value.problems} == {"s.side", "s.radius"}

    untagged = {"anyOf": [{"type": "object", "required": ["a", "b", "c"]}, {"type": "object", "required": ["a", "d"]}]}
    with pytest.raises(InvalidInput, match=r"^s\.d: is required but missing$"):
        Parameters.from_schema({"type": "object", "properties": {"s": untagged}}).accept({"s": {"a": 1}})


@pytest.mark.parametrize(
    ("keyword", "value", "told"),
    [
        ({"minimum": 3}, 1, "expected at least 3"),
        ({"exclusiveMaximum": 3}, 3, "expected less than 3"),
        ({"minLength": 2}, "a", "expected at least 2 characters"),
        ({"maxItems": 1}, [1, 2], "expected at most 1 item, got a list of 2"),
        ({"pattern": "^a"}, "b", "expected text that matches `^a`"),
        ({"const": "x"}, "y", 'expected "x"'),
        ({"enum": ["x", 1]}, "y", 'expected one of "x", 1, got the string "y"'),
        ({"multipleOf": 2}, 3, "expected a multiple of 2"),
        (False, 1, "expected nothing here"),
        ({"not": {}}, 1, "expected"),
        ({"uniqueItems": True}, [1, 1], "expected"),
        ({"oneOf": [{"type": "integer"}, {"minimum": 1}]}, 2, "expected"),
    ],
)
def test_each_rule_is_told_in_words(keyword, value, told):
    with pytest.raises(InvalidInput) as caught:
        Parameters.from_schema({"type": "object", "properties": {"a": keyword}}).accept({"a": value})
    (problem,) = caught.value.problems
    assert problem.path == "a"
    assert problem.message.startswith(told)


@pytest.mark.parametrize("value", [{1: 2}, {"a": b"x"}, {"a": object()}, {"a": {1}}, {"a": "\ud99c"}])
@pytest.mark.parametrize("schema", [{"type": "integer"}, {"type": "array", "items": {"type": "object"}}])
def test_what_is_no_json_is_a_misfit_and_never_a_crash(schema, value):
    with pytest.raises(InvalidInput):
        Parameters.from_schema({"type": "object", "properties": {"a": schema}, "additionalProperties": False}).accept(
            value
        )


def test_every_unknown_field_is_named_even_where_none_is_known():
    schema = {"type": "object", "properties": {"o": {"type": "object", "additionalProperties": False}}}
    with pytest.raises(InvalidInput) as caught:
        Parameters.from_schema(schema).accept({"o": {"x": 1, "y": 2}})
    assert [str(problem) for problem in caught.value.problems] == [
        "o.x: is not a known field",
        "o.y: is not a known field",
    ]


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "object"}, None),
        ({"type": "object", "properties": {}}, None),
        ({"type": "string"}, "has type 'string'"),
        ({"type": ["object", "null"]}, "has type ['object', 'null']"),
        ({"anyOf": [{"type": "object"}]}, "top-level `anyOf`"),
        ({"$ref": "#/$defs/a"}, "top-level `$ref`"),
        ({}, "does not say"),
        ({"properties": {}}, "does not say"),
        ({"type": "object", "properties": []}, "`properties`"),
        (None, "NoneType, not a JSON object"),
        (True, "bool, not a JSON object"),
        ([], "list, not a JSON object"),
    ],
)
def test_only_an_object_schema_can_be_an_input(schema, told):
    problem = object_schema_problem(schema)
    assert problem is None if told is None else told in (problem or "")
