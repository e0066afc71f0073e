"""What is wrong with an input, one field at a time, in words a model can act on."""

from __future__ import annotations

from collections.abc import Iterable


class Problem:
    """One field that does not fit. `path` is written as in `edits[2].old_string`; it is empty for the input itself."""

    __slots__ = ("expected", "got", "message", "path")

    def __init__(self, path: str, message: str, expected: str = "", got: str = "") -> None:
        self.path = path
        self.message = message
        self.expected = expected
        self.got = got

    def _words(self) -> tuple[str, str, str, str]:
        return self.path, self.message, self.expected, self.got

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Problem) and self._words() == other._words()

    def __hash__(self) -> int:
        return hash(self._words())

    def __repr__(self) -> str:
        return f"Problem{self._words()}"

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
