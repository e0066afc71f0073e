"""Checking a value takes bounded time, whatever a foreign schema makes a validator do."""

from __future__ import annotations

import pytest

from wieldy.core.schema.check import SchemaValidator

NODE = {"$ref": "#/$defs/n"}


@pytest.mark.parametrize(
    ("node", "wraps"),
    [
        ({"allOf": [{"items": NODE}, {"items": NODE}]}, lambda inner: [inner]),
        ({"oneOf": [{"items": NODE}, {"items": NODE, "maxItems": 0}]}, lambda inner: [inner]),
        ({"items": NODE, "contains": NODE}, lambda inner: [inner]),
        ({"items": NODE, "not": {"contains": {"not": NODE}}}, lambda inner: [inner]),
        ({"items": NODE, "if": {"contains": NODE}, "then": {"minItems": 1}}, lambda inner: [inner]),
        ({"properties": {"a": NODE}, "patternProperties": {"a": NODE}}, lambda inner: {"a": inner}),
        ({"allOf": [{"additionalProperties": NODE}], "properties": {"a": NODE}}, lambda inner: {"a": inner}),
        (
            {"dependentSchemas": {"a": {"properties": {"a": NODE}}}, "properties": {"a": NODE}},
            lambda inner: {"a": inner},
        ),
    ],
)
def test_a_recursive_schema_that_looks_at_each_part_again_and_again_takes_no_time(node, wraps):
    schema = {"type": "object", "properties": {"x": NODE}, "$defs": {"n": node}}
    value: object = wraps(1)
    for _ in range(4):
        value = wraps(value)
    assert SchemaValidator(schema).fits({"x": value}) == (not SchemaValidator(schema).problems({"x": value}))
    for _ in range(50):
        value = wraps(value)
    assert not SchemaValidator(schema).fits({"x": value})
    (problem,) = SchemaValidator(schema).problems({"x": value})
    assert "too many alternatives" in problem.message


def test_a_tree_of_many_parts_is_checked_part_by_part():
    node = {
        "type": "object",
        "properties": {"l": NODE, "r": NODE, "n": {"type": "integer"}},
        "additionalProperties": False,
    }
    schema = {"type": "object", "properties": {"x": NODE}, "$defs": {"n": node}}

    def tree(depth: int) -> dict[str, object]:
        return {"n": 1} if not depth else {"l": tree(depth - 1), "r": tree(depth - 1)}

    deep: dict[str, object] = {"n": 1}
    for _ in range(50):
        deep = {"l": deep, "n": 1}
    assert SchemaValidator(schema).fits({"x": tree(12)}) and SchemaValidator(schema).fits({"x": deep})
    assert not SchemaValidator(schema).fits({"x": {"l": deep, "r": {"n": "no"}}})
