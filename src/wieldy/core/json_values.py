"""Values as JSON: what events, results, decisions and questions return from `as_dict`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct


def to_json(value: Any) -> Any:
    """Convert a value to what JSON can hold. What it does not know becomes its text."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json(item) for item in value]
    if hasattr(type(value), "__dataclass_fields__"):
        import dataclasses

        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Struct):
        as_dict = getattr(value, "as_dict", None)
        return fields_to_json(value) if as_dict is None else as_dict()
    if callable(dump := getattr(value, "model_dump", None)):
        return to_json(dump(mode="json"))
    import msgspec

    try:
        return msgspec.to_builtins(value)
    except TypeError:
        return str(value)


def fields_to_json(value: Struct) -> dict[str, Any]:
    """The fields of a struct as JSON."""
    return {name: to_json(getattr(value, name)) for name in value.__struct_fields__}
