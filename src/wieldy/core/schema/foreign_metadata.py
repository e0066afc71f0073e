"""Reads bounds that are written for other libraries: `annotated_types`, pydantic's `Field`, `typing_extensions.Doc`.

Nothing here imports these libraries: metadata is recognized by its class. A constraint that a JSON Schema cannot express is an
error, so that none is dropped silently.
"""

from __future__ import annotations

from typing import Any

BOUNDS = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern")
# Attributes of pydantic's Field that change what a value becomes.
UNSUPPORTED_FIELD_OPTIONS = ("discriminator", "validate_default", "alias_priority", "validation_alias")
NO_DEFAULT = object()


class UnusableMetadata(ValueError):
    """Metadata of `Annotated` that asks for something that is not supported."""


def is_field_info(value: Any) -> bool:
    """Whether a value is what pydantic's `Field(…)` returns."""
    return type(value).__name__ == "FieldInfo" and type(value).__module__.startswith("pydantic")


def read_metadata(extra: Any) -> dict[str, Any] | None:
    """What a piece of metadata declares, as keywords of `Param`; None where it declares nothing about the value.

    Raises `UnusableMetadata`.
    """
    if is_field_info(extra):
        return _read_field_info(extra)
    kind = type(extra)
    bases = {f"{base.__module__.partition('.')[0]}.{base.__name__}" for base in kind.__mro__}
    if "annotated_types.GroupedMetadata" in bases:
        return merge_metadata(list(extra))
    if kind.__name__ in ("Doc", "DocInfo") and isinstance(getattr(extra, "documentation", None), str):
        return {"about": extra.documentation}
    if "annotated_types.BaseMetadata" in bases:
        return _read_bounds(extra)
    if kind.__module__.partition(".")[0] in ("pydantic", "pydantic_core"):
        raise UnusableMetadata(
            f"{extra!r} is not supported here: take a pydantic model, or check the value in the tool"
        )
    return None


def field_default(info: Any) -> Any:
    """The default in pydantic's `Field(…)`, or `NO_DEFAULT`."""
    if info.default_factory is not None:
        return info.default_factory()
    return NO_DEFAULT if info.is_required() else info.default


def merge_metadata(extras: list[Any]) -> dict[str, Any]:
    """What several pieces declare together; the last one wins."""
    merged: dict[str, Any] = {}
    for extra in extras:
        merged.update(read_metadata(extra) or {})
    return merged


def _read_field_info(info: Any) -> dict[str, Any]:
    # `Field(alias=…)` also sets these two.
    set_by_alias = {} if info.alias is None else {"validation_alias": info.alias, "alias_priority": info.alias_priority}
    for name in UNSUPPORTED_FIELD_OPTIONS:
        value = getattr(info, name, None)
        if value not in (None, False, set_by_alias.get(name)):
            raise UnusableMetadata(f"Field({name}={value!r}) is not supported here: take a pydantic model")
    declared = merge_metadata(list(info.metadata))
    if info.description:
        declared["about"] = info.description
    if info.examples:
        declared["examples"] = info.examples
    if info.alias:
        declared["name"] = info.alias
    return declared


def _read_bounds(extra: Any) -> dict[str, Any]:
    declared = {name: value for name in BOUNDS if (value := getattr(extra, name, None)) is not None}
    others = {
        name: value
        for name, value in (getattr(extra, "__dict__", None) or {}).items()
        if name not in BOUNDS and value not in (None, False)
    }
    if others or not declared:
        raise UnusableMetadata(f"{extra!r} cannot be expressed in a JSON Schema: check the value in the tool")
    return declared
