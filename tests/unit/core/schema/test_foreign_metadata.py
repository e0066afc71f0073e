"""Bounds written for annotated_types and pydantic are honored, or refused where they cannot be."""

from __future__ import annotations

from typing import Annotated, Any

import annotated_types as at
import pytest
from pydantic import AfterValidator, Field, PositiveInt, StringConstraints
from typing_extensions import Doc

from wieldy.core.schema.check import InvalidInput, UnsupportedAnnotation
from wieldy.core.schema.parameters import Parameters


def parameters(annotation: Any, *default: Any) -> Parameters:
    def function(x: Any) -> None: ...

    function.__annotations__ = {"x": annotation}
    function.__defaults__ = default or None
    return Parameters.from_function(function)


@pytest.mark.parametrize(
    ("annotation", "schema", "good", "bad"),
    [
        (Annotated[int, Field(ge=3)], {"minimum": 3}, 3, 2),
        (Annotated[int, at.Gt(0)], {"exclusiveMinimum": 0}, 1, 0),
        (Annotated[int, at.Interval(ge=1, lt=4)], {"minimum": 1, "exclusiveMaximum": 4}, 3, 4),
        (Annotated[str, at.Len(1, 3)], {"minLength": 1, "maxLength": 3}, "abc", "abcd"),
        (Annotated[list[int], at.MaxLen(1)], {"maxItems": 1}, [1], [1, 2]),
        (Annotated[int, at.MultipleOf(5)], {"multipleOf": 5}, 10, 11),
        (
            Annotated[str, Field(pattern="^a", description="An a.")],
            {"pattern": "^a", "description": "An a."},
            "ab",
            "b",
        ),
        (Annotated[str, StringConstraints(min_length=2)], {"minLength": 2}, "ab", "a"),
        (PositiveInt, {"exclusiveMinimum": 0}, 1, 0),
        (
            Annotated[int, at.Ge(1), at.Le(5), "How many."],
            {"minimum": 1, "maximum": 5, "description": "How many."},
            5,
            6,
        ),
        (Annotated[int, Doc("A number."), at.Ge(2)], {"minimum": 2, "description": "A number."}, 2, 1),
    ],
)
def test_bounds_reach_the_schema_and_are_checked(annotation, schema, good, bad):
    found = parameters(annotation)
    assert schema.items() <= found.schema["properties"]["x"].items()
    assert found.accept({"x": good}) == {"x": good}
    with pytest.raises(InvalidInput):
        found.accept({"x": bad})


def test_bounds_inside_a_list_are_checked_too():
    found = parameters(list[Annotated[int, Field(ge=3)]])
    with pytest.raises(InvalidInput):
        found.accept({"x": [3, 2]})


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[str, at.Predicate(str.islower)],
        Annotated[str, StringConstraints(to_lower=True)],
        Annotated[int, AfterValidator(abs)],
        Annotated[int, Field(strict=True)],
        Annotated[int, Field(discriminator="kind")],
    ],
)
def test_what_a_schema_cannot_say_is_refused(annotation):
    with pytest.raises(UnsupportedAnnotation):
        parameters(annotation)


def test_metadata_of_nobody_we_know_is_left_alone():
    assert parameters(Annotated[int, object()]).accept({"x": 1}) == {"x": 1}


def test_a_field_as_default_gives_the_default_and_the_bounds():
    found = parameters(int, Field(5, ge=3, description="Between."))
    assert found.schema["properties"]["x"] == {"type": "integer", "minimum": 3, "description": "Between.", "default": 5}
    assert found.accept({}) == {"x": 5}
    with pytest.raises(InvalidInput):
        found.accept({"x": 1})


def test_a_default_that_is_made_anew_for_each_call():
    found = parameters(list[int], Field(default_factory=list))
    first = found.accept({})["x"]
    assert (first, found.accept({})["x"] is first) == ([], False)


def test_a_field_without_default_stays_required():
    with pytest.raises(InvalidInput):
        parameters(int, Field(ge=3)).accept({})
