"""Pydantic models of users who have pydantic: their own validation, behind the schema they show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wieldy.schema.check import InvalidInput, Problem, SchemaValidator
from wieldy.schema.derive import pydantic_schema


def pydantic_maker(cls: Any) -> Callable[[Any], Any]:
    """A maker of instances: what the schema forbids is refused first, then the model's own validators speak."""
    schema, definitions = pydantic_schema(cls)
    checker = SchemaValidator({**schema, "$defs": definitions} if definitions else schema)

    def make(value: Any) -> Any:
        if not checker.fits(value):
            raise ValueError(f"does not fit {cls.__name__}")
        try:
            return cls.model_validate(value)
        except ValueError as error:
            raise Refused(_problems(error)) from error

    return make


class Refused(InvalidInput, ValueError):
    """What a model's own validators found wrong."""


def _problems(error: Any) -> list[Problem]:
    found = []
    for detail in error.errors(include_url=False):
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in detail["loc"])
        found.append(Problem(path.lstrip("."), detail["msg"]))
    return found
