"""Support for pydantic models: their own validators run after the schema check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wieldy.core.schema.check import InvalidInput, Problem, SchemaValidator
from wieldy.core.schema.derive import pydantic_schema


def pydantic_maker(cls: Any) -> Callable[[Any], Any]:
    """Return a function that checks a value against the schema, then makes an instance with the model's own validators."""
    schema, definitions = pydantic_schema(cls)
    checker = SchemaValidator({**schema, "$defs": definitions} if definitions else schema)

    def make(value: Any) -> Any:
        if not checker.fits(value):
            raise ValueError(f"does not fit {cls.__name__}")
        try:
            return cls.model_validate(value)
        except ValueError as error:
            raise PydanticInvalidInput(_problems(error)) from error

    return make


class PydanticInvalidInput(InvalidInput, ValueError):
    """The model's own validators refused the input."""


def _problems(error: Any) -> list[Problem]:
    problems = []
    for detail in error.errors(include_url=False):
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in detail["loc"])
        problems.append(Problem(path.lstrip("."), detail["msg"]))
    return problems
