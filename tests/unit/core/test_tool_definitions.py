"""A tool that is declared wrongly is refused where it is declared."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import pytest

from wieldy import Param, Tool, ToolDefinitionError, tool
from wieldy.core.schema.check import UnsupportedAnnotation

EMPTY: dict[str, Any] = {"type": "object", "properties": {}}


def look(path: str) -> str:
    """Look."""
    return path


@pytest.mark.parametrize("name", ["", " ", "two words", "naïve", "a" * 65, "a/b", "a.b", None, 3])
def test_a_name_that_no_model_can_call_is_refused(name):
    with pytest.raises(ToolDefinitionError, match="name"):
        Tool.from_schema(name, "Does something.", EMPTY, lambda input: "")
    with pytest.raises(ToolDefinitionError, match="name"):
        tool(name=name)(look)


def test_a_function_without_a_usable_name_needs_one():
    with pytest.raises(ToolDefinitionError, match="<lambda>"):
        tool(lambda: "")


@pytest.mark.parametrize("option", ["reads", "writes", "paths"])
def test_a_path_option_must_name_a_parameter(option):
    options: Any = {option: "pat"}
    with pytest.raises(ToolDefinitionError, match="no parameter `pat`; did you mean `path`"):
        tool(**options)(look)
    with pytest.raises(ToolDefinitionError, match="no parameter `path`"):
        Tool.from_schema("x", "Does.", EMPTY, lambda input: "", **{option: "path"})


def test_an_alias_must_stand_for_a_parameter():
    with pytest.raises(ToolDefinitionError, match="no parameter `file_path`"):
        tool(aliases={"path": "file_path"})(look)


def test_a_parameter_may_be_named_as_in_python_or_as_the_model_sees_it():
    @tool(reads="where")
    def renamed(path: Annotated[str, Param(name="where")]) -> str:
        """Look."""
        return path

    assert renamed.paths == ("where",)


def test_an_unknown_option_is_refused_with_the_nearest_name():
    options: Any = {"readonly": True}
    with pytest.raises(ToolDefinitionError, match="`readonly` is not an option of @tool; did you mean `read_only`"):
        tool(**options)(look)
    with pytest.raises(ToolDefinitionError, match="not an option"):
        Tool.from_schema("x", "Does.", EMPTY, lambda input: "", retries=3)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("timeout", "3"),
        ("timeout", -1),
        ("timeout", 0),
        ("timeout", True),
        ("max_result_chars", "many"),
        ("max_result_chars", 0),
        ("read_only", "yes"),
        ("reads", 3),
        ("check", "no"),
        ("concurrency_safe", "no"),
        ("aliases", ["path"]),
        ("description", 3),
    ],
)
def test_an_option_of_the_wrong_type_is_refused(option, value):
    options: Any = {option: value}
    with pytest.raises(ToolDefinitionError, match=option):
        tool(**options)(look)


@pytest.mark.skipif(sys.version_info < (3, 14), reason="needs annotations that are evaluated when asked for")
def test_annotations_may_name_what_is_defined_later_or_for_type_checkers_only():
    code = """
from wieldy import tool

@tool(reads="path")
def look(path: str, options: Options, ctx: ToolContext[Deps]) -> str:
    "Look."
    return path

@tool(read_only=True)
def lost(options: Missing) -> str:
    "Never found."
    return ""

Options = dict[str, int]
"""
    scope: dict[str, Any] = {}
    exec(compile(code, "later.py", "exec", dont_inherit=True), scope)
    assert list(scope["look"].schema["properties"]) == ["path", "options"]
    with pytest.raises(UnsupportedAnnotation, match="`Missing`, but name 'Missing' is not defined"):
        scope["lost"].schema  # noqa: B018
