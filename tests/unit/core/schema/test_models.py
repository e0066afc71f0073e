from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Required, TypedDict

import msgspec
import pydantic
import pytest
import typing_extensions
from inline_snapshot import snapshot

from wieldy.core.schema.check import InvalidInput, UnsupportedAnnotation
from wieldy.core.schema.fields import Param
from wieldy.core.schema.parameters import Parameters


@dataclass
class Edit:
    """One replacement.

    Attributes:
        old: What to look for.
    """

    old: str
    new: str
    replace_all: bool = False
    tags: list[str] = field(default_factory=list)
    seen: int = field(init=False, default=0)


@dataclass
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list)


@dataclass
class Ping:
    pong: Pong | None = None


@dataclass
class Pong:
    ping: Ping | None = None


class Options(TypedDict, total=False):
    depth: Required[int]
    follow: bool
    after: Annotated[int, Param("Lines after", name="-A")]


class Strict(TypedDict):
    name: str
    note: NotRequired[str]


class Range(msgspec.Struct, rename="camel"):
    first_line: int
    last_line: Annotated[int, msgspec.Meta(ge=1, description="Inclusive")] = 1


class Circle(msgspec.Struct, tag="circle"):
    radius: float


class Square(msgspec.Struct, tag="square"):
    side: float


class Listed(msgspec.Struct, array_like=True):
    a: int


class Point(NamedTuple):
    x: int
    y: int = 0


class Address(pydantic.BaseModel):
    street: str


