"""What a schema promises and what `accept` does are the same thing, for any annotation and any JSON."""

from __future__ import annotations

import enum
import json
import operator
import typing
from dataclasses import make_dataclass
from types import GenericAlias
from typing import Any, NamedTuple

import jsonschema_rs
import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wieldy.core.schema.check import InvalidInput
from wieldy.core.schema.fields import Param
from wieldy.core.schema.parameters import Parameters

LAW = settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Kind(NamedTuple):
    """An annotation, and JSON that fits it."""

    annotation: Any
    fitting: st.SearchStrategy[Any]


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(enum.Enum):
    ONE = 1
    TEXT = "text"
    HALF = 0.5


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)
)
JSON = st.recursive(
    SCALARS | st.sampled_from([0, 1, 1.0, 2.0, "", "red", "text", "1", 0.5]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc12", max_size=2), inner, max_size=3),
    max_leaves=6,
)
LEAVES = st.sampled_from(
    [
        Kind(str, st.text(max_size=5)),
        Kind(int, st.integers()),
        Kind(float, st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53)),
        Kind(bool, st.booleans()),
        Kind(None, st.none()),
        Kind(Any, JSON),
        Kind(list, st.lists(SCALARS, max_size=2)),
        Kind(dict, st.dictionaries(st.text("abc", max_size=2), SCALARS, max_size=2)),
        Kind(typing.Literal["a", "b"], st.sampled_from(["a", "b"])),
        Kind(typing.Literal[1, 2], st.sampled_from([1, 2])),
        Kind(typing.Literal[1, True, "x", None], st.sampled_from([1, True, "x", None])),
        Kind(Color, st.sampled_from(["red", "green"])),
        Kind(Level, st.sampled_from([1, 2])),
        Kind(Mixed, st.sampled_from([1, "text", 0.5])),
        Kind(typing.Annotated[int, Param("few", ge=0, lt=10)], st.integers(0, 9)),
        Kind(typing.Annotated[str, Param(min_length=1, max_length=3)], st.text(min_size=1, max_size=3)),
        Kind(typing.Annotated[str, Param(pattern="^[a-z]+$")], st.from_regex(r"\A[a-z]+\Z")),
        Kind(typing.Annotated[list[int], Param(min_length=1)], st.lists(st.integers(), min_size=1, max_size=2)),
        Kind(tuple[int, str], st.tuples(st.integers(), st.text(max_size=2)).map(list)),
        Kind(tuple[int, ...], st.lists(st.integers(), max_size=2)),
        Kind(set[int], st.lists(st.integers(0, 3), max_size=3)),
        Kind(dict[int, str], st.dictionaries(st.integers().map(str), st.text(max_size=2), max_size=2)),
        Kind(dict[Color, int], st.dictionaries(st.sampled_from(["red", "green"]), st.integers(), max_size=2)),
    ]
)


def containers(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    return st.one_of(
        inner.map(lambda kind: Kind(GenericAlias(list, kind.annotation), st.lists(kind.fitting, max_size=2))),
        inner.map(lambda kind: Kind(GenericAlias(dict, (str, kind.annotation)), _objects(kind.fitting))),
        inner.map(lambda kind: Kind(_optional(kind), _or_null(kind))),
        st.tuples(inner, inner).map(_union),
        st.tuples(inner, inner).map(_dataclass),
        st.tuples(inner, inner).map(_typed_dict),
        st.tuples(inner, inner).map(_struct),
        st.tuples(inner, inner).map(_named_tuple),
    )


def _objects(fitting: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(st.text("abc", max_size=2), fitting, max_size=2)


def _optional(kind: Kind) -> Any:
    return operator.getitem(typing.Union, (kind.annotation, None))


def _or_null(kind: Kind) -> st.SearchStrategy[Any]:
    return st.none() | kind.fitting


def _union(kinds: tuple[Kind, Kind]) -> Kind:
    one, other = kinds
    return Kind(operator.getitem(typing.Union, (one.annotation, other.annotation)), one.fitting | other.fitting)


def _fields(kinds: tuple[Kind, Kind]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({"one": kinds[0].fitting}, optional={"two": kinds[1].fitting})


def _dataclass(kinds: tuple[Kind, Kind]) -> Kind:
    return Kind(
        make_dataclass("Data", [("one", kinds[0].annotation), ("two", kinds[1].annotation, None)]), _fields(kinds)
    )


def _typed_dict(kinds: tuple[Kind, Kind]) -> Kind:
    fields = {"one": kinds[0].annotation, "two": typing.NotRequired[kinds[1].annotation]}
    made = typing.TypedDict("Typed", fields)  # type: ignore[misc]
    return Kind(made, _fields(kinds))


def _struct(kinds: tuple[Kind, Kind]) -> Kind:
    return Kind(
        msgspec.defstruct("Made", [("one", kinds[0].annotation), ("two", kinds[1].annotation, None)]), _fields(kinds)
    )


def _named_tuple(kinds: tuple[Kind, Kind]) -> Kind:
    fields = [("one", kinds[0].annotation), ("two", kinds[1].annotation)]
    made: Any = NamedTuple("Pair", fields)  # type: ignore[misc]
    made._field_defaults["two"] = None
    made.__new__.__defaults__ = (None,)
    return Kind(made, st.tuples(kinds[0].fitting, kinds[1].fitting).map(list) | kinds[0].fitting.map(lambda one: [one]))


KINDS = st.recursive(LEAVES, containers, max_leaves=4)


def _function(**annotations: Any) -> Any:
    def tool(x, y=None):
        raise AssertionError("never called")

    tool.__annotations__ = {"y": str, **annotations}
    return tool


def _accepts(parameters: Parameters, value: Any) -> bool:
    try:
        parameters.accept(value)
    except InvalidInput as misfit:
        assert misfit.problems
        return False
    return True


@LAW
@given(st.data(), KINDS, KINDS)
def test_accept_agrees_with_the_schema_on_any_value(data, x, y):
    parameters = Parameters.from_function(_function(x=x.annotation, y=y.annotation))
    value = data.draw(
        st.fixed_dictionaries({"x": x.fitting}, optional={"y": y.fitting})
        | st.fixed_dictionaries({"x": x.fitting | JSON}, optional={"y": y.fitting | JSON, "z": JSON})
    )
    fits = jsonschema_rs.Draft202012Validator(parameters.schema).is_valid(value)
    assert _accepts(parameters, value) == fits, (parameters.schema, value)


@LAW
@given(st.data(), KINDS)
def test_what_fits_a_type_is_accepted(data, kind):
    parameters = Parameters.from_function(_function(x=kind.annotation))
    value = data.draw(kind.fitting)
    assert "x" in parameters.accept({"x": value})


@LAW
@given(KINDS)
def test_a_schema_is_plain_json_and_valid_in_its_draft(kind):
    schema = Parameters.from_function(_function(x=kind.annotation)).schema
    assert json.loads(json.dumps(schema)) == schema
    assert jsonschema_rs.meta.is_valid({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})


@LAW
@given(st.data(), KINDS)
def test_a_single_value_is_accepted_where_its_schema_accepts_it(data, kind):
    parameters = Parameters.from_annotation(kind.annotation, "it")
    value = data.draw(kind.fitting | JSON)
    fits = jsonschema_rs.Draft202012Validator(parameters.schema).is_valid(value)
    assert _accepts(parameters, value) == fits, (parameters.schema, value)
