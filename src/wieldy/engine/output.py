"""Whatever a tool returns → what the model reads and what the caller gets."""

from __future__ import annotations

import json
from typing import Any

from wieldy.core.content import Image, Text
from wieldy.core.record import is_record
from wieldy.core.tool import Output


def as_output(value: Any) -> Output:
    """A string is text, blocks are content, anything else is shown as JSON and kept as data."""
    if isinstance(value, Output):
        return value
    if isinstance(value, str):
        return Output(value)
    if type(value) is int:
        return Output(str(value), data=value)
    if value is None:
        return Output("")
    if isinstance(value, Text | Image):
        return Output((value,))
    if isinstance(value, list | tuple) and value and all(isinstance(item, Text | Image) for item in value):
        return Output(tuple(value))
    data = plain(value)
    return Output(json.dumps(data, ensure_ascii=False, indent=2 if isinstance(data, dict | list) else None), data=data)


def plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if hasattr(type(value), "__dataclass_fields__"):
        import dataclasses

        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if is_record(value):
        return {name: plain(item) for name, item in vars(value).items()}
    if callable(dump := getattr(value, "model_dump", None)):
        return plain(dump(mode="json"))
    import msgspec

    try:
        return msgspec.to_builtins(value)
    except TypeError:
        return str(value)
