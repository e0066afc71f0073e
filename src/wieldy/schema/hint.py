"""Type hints that are still text, as under `from __future__ import annotations`, turned into types."""

from __future__ import annotations

import types
import typing
from functools import lru_cache
from typing import Any

from wieldy.schema.problem import UnsupportedAnnotation


@lru_cache(maxsize=4096)
def _compiled(text: str) -> types.CodeType:
    return compile(text, "<annotation>", "eval")


def resolve(annotation: Any, function: types.FunctionType, owner: str, parameter: str) -> Any:
    """The type an annotation of a function means."""
    if type(annotation) is not str:
        return annotation
    try:
        return _evaluated(annotation, function.__globals__, None)
    except NameError:
        pass  # perhaps a name of an enclosing function
    except Exception as error:
        raise UnsupportedAnnotation(
            owner, parameter, f"has an unreadable annotation `{annotation}`: {error}"
        ) from error
    try:
        return _evaluated(annotation, function.__globals__, _enclosing(function))
    except Exception as error:
        raise UnsupportedAnnotation(owner, parameter, f"is annotated `{annotation}`, but {error}") from error


def _evaluated(text: str, scope: dict[str, Any], names: dict[str, Any] | None) -> Any:
    value = eval(_compiled(text), scope, names)
    return _evaluated(value, scope, names) if type(value) is str else value


def _enclosing(function: types.FunctionType) -> dict[str, Any]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    return {name: cell.cell_contents for name, cell in cells}


def hints_of(cls: type) -> dict[str, Any]:
    """The resolved annotations of a class and its bases, `Annotated` and `NotRequired` kept."""
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except NameError:
        pass  # perhaps the class itself, where it was made inside a function
    try:
        return typing.get_type_hints(cls, localns={**vars(cls), cls.__name__: cls}, include_extras=True)
    except NameError as error:
        raise UnsupportedAnnotation(
            cls.__qualname__, "", f"has an annotation that cannot be resolved: {error}"
        ) from error
