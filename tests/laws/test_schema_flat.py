"""The short way of plain inputs: whatever it takes, the long way takes too, and makes the same of it."""

from __future__ import annotations

from typing import Annotated, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.schema.check import Checker
from wieldy.schema.convert import Converter
from wieldy.schema.fields import Param, fields_of_function
from wieldy.schema.flat import flat_arguments, flat_object

LAW = settings(max_examples=400, deadline=None)


def mixed(
    path: str,
    count: int = 1,
    *,
    flag: bool = False,
    maybe: str | None = None,
    either: int | str = 0,
    odd: Annotated[int, Param(name="-A")] = 0,
    bounded: Annotated[int, Param(ge=1)] = 1,
    ranged: Annotated[int, Param(ge=1, le=3)] = 1,
    long: Annotated[str, Param(min_length=2)] = "ab",
    ratio: float = 0.5,
    several: list[str] | None = None,
) -> None:
    """Every kind of parameter."""


def plain(path: str, count: int = 1, maybe: str | None = None) -> None:
    """Nothing but plain ones."""


NAMES = [
    "path",
    "count",
    "flag",
    "maybe",
    "either",
    "-A",
    "odd",
    "bounded",
    "ranged",
    "long",
    "ratio",
    "several",
    "stranger",
]
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.just(1.0),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.text(max_size=2)),
)
INPUTS = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=5) | VALUES


@LAW
@given(INPUTS | INPUTS.map(lambda given: {"path": "a", **given} if isinstance(given, dict) else given))
def test_arguments_taken_the_short_way_are_those_of_the_long_way(given: Any) -> None:
    for function in (mixed, plain):
        fields = fields_of_function(function, ())
        accept = flat_arguments(fields)
        assert accept is not None
        taken = accept(given)
        if taken is not None:
            made = Converter().keyword_arguments(fields)(given)
            assert made == taken
            assert {name: type(value) for name, value in made.items()} == {n: type(v) for n, v in taken.items()}


TYPES = st.sampled_from(["string", "integer", "boolean", "null", "number", "array", ["string", "null"]])
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "type": TYPES,
        "description": st.just("x"),
        "minimum": st.sampled_from([3, 0.5]),
        "minLength": st.just(2),
        "enum": st.just(["a"]),
    },
)
SCHEMAS = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(st.sampled_from(NAMES), FIELDS, max_size=4)},
    optional={
        "required": st.lists(st.sampled_from(NAMES), unique=True, max_size=2),
        "additionalProperties": st.booleans(),
        "minProperties": st.just(2),
        "not": st.just({"required": ["path"]}),
    },
)


@LAW
@given(SCHEMAS, INPUTS)
def test_an_object_taken_the_short_way_fits_its_schema(schema: dict[str, Any], given: Any) -> None:
    accept = flat_object(schema)
    taken = None if accept is None else accept(given)
    if taken is not None:
        assert taken == given
        assert Checker(schema).fits(given)


def test_everyday_inputs_take_the_short_way() -> None:
    accept = flat_arguments(fields_of_function(plain, ()))
    assert accept is not None
    assert accept({"path": "a", "maybe": None}) == {"path": "a", "maybe": None}
    assert accept({"count": 1}) is None
    assert accept({"path": "a", "count": True}) is None
    assert accept({"path": "a", "stranger": 1}) is None
    named = flat_arguments(fields_of_function(mixed, ()))
    assert named is not None
    assert named({"path": "a", "-A": 3}) == {"path": "a", "odd": 3}
    assert named({"path": "a", "bounded": 1, "long": "ab"}) == {"path": "a", "bounded": 1, "long": "ab"}
    assert named({"path": "a", "bounded": 0}) is None
    assert named({"path": "a", "long": "a"}) is None
    assert named({"path": "a", "ranged": 2}) is None


def test_an_object_with_lower_bounds_takes_the_short_way() -> None:
    text, number = {"type": "string", "minLength": 1}, {"type": "integer", "minimum": 1, "description": "x"}
    accept = flat_object({"type": "object", "properties": {"text": text, "number": number}, "required": ["text"]})
    assert accept is not None
    assert accept({"text": "a", "number": 1}) == {"text": "a", "number": 1}
    assert accept({"text": ""}) is None
    assert accept({"text": "a", "number": 0}) is None
    assert accept({"number": 1}) is None
