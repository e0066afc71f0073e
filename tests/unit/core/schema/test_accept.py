from __future__ import annotations

import enum
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest

from wieldy.core.schema.check import InvalidInput
from wieldy.core.schema.fields import Param
from wieldy.core.schema.parameters import Parameters


class Color(enum.Enum):
    RED = "red"


class Mixed(enum.Enum):
    ONE = 1
    WORD = "word"


def accept(annotation: Any, value: Any) -> Any:
    def tool(x):
        raise AssertionError

    tool.__annotations__ = {"x": annotation}
    return Parameters.from_function(tool).accept({"x": value})["x"]


@pytest.mark.parametrize(
    ("annotation", "value", "made"),
    [
        (str, "007", "007"),
        (float, 1, 1.0),
        (Path, "src/a.py", Path("src/a.py")),
        (Path | None, None, None),
        (list[Path], ["a"], [Path("a")]),
        (dict[str, Path], {"k": "a"}, {"k": Path("a")}),
        (str | Path, "a", "a"),
        (Path | str, "a", Path("a")),
        (datetime, "2026-11-15T10:00:00Z", datetime(2026, 11, 15, 10, tzinfo=UTC)),
        (date, "2026-11-15", date(2026, 11, 15)),
        (time, "10:30:00", time(10, 30)),
        (UUID, "12345678-1234-5678-1234-567812345678", UUID("12345678-1234-5678-1234-567812345678")),
        (datetime | str, "not a date", "not a date"),
        (datetime | date, "2026-11-15", date(2026, 11, 15)),
        (set[int], [1, 1, 2], {1, 2}),
        (frozenset[str], ["a"], frozenset({"a"})),
        (tuple[int, str], [1, "a"], (1, "a")),
        (tuple[int, ...], [1, 2], (1, 2)),
        (Sequence[int], [1], [1]),
        (Iterable[int], [1], [1]),
        (dict[int, str], {"1": "a"}, {1: "a"}),
        (Color, "red", Color.RED),
        (dict[Color, int], {"red": 1}, {Color.RED: 1}),
        (Mixed, 1, Mixed.ONE),
        (Literal[Color.RED, "blue"], "red", Color.RED),
        (Literal[True, "auto"], True, True),
        (int | str | list[int], [1], [1]),
        (list[int] | dict[str, int] | None, {"a": 1}, {"a": 1}),
        (Any, {"deep": [None]}, {"deep": [None]}),
        (int, 2**70, 2**70),
    ],
)
def test_json_becomes_the_python_value_that_was_asked_for(annotation, value, made):
    result = accept(annotation, value)
    assert result == made
    assert type(result) is type(made)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, True),
        (int, "5"),
        (int, 1.5),
        (float, True),
        (bool, 1),
        (bool, "true"),
        (str, 5),
        (str, None),
        (Path, 3),
        (list[int], "[1]"),
        (list[int], 1),
        (Literal["a"], "b"),
        (Literal[1], True),
        (Literal[True], 1),
        (Color, "blue"),
        (Mixed, True),
        (dict[int, str], {"x": "a"}),
        (dict[str, int], [1]),
        (tuple[int, str], [1]),
        (Annotated[str, Param(pattern="^a$")], "a\n"),
        (Annotated[Path, Param(min_length=2)], "a"),
    ],
)
def test_nothing_is_coerced_on_the_way(annotation, value):
    with pytest.raises(InvalidInput):
        accept(annotation, value)


@pytest.mark.parametrize(
    ("annotation", "made"), [(int, 3), (Literal[3], 3), (list[int], [3]), (Annotated[int, Param(ge=0)], 3)]
)
def test_a_whole_float_is_an_integer(annotation, made):
    value = [3.0] if isinstance(made, list) else 3.0
    result = accept(annotation, value)
    assert result == made
    assert type(result[0] if isinstance(result, list) else result) is int


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(datetime, "yesterday"), (date, "2026-13-01"), (UUID, "abc"), (list[datetime], ["soon"]), (float, 10**400)],
)
def test_what_only_the_conversion_can_see_is_a_problem_too(annotation, value):
    with pytest.raises(InvalidInput) as caught:
        accept(annotation, value)
    (problem,) = caught.value.problems
    assert problem.path.startswith("x")
    assert problem.message


