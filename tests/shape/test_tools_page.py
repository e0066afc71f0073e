"""`docs/tools.md` has a line for every tool, with the parameters it really takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from wieldy.tools import MODULES, builtin_loaders

PAGE = (Path(__file__).parents[2] / "docs" / "tools.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `(\w+)` \|(.*)\|$", PAGE, re.MULTILINE))


def test_every_tool_and_nothing_else_has_a_line() -> None:
    assert set(ROWS) == set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_the_line_has_the_parameters_and_says_which_may_be_left_out(name: str) -> None:
    schema = builtin_loaders()[name]().schema
    parameters, _, what = ROWS[name].partition("|")
    told = re.findall(r"(\*?)`([\w-]+)`\*?", parameters)
    required = set(schema.get("required", ()))
    assert [parameter for _, parameter in told] == list(schema["properties"])
    assert {parameter for mark, parameter in told if not mark} == required
    assert len(what.strip()) > 10


def test_every_built_in_tool_is_loaded_under_its_name():
    for name, load in builtin_loaders().items():
        tool = load()
        assert tool.name == name
        assert tool.schema["type"] == "object"
