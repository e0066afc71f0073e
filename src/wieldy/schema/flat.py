"""Inputs of a few plain values, which most are: taken as they are when each is exactly what it should be.

Everything else goes the long way, which converts, explains, and loads a library for it. This way never refuses.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from wieldy.schema.fields import Fields, Param

Accept: TypeAlias = Callable[[Any], dict[str, Any] | None]

_PLAIN = frozenset({str, int, bool, type(None)})
_NAMED: Mapping[str, type] = {"string": str, "integer": int, "boolean": bool, "null": type(None)}
_REMARKS = frozenset({"type", "description", "title", "default", "examples"})
_OBJECT = frozenset({"type", "properties", "required", "additionalProperties", "title", "description", "$schema"})
_BOUNDS = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern")
_LEAST: Mapping[str, type] = {"ge": int, "minimum": int, "min_length": str, "minLength": str}


class Plain:
    """A field whose value is right if its type is one of these; `name` is what it is called in Python.

    `least` is the smallest number or length there may be, where there is one.
    """

    __slots__ = ("least", "name", "types")

    def __init__(self, name: str, types: frozenset[type], least: int | None = None) -> None:
        self.name = name
        self.types = types
        self.least = least


def flat_arguments(fields: Fields) -> Accept | None:
    """Keyword arguments of a function, or None where none of them are plain."""
    from wieldy.schema.fields import MISSING

    if fields.rest is not MISSING or fields.tag is not None:
        return None
    plain = {
        field.wire: told
        for field in fields.fields
        if (told := _plain(field.name, _kinds(field.annotation), _bounds(field.param)))
    }
    return _accepting(plain, [field.wire for field in fields.fields if field.required])


def flat_object(schema: Mapping[str, Any]) -> Accept | None:
    """An object as a raw schema has it, or None where the schema says more than which fields there are."""
    if schema.get("type") != "object" or not _OBJECT.issuperset(schema):
        return None
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, Mapping) or not isinstance(required, list):
        return None
    plain = {name: told for name, field in properties.items() if (told := _told(name, field))}
    return _accepting(plain, required)


def _accepting(plain: Mapping[str, Plain], required: Collection[str]) -> Accept | None:
    if not plain or not all(name in plain for name in required):
        return None

    needed = frozenset(required)

    def accept(value: Any) -> dict[str, Any] | None:
        if type(value) is not dict:
            return None
        accepted = {}
        for name, item in value.items():
            field = plain.get(name)
            if field is None or type(item) not in field.types:
                return None
            if field.least is not None and (len(item) if type(item) is str else item) < field.least:
                return None
            accepted[field.name] = item
        return accepted if needed <= value.keys() else None

    return accept


def _kinds(annotation: Any) -> frozenset[type]:
    """The plain types an annotation allows; none where it allows others too."""
    if isinstance(annotation, type):
        return frozenset((annotation,)) if annotation in _PLAIN else frozenset()
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        kinds = frozenset(typing.get_args(annotation))
        return kinds if kinds <= _PLAIN else frozenset()
    return frozenset()


def _told(name: str, field: Any) -> Plain | None:
    if not isinstance(field, Mapping):
        return None
    kind = field.get("type")
    kinds = set()
    for each in kind if isinstance(kind, list) else [kind]:
        if not isinstance(each, str) or each not in _NAMED:
            return None
        kinds.add(_NAMED[each])
    return _plain(name, frozenset(kinds), {key: field[key] for key in field if key not in _REMARKS})


def _plain(name: str, kinds: frozenset[type], bounds: Mapping[str, Any]) -> Plain | None:
    """The field, if nothing but its type decides, or its type and one lower bound."""
    if not bounds:
        return Plain(name, kinds) if kinds else None
    bound, least = next(iter(bounds.items()))
    if len(bounds) == 1 and kinds == {_LEAST.get(bound)} and type(least) is int:
        return Plain(name, kinds, least)
    return None


def _bounds(param: Param) -> dict[str, Any]:
    return {bound: value for bound in _BOUNDS if (value := getattr(param, bound)) is not None}
