from __future__ import annotations

import enum
import typing
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, NewType
from uuid import UUID

import pytest

from wieldy.core.schema.check import UnsupportedAnnotation
from wieldy.core.schema.fields import Param
from wieldy.core.schema.parameters import Parameters


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mode(enum.StrEnum):
    FAST = "fast"


class Point(NamedTuple):
    x: int
    y: int = 0


UserId = NewType("UserId", int)


def property_of(annotation: Any, **default: Any) -> dict[str, Any]:
    def tool(x, **rest):
        raise AssertionError

    tool.__annotations__ = {"x": annotation}
    tool.__defaults__ = tuple(default.values())
    schema: dict[str, Any] = Parameters.from_function(tool).schema["properties"]["x"]
    return schema


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (Any, {}),
        (object, {}),
        (Path, {"type": "string"}),
        (datetime, {"type": "string", "format": "date-time"}),
        (date, {"type": "string", "format": "date"}),
        (time, {"type": "string", "format": "time"}),
        (UUID, {"type": "string", "format": "uuid"}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal["a", 1], {"enum": ["a", 1]}),
        (Literal[Color.RED], {"type": "string", "enum": ["red"]}),
        (Color, {"type": "string", "enum": ["red", "blue"]}),
        (Level, {"type": "integer", "enum": [1, 2]}),
        (Mode, {"type": "string", "enum": ["fast"]}),
        (UserId, {"type": "integer"}),
        (Final[int], {"type": "integer"}),
    ],
)
def test_a_plain_type_has_a_plain_schema(annotation, schema):
    assert property_of(annotation) == schema


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (list, {"type": "array"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (Sequence[str], {"type": "array", "items": {"type": "string"}}),
        (Iterable[str], {"type": "array", "items": {"type": "string"}}),
        (set[str], {"type": "array", "items": {"type": "string"}}),
        (frozenset[int], {"type": "array", "items": {"type": "integer"}}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (
            tuple[int, str],
            {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
        ),
        (tuple[()], {"type": "array", "maxItems": 0}),
        (
            Point,
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "integer", "default": 0}],
                "minItems": 1,
                "maxItems": 2,
            },
        ),
        (dict, {"type": "object"}),
        (dict[str, Any], {"type": "object"}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Mapping[str, bool], {"type": "object", "additionalProperties": {"type": "boolean"}}),
        (dict[Color, Any], {"type": "object", "propertyNames": {"enum": ["red", "blue"]}}),
        (dict[int, Any], {"type": "object", "propertyNames": {"pattern": "^-?(0|[1-9][0-9]*)$"}}),
    ],
)
def test_a_container_says_what_it_holds(annotation, schema):
    assert property_of(annotation) == schema


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (int | None, {"type": ["integer", "null"]}),
        (typing.Optional[str], {"type": ["string", "null"]}),  # noqa: UP045
        (int | str | None, {"type": ["integer", "string", "null"]}),
        (int | float, {"type": "number"}),
        (list[str] | None, {"type": ["array", "null"], "items": {"type": "string"}}),
        (Literal["a"] | None, {"type": ["string", "null"], "enum": ["a", None]}),
        (str | list[str], {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
        (str | Path, {"type": "string"}),
        (int | Any, {}),
    ],
)
def test_a_union_is_written_in_its_shortest_form(annotation, schema):
    assert property_of(annotation) == schema


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (Annotated[int, "How many"], {"type": "integer", "description": "How many"}),
        (
            Annotated[int, Param("How many", ge=0, le=9)],
            {"type": "integer", "minimum": 0, "maximum": 9, "description": "How many"},
        ),
        (Annotated[int, "From here", Param(ge=1)], {"type": "integer", "minimum": 1, "description": "From here"}),
        (Annotated[float, Param(gt=0, lt=1)], {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}),
        (Annotated[int, Param(multiple_of=5)], {"type": "integer", "multipleOf": 5}),
        (Annotated[str, Param(min_length=1, max_length=3)], {"type": "string", "minLength": 1, "maxLength": 3}),
        (Annotated[str, Param(pattern="^a")], {"type": "string", "pattern": "^a"}),
        (Annotated[list[int], Param(min_length=1)], {"type": "array", "items": {"type": "integer"}, "minItems": 1}),
        (Annotated[dict[str, Any], Param(max_length=2)], {"type": "object", "maxProperties": 2}),
        (Annotated[str | None, Param(min_length=1)], {"type": ["string", "null"], "minLength": 1}),
        (Annotated[str, Param(examples=["a"])], {"type": "string", "examples": ["a"]}),
        (list[Annotated[int, Param(ge=0)]], {"type": "array", "items": {"type": "integer", "minimum": 0}}),
        (Annotated[int, "words", 42, object()], {"type": "integer", "description": "words"}),
    ],
)
def test_annotated_adds_words_and_bounds(annotation, schema):
    assert property_of(annotation) == schema


@pytest.mark.parametrize(
    ("annotation", "default", "shown"),
    [
        (int, 10, 10),
        (str, "", ""),
        (bool, False, False),
        (list[int], [1], [1]),
        (tuple[int, ...], (1, 2), [1, 2]),
        (dict[str, Any], {"a": [None]}, {"a": [None]}),
        (Color, Color.RED, "red"),
        (Path, Path("src"), "src"),
    ],
)
def test_a_default_that_json_can_say_is_shown(annotation, default, shown):
    assert property_of(annotation, default=default)["default"] == shown


@pytest.mark.parametrize("default", [None, object(), float("nan"), float("inf"), {1: 2}, [object()], b"x"])
def test_any_other_default_is_left_out(default):
    assert "default" not in property_of(Any, default=default)


def test_no_schema_shares_its_dicts_with_another():
    first, second = property_of(list[int]), property_of(list[int])
    first["items"]["type"] = "string"
    assert second == property_of(list[int]) == {"type": "array", "items": {"type": "integer"}}


@pytest.mark.parametrize(
    ("annotation", "told"),
    [
        (complex, "complex"),
        (bytes, "bytes"),
        (typing.Callable[[], int], "Callable"),
        (list[complex], "complex"),
        (dict[tuple[int, int], str], "tuple"),
        (dict[float, str], "float"),
        (Literal[b"x"], "Literal"),
        (type[int], "type"),
        (set[list[int]], "list"),
        (typing.TypeVar("T"), "T"),
    ],
)
def test_a_type_that_json_cannot_say_is_refused_by_name(annotation, told):
    with pytest.raises(UnsupportedAnnotation) as caught:
        property_of(annotation)
    assert "parameter `x`" in str(caught.value)
    assert told in str(caught.value)