def test_every_wrong_field_is_listed_at_once():
    def tool(a: int, b: str, c: list[int], d: Annotated[int, Param(ge=0, le=5)] = 0):
        raise AssertionError

    with pytest.raises(InvalidInput) as caught:
        Parameters.from_function(tool).accept({"a": "x", "c": [1, "2", None], "d": 9, "e": 1})
    assert {str(problem) for problem in caught.value.problems} == {
        "b: is required but missing",
        'a: expected an integer, got the string "x"',
        'c[1]: expected an integer, got the string "2"',
        "c[2]: expected an integer, got null",
        "d: expected at most 5, got the number 9",
        "e: is not a known field",
    }


BOUNDED_UNIONS = """
from typing import Annotated
from wieldy.core.schema.fields import Param
from wieldy.core.schema.parameters import Parameters
word, few = Annotated[str, Param(pattern="^a")], Annotated[int, Param(ge=0, lt=10)]
for _ in range(500):
    def tool(x: word | dict[int, str], y: few | tuple[int, str], z: word | list[few] | None = None): ...
    made = Parameters.from_function(tool).accept({"x": {"1": "b"}, "y": [1, "a"], "z": [3]})
print(made)
"""


def test_unions_with_bounded_members_do_not_corrupt_memory():
    """msgspec 0.22 writes past a buffer on such unions; a debug allocator sees it at once."""
    done = subprocess.run(
        [sys.executable, "-c", BOUNDED_UNIONS],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONMALLOC": "debug"},
    )
    assert done.stdout == "{'x': {1: 'b'}, 'y': (1, 'a'), 'z': [3]}\n", done.stderr[-500:]


def test_a_wrong_pattern_is_said_where_it_is_written():
    with pytest.raises(re.error):
        Param(pattern="(")


@dataclass
class Tree:
    children: list[Tree]


def test_an_input_without_a_bottom_is_a_misfit_and_no_crash():
    tree: dict[str, Any] = {"children": []}
    for _ in range(100_000):
        tree = {"children": [tree]}
    with pytest.raises(InvalidInput, match="nested more than 200 levels deep"):
        accept(Tree, tree)
    recursive = {"type": "object", "properties": {"children": {"items": {"$ref": "#"}}}}
    with pytest.raises(InvalidInput, match="nested more than 200 levels deep"):
        Parameters.from_schema(recursive).accept(tree)


def test_absent_fields_stay_absent_so_that_the_function_fills_them():
    def tool(a: int, b: list[int] | None = None, c: str = "x"):
        raise AssertionError

    assert Parameters.from_function(tool).accept({"a": 1, "b": None}) == {"a": 1, "b": None}


def test_names_that_python_cannot_spell_are_no_trouble():
    def tool(
        class_: Annotated[str, Param(name="class")],
        after: Annotated[int, Param(name="-A")],
        f0: int,
        dotted: Annotated[int, Param(name="a.b")],
    ):
        raise AssertionError

    value = {"class": "c", "-A": 1, "f0": 2, "a.b": 3}
    assert Parameters.from_function(tool).accept(value) == {"class_": "c", "after": 1, "f0": 2, "dotted": 3}


def test_the_input_is_not_changed():
    value = {"x": [{"a": 1.0}]}
    accept(list[dict[str, int]], value["x"])
    assert value == {"x": [{"a": 1.0}]}
    assert type(value["x"][0]["a"]) is float


def test_a_long_value_is_shown_by_its_beginning():
    with pytest.raises(InvalidInput) as caught:
        accept(int, "x" * 10_000)
    assert len(str(caught.value)) < 200


def test_a_number_beside_a_literal_may_be_any_whole_number():
    assert accept(Literal[1, 2] | float, 0) == 0
    assert accept(Literal[1, 2] | float, 1) == 1
    assert accept(Literal[1, 2] | float, 0.5) == 0.5
    assert accept(Literal[1, 2] | float | None, None) is None
