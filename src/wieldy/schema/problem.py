"""What is wrong with an input, one field at a time, in words a model can act on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Problem(NamedTuple):
    """One field that does not fit. `path` is written as in `edits[2].old_string`; it is empty for the input itself."""

    path: str
    message: str
    expected: str = ""
    got: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class Misfit(Exception):
    """The input does not fit; `problems` names every wrong field."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("; ".join(map(str, self.problems)))


class SchemaError(Exception):
    """A JSON Schema that cannot be used: it breaks the rules of its draft, or refers to something that is not there."""


class UnsupportedAnnotation(TypeError):
    """A type that JSON Schema cannot express, or a parameter that a call by name cannot fill."""

    def __init__(self, owner: str, parameter: str, why: str) -> None:
        super().__init__(f"{owner}: parameter `{parameter}` {why}" if parameter else f"{owner} {why}")
        self.owner = owner
        self.parameter = parameter
