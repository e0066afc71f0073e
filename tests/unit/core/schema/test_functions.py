from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from inline_snapshot import snapshot

from wieldy.core.schema.check import InvalidInput, UnsupportedAnnotation
from wieldy.core.schema.fields import Param
from wieldy.core.schema.parameters import Parameters

if TYPE_CHECKING:
    from decimal import Decimal


def find(path: str, limit: int = 10, recursive: bool = False, tags: list[str] | None = None) -> str:
    """Find files below a folder.

    Looks at names only.

    Args:
        path: Where to begin.
        limit: How many names to give back,
            at most.
        tags (list of str, optional): Only these.

    Returns:
        The names.
    """
    raise AssertionError


def test_a_function_is_its_annotations_defaults_and_docstring():
    assert Parameters.from_function(find).schema == snapshot(
        {
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Where to begin."},
                "limit": {"type": "integer", "description": "How many names to give back, at most.", "default": 10},
                "recursive": {"type": "boolean", "default": False},
                "tags": {"type": ["array", "null"], "items": {"type": "string"}, "description": "Only these."},
            },
            "required": ["path"],
            "additionalProperties": False,
        }
    )


def test_a_function_without_parameters_takes_an_empty_object():
    def now():
        raise AssertionError

    parameters = Parameters.from_function(now)
    assert parameters.schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert parameters.accept({}) == {}
    with pytest.raises(InvalidInput, match="x: is not a known field"):
        parameters.accept({"x": 1})


def test_annotated_words_win_over_the_docstring():
    def tool(a: Annotated[int, "from the annotation"], b: int):
        """Do.

        Args:
            a: from the docstring
            b: also from there
        """

    properties = Parameters.from_function(tool).schema["properties"]
    assert properties["a"]["description"] == "from the annotation"
    assert properties["b"]["description"] == "also from there"


def test_a_wire_name_is_shown_and_the_python_name_comes_back():
    def grep(pattern: str, after: Annotated[int | None, Param("Lines after", name="-A", ge=0)] = None):
        raise AssertionError

    parameters = Parameters.from_function(grep)
    assert list(parameters.schema["properties"]) == ["pattern", "-A"]
    assert parameters.accept({"pattern": "x", "-A": 3}) == {"pattern": "x", "after": 3}
    with pytest.raises(InvalidInput, match="after: is not a known field"):
        parameters.accept({"pattern": "x", "after": 3})


def test_aliases_come_from_the_annotation_and_the_declaration():
    def read(
        file_path: Annotated[str, Param(aliases=("path", "file"))], offset: Annotated[int, Param(name="from")] = 0
    ):
        raise AssertionError

    parameters = Parameters.from_function(read, aliases={"filename": "file_path", "start": "offset"})
    assert parameters.aliases == {"path": "file_path", "file": "file_path", "filename": "file_path", "start": "from"}


def test_an_alias_never_hides_a_field():
    def copy(source: str, path: str):
        raise AssertionError

    assert Parameters.from_function(copy, aliases={"path": "source", "from": "source"}).aliases == {"from": "source"}
    raw = {"type": "object", "properties": {"a": {}, "b": {}}}
    assert Parameters.from_schema(raw, aliases={"a": "b", "c": "b"}).aliases == {"c": "b"}


def test_two_parameters_of_one_wire_name_are_refused():
    def tool(a: Annotated[int, Param(name="x")], x: int):
        raise AssertionError

    with pytest.raises(UnsupportedAnnotation, match="parameter `x` has the name of another one"):
        Parameters.from_function(tool)


def test_skipped_parameters_are_neither_shown_nor_resolved():
    def tool(a: int, ctx: Decimal):
        raise AssertionError

    parameters = Parameters.from_function(tool, skip=("ctx",))
    assert list(parameters.schema["properties"]) == ["a"]
    assert parameters.accept({"a": 1}) == {"a": 1}
    with pytest.raises(
        UnsupportedAnnotation, match="parameter `ctx` is annotated `Decimal`, but name 'Decimal' is not defined"
    ):
        Parameters.from_function(tool)


def test_a_name_of_the_enclosing_function_is_found():
    Choice = Annotated[str, Param("one of them")]

    def tool(a: Choice):
        return Choice

    assert Parameters.from_function(tool).schema["properties"]["a"]["description"] == "one of them"


def test_keyword_arguments_open_the_schema_for_their_type():
    def tool(a: int, **rest: str):
        raise AssertionError

    parameters = Parameters.from_function(tool)
    assert parameters.schema["additionalProperties"] == {"type": "string"}
    assert parameters.accept({"a": 1, "b": "x"}) == {"a": 1, "b": "x"}
    with pytest.raises(InvalidInput, match="b: expected a string, got the number 2"):
        parameters.accept({"a": 1, "b": 2})


def test_untyped_keyword_arguments_take_anything():
    def tool(**rest):
        raise AssertionError

    parameters = Parameters.from_function(tool)
    assert parameters.schema["additionalProperties"] is True
    assert parameters.accept({"a": [1, None]}) == {"a": [1, None]}


def test_keyword_arguments_cannot_smuggle_in_a_renamed_parameter():
    def tool(after: Annotated[int, Param(name="-A")] = 0, **rest: Any):
        raise AssertionError

    with pytest.raises(InvalidInput, match="`after` is not a known field"):
        Parameters.from_function(tool).accept({"after": "unchecked"})


def test_values_without_names_are_refused():
    def many(*values: int):
        raise AssertionError

    def positional(a: int, /):
        raise AssertionError

    with pytest.raises(UnsupportedAnnotation, match=r"many: parameter `\*values` .* take a list instead"):
        Parameters.from_function(many)
    with pytest.raises(UnsupportedAnnotation, match="positional: parameter `a` is positional-only"):
        Parameters.from_function(positional)


def test_a_parameter_without_annotation_is_refused():
    def tool(a: Any, *, b=2):
        raise AssertionError

    with pytest.raises(UnsupportedAnnotation, match="parameter `b` has no annotation"):
        Parameters.from_function(tool)


def test_a_parameter_of_any_type_takes_anything():
    def tool(a: Any, *, b: Any = 2):
        raise AssertionError

    parameters = Parameters.from_function(tool)
    assert parameters.schema["properties"] == {"a": {}, "b": {"default": 2}}
    assert parameters.schema["required"] == ["a"]
    assert parameters.accept({"a": {"x": [1]}}) == {"a": {"x": [1]}}


class Greeter:
    def greet(self, name: str) -> str:
        raise AssertionError

    def __call__(self, name: str, loud: bool = False) -> str:
        raise AssertionError


def logged(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (Greeter().greet, ["name"]),
        (Greeter(), ["name", "loud"]),
        (logged(find), ["path", "limit", "recursive", "tags"]),
        (functools.partial(find, limit=3), ["path", "limit", "recursive", "tags"]),
    ],
)
def test_methods_objects_partials_and_decorated_functions_are_understood(function, names):
    assert list(Parameters.from_function(function).schema["properties"]) == names


def test_a_builtin_is_refused_in_words():
    with pytest.raises(UnsupportedAnnotation, match="print is not a Python function"):
        Parameters.from_function(print)


def test_a_broken_annotation_is_quoted():
    def tool(a: int):
        raise AssertionError

    tool.__annotations__["a"] = "list["
    with pytest.raises(UnsupportedAnnotation, match=r"unreadable annotation `list\[`"):
        Parameters.from_function(tool)
