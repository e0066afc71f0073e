"""The small joints of JSON Schema: unions in their shortest form, bounds, fixed-length arrays, defaults."""

from __future__ import annotations

import enum
from typing import Any, TypeAlias

from wieldy.schema.annotate import Param
from wieldy.schema.field import MISSING

Schema: TypeAlias = dict[str, Any]

_PATHS = frozenset({"Path", "PurePath", "PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath"})


def is_path(cls: Any) -> bool:
    """Whether a class is one of pathlib's."""
    return getattr(cls, "__name__", "") in _PATHS and cls.__module__.split(".")[0] == "pathlib"


def united(members: list[Schema]) -> Schema:
    """The schema of a union, in its shortest form."""
    distinct: list[Schema] = []
    for member in members:
        if not member:
            return {}
        if member not in distinct or "$ref" in member:
            distinct.append(member)
    if len(distinct) == 1:
        return distinct[0]
    if all(len(member) == 1 and "type" in member for member in distinct):
        kinds = [member["type"] for member in distinct]
        if "number" in kinds and "integer" in kinds:
            kinds.remove("integer")
        return {"type": kinds[0] if len(kinds) == 1 else kinds}
    rest = [member for member in distinct if member != {"type": "null"}]
    if len(rest) == 1 and isinstance(rest[0].get("type"), str):
        schema = {**rest[0], "type": [rest[0]["type"], "null"]}
        if "enum" in schema:
            schema["enum"] = [*schema["enum"], None]
        return schema
    return {"anyOf": distinct}


def bound(schema: Schema, param: Param) -> None:
    """Write a parameter's bounds into its schema, under the keyword that fits its type."""
    for name, keyword in _NUMBERS:
        if (limit := getattr(param, name)) is not None:
            schema[keyword] = limit
    if param.pattern is not None:
        schema["pattern"] = param.pattern
    if param.examples is not None:
        schema["examples"] = list(param.examples)
    if param.min_length is not None or param.max_length is not None:
        for kind in _kinds(schema):
            if suffix := _LENGTHS.get(kind):
                if param.min_length is not None:
                    schema["min" + suffix] = param.min_length
                if param.max_length is not None:
                    schema["max" + suffix] = param.max_length


_NUMBERS = (
    ("ge", "minimum"),
    ("gt", "exclusiveMinimum"),
    ("le", "maximum"),
    ("lt", "exclusiveMaximum"),
    ("multiple_of", "multipleOf"),
)
_LENGTHS = {"string": "Length", "array": "Items", "object": "Properties"}


def _kinds(schema: Schema) -> set[str]:
    kinds = schema.get("type", [])
    found = {kinds} if isinstance(kinds, str) else set(kinds)
    return found.union(*map(_kinds, schema.get("anyOf", ())))


def unless_empty(key: str, schema: Schema) -> Schema:
    """The keyword, or nothing where it would say nothing."""
    return {key: schema} if schema else {}


def array_of(items: list[Schema], minimum: int) -> Schema:
    """A list with one schema a place, of which the first `minimum` must be there."""
    if not items:
        return {"type": "array", "maxItems": 0}
    return {"type": "array", "prefixItems": items, "minItems": minimum, "maxItems": len(items)}


def as_json(default: Any, depth: int = 0) -> Any:
    """A default as JSON, or MISSING if JSON cannot say it."""
    if isinstance(default, enum.Enum):
        return as_json(default.value, depth)
    kind = type(default)
    if kind in (str, int, bool, type(None)):
        return default
    if kind is float:
        return default if default - default == 0 else MISSING  # neither infinite nor NaN
    if depth > 8:
        return MISSING
    if kind in (list, tuple):
        items = [as_json(item, depth + 1) for item in default]
        return MISSING if MISSING in items else items
    if kind is dict and all(type(key) is str for key in default):
        values = {key: as_json(value, depth + 1) for key, value in default.items()}
        return MISSING if MISSING in values.values() else values
    return str(default) if is_path(kind) else MISSING
