"""Type hints that are still text, as under `from __future__ import annotations`, turned into types."""

from __future__ import annotations

import sys
import types
import typing
from functools import lru_cache
from typing import Any

from wieldy.schema.problem import UnsupportedAnnotation


@lru_cache(maxsize=4096)
def _compiled(text: str) -> types.CodeType:
    # The first `compile` of a program sets up every type of syntax tree there is, which takes longer than all the rest.
    code: types.CodeType = eval(f"lambda: (\n{text}\n)").__code__
    return code


def resolve(annotation: Any, function: types.FunctionType, owner: str, parameter: str) -> Any:
    """The type an annotation of a function means."""
    if type(annotation) is not str:
        return annotation
    try:
        return _evaluated(annotation, function.__globals__)
    except NameError:
        pass  # perhaps a name of an enclosing function
    except Exception as error:
        raise UnsupportedAnnotation(
            owner, parameter, f"has an unreadable annotation `{annotation}`: {error}"
        ) from error
    try:
        return _evaluated(annotation, {**function.__globals__, **_enclosing(function)})
    except Exception as error:
        raise UnsupportedAnnotation(owner, parameter, f"is annotated `{annotation}`, but {error}") from error


def _evaluated(text: str, scope: dict[str, Any]) -> Any:
    value = eval(_compiled(text), scope)
    return _evaluated(value, scope) if type(value) is str else value


def _enclosing(function: types.FunctionType) -> dict[str, Any]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    return {name: cell.cell_contents for name, cell in cells}


def hints_of(cls: type) -> dict[str, Any]:
    """The resolved annotations of a class and its bases, `Annotated` and `NotRequired` kept."""
    if hasattr(cls, "__record_fields__"):
        try:
            return _plain_hints(cls)
        except NameError:
            pass  # a class made inside a function
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


def _plain_hints(cls: type) -> dict[str, Any]:
    """The same for a class whose annotations are plain text; `typing` takes longer for it."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        for name, text in base.__dict__.get("__annotations__", {}).items():  # noqa: RUF063 - inspect is slow
            scope = vars(sys.modules[base.__module__])
            found[name] = _evaluated(text, scope) if type(text) is str else text
    return found