class Person(pydantic.BaseModel):
    name: str
    age: int = pydantic.Field(default=0, ge=0, description="In years")
    home: Address | None = None

    @pydantic.field_validator("name")
    @classmethod
    def _no_blanks(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("a name has letters")
        return value


class Folder(pydantic.BaseModel):
    inner: list[Folder] = []


@dataclass
class Span:
    start: int
    end: int

    def __post_init__(self) -> None:
        if self.end < self.start:
            raise ValueError("end lies before start")


def one(annotation: Any) -> Parameters:
    def tool(x):
        raise AssertionError

    tool.__annotations__ = {"x": annotation}
    return Parameters.from_function(tool)


def test_a_dataclass_is_shown_in_place_and_made():
    parameters = one(list[Edit])
    assert parameters.schema["properties"]["x"]["items"] == snapshot(
        {
            "description": "One replacement.",
            "type": "object",
            "properties": {
                "old": {"type": "string", "description": "What to look for."},
                "new": {"type": "string"},
                "replace_all": {"type": "boolean", "default": False},
                "tags": {"type": "array", "items": {"type": "string"}, "default": []},
            },
            "required": ["old", "new"],
            "additionalProperties": False,
        }
    )
    assert parameters.accept({"x": [{"old": "a", "new": "b"}]}) == {"x": [Edit("a", "b")]}


def test_an_unknown_field_of_a_nested_model_is_refused_not_dropped():
    with pytest.raises(InvalidInput) as caught:
        one(list[Edit]).accept({"x": [{"old": "a", "new": "b", "replaceAll": True}]})
    assert [problem.path for problem in caught.value.problems] == ["x[0].replaceAll"]


def test_a_recursive_model_refers_to_its_definition():
    parameters = one(Tree | None)
    assert parameters.schema["properties"]["x"] == {"anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "null"}]}
    assert parameters.schema["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    value = {"name": "a", "children": [{"name": "b"}]}
    assert parameters.accept({"x": value}) == {"x": Tree("a", [Tree("b")])}
    with pytest.raises(InvalidInput, match=r"x\.children\[0\]\.name: is required but missing"):
        parameters.accept({"x": {"name": "a", "children": [{}]}})


def test_models_that_contain_each_other_are_closed_correctly():
    parameters = Parameters.from_type(Ping)
    assert parameters.accept({"pong": {"ping": {"pong": None}}}) == Ping(Pong(Ping()))
    with pytest.raises(InvalidInput):
        parameters.accept({"pong": {"ping": {"pong": 1}}})


def test_a_model_used_twice_is_defined_once():
    def tool(a: Edit, b: Annotated[Edit, "another one"]):
        raise AssertionError

    schema = Parameters.from_function(tool).schema
    assert schema["properties"]["a"] == {"$ref": "#/$defs/Edit"}
    assert schema["properties"]["b"] == {"$ref": "#/$defs/Edit", "description": "another one"}
    assert list(schema["$defs"]) == ["Edit"]


def test_two_models_of_one_name_stay_apart():
    def named(kind: Any) -> Any:
        return dataclass(type("Same", (), {"__annotations__": {"value": kind}}))

    one_kind, other_kind = named(int), named(str)

    def tool(a, b, c, d):
        raise AssertionError

    tool.__annotations__ = {"a": one_kind, "b": other_kind, "c": one_kind, "d": other_kind}
    schema = Parameters.from_function(tool).schema
    assert schema["$defs"]["Same"]["properties"] == {"value": {"type": "integer"}}
    assert schema["$defs"]["Same2"]["properties"] == {"value": {"type": "string"}}


def test_a_typed_dict_knows_what_may_be_absent():
    parameters = one(Options)
    assert parameters.schema["properties"]["x"]["required"] == ["depth"]
    assert parameters.accept({"x": {"depth": 1, "-A": 2}}) == {"x": {"depth": 1, "after": 2}}
    assert one(Strict).accept({"x": {"name": "n"}}) == {"x": {"name": "n"}}
    with pytest.raises(InvalidInput, match=r"x\.name: is required"):
        one(Strict).accept({"x": {}})


def test_a_struct_keeps_its_renaming_and_bounds():
    parameters = Parameters.from_type(Range)
    assert parameters.schema["properties"] == snapshot(
        {
            "firstLine": {"type": "integer"},
            "lastLine": {"type": "integer", "minimum": 1, "description": "Inclusive", "default": 1},
        }
    )
    assert parameters.accept({"firstLine": 1, "lastLine": 5}) == Range(1, 5)
    with pytest.raises(InvalidInput, match="lastLine: expected at least 1, got the number 0"):
        parameters.accept({"firstLine": 1, "lastLine": 0})


def test_tagged_structs_are_told_apart():
    parameters = one(Circle | Square)
    assert parameters.accept({"x": {"type": "square", "side": 2}}) == {"x": Square(2.0)}
    assert parameters.accept({"x": {"type": "circle", "radius": 1.5}}) == {"x": Circle(1.5)}
    with pytest.raises(InvalidInput):
        parameters.accept({"x": {"type": "circle", "side": 2}})


def test_a_named_tuple_is_a_list_with_a_place_for_each_field():
    parameters = one(Point)
    assert parameters.accept({"x": [1, 2]}) == {"x": Point(1, 2)}
    assert parameters.accept({"x": [1]}) == {"x": Point(1, 0)}
    for wrong in ([], [1, 2, 3], ["a"], {"x": 1}, "12"):
        with pytest.raises(InvalidInput):
            parameters.accept({"x": wrong})


def test_a_pydantic_model_shows_its_own_schema_and_validates_itself():
    parameters = Parameters.from_type(Person)
    assert parameters.schema["type"] == "object"
    assert parameters.schema["additionalProperties"] is False
    assert parameters.schema["properties"]["age"]["minimum"] == 0
    assert parameters.accept({"name": "Ada", "home": {"street": "x"}}) == Person(name="Ada", home=Address(street="x"))
    with pytest.raises(InvalidInput) as caught:
        parameters.accept({"name": 1, "age": -1, "nick": ""})
    assert {problem.path for problem in caught.value.problems} == {"name", "age", "nick"}


def test_the_validators_of_a_pydantic_model_speak_too():
    with pytest.raises(InvalidInput, match="name: Value error, a name has letters"):
        Parameters.from_type(Person).accept({"name": " "})
    with pytest.raises(InvalidInput, match="a name has letters"):
        one(list[Person]).accept({"x": [{"name": " "}]})


def test_pydantic_models_nest_inside_other_types():
    def tool(people: dict[str, Person], folder: Folder, first: Person | int):
        raise AssertionError

    parameters = Parameters.from_function(tool)
    value = {"people": {"a": {"name": "Ada"}}, "folder": {"inner": [{"inner": []}]}, "first": 3}
    assert parameters.accept(value) == {
        "people": {"a": Person(name="Ada")},
        "folder": Folder(inner=[Folder()]),
        "first": 3,
    }
    with pytest.raises(InvalidInput, match=r"people\.a\.name"):
        parameters.accept({**value, "people": {"a": {"name": 2}}})


class Elder(typing_extensions.TypedDict):
    name: typing_extensions.Required[str]
    note: typing_extensions.NotRequired[str]


def test_types_of_typing_extensions_are_understood_too():
    parameters = one(Elder)
    assert parameters.schema["properties"]["x"]["required"] == ["name"]
    assert parameters.accept({"x": {"name": "n"}}) == {"x": {"name": "n"}}
    alias = typing_extensions.TypeAliasType("alias", list[int])
    assert one(alias).accept({"x": [1]}) == {"x": [1]}


def test_a_recursive_model_inside_a_function_is_resolved():
    @dataclass
    class Local:
        inner: Local | None = None

    assert one(Local).accept({"x": {"inner": {}}}) == {"x": Local(Local())}


def test_a_model_as_deep_as_json_may_be_is_made():
    value: dict[str, Any] = {"name": "leaf"}
    for _ in range(98):
        value = {"name": "node", "children": [value]}
    tree = one(Tree).accept({"x": value})["x"]
    assert tree.children[0].children[0].name == "node"


def test_a_check_of_the_model_itself_becomes_a_problem():
    with pytest.raises(InvalidInput, match="end lies before start"):
        Parameters.from_type(Span).accept({"start": 3, "end": 1})
    with pytest.raises(InvalidInput, match=r"x\[0\]: end lies before start"):
        one(list[Span]).accept({"x": [{"start": 3, "end": 1}]})


def test_the_first_model_that_fits_is_made():
    parameters = one(Span | Edit | Literal["none"])
    assert parameters.accept({"x": {"old": "a", "new": "b"}}) == {"x": Edit("a", "b")}
    assert parameters.accept({"x": "none"}) == {"x": "none"}


@pytest.mark.parametrize("kind", [int, Point, list[int], Listed])
def test_what_is_no_object_cannot_be_an_input(kind):
    with pytest.raises(UnsupportedAnnotation):
        Parameters.from_type(kind)


def test_a_model_with_an_unknown_name_in_it_is_refused():
    @dataclass
    class Broken:
        a: Nowhere  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(UnsupportedAnnotation, match="Nowhere"):
        Parameters.from_type(Broken)


def test_the_way_to_an_unsupported_field_is_told():
    @dataclass
    class Holder:
        inner: complex

    with pytest.raises(UnsupportedAnnotation, match=r"parameter `x\.inner` is annotated `complex`"):
        one(list[Holder])


def test_unknown_fields_of_a_nested_pydantic_model_are_refused_unless_it_allows_them():
    class Open(pydantic.BaseModel, extra="allow"):
        name: str

    class Outer(pydantic.BaseModel):
        address: Address
        opened: Open | None = None

    parameters = Parameters.from_type(Outer)
    with pytest.raises(InvalidInput, match=r"address\.more: is not a known field"):
        parameters.accept({"address": {"street": "x", "more": 1}})
    assert parameters.accept({"address": {"street": "x"}, "opened": {"name": "n", "more": 1}}).opened.more == 1


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs type aliases with a syntax of their own")
def test_a_type_alias_that_refers_to_itself_is_refused():
    scope: dict[str, Any] = {}
    exec("type Json = dict[str, Json] | list[Json] | str", scope)
    with pytest.raises(UnsupportedAnnotation, match="`Json`, which refers to itself"):
        one(scope["Json"])
