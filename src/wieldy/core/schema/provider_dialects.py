"""Adapt schemas to what each provider's API accepts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Dialect:
    """The limits of one API. `unions` are the keywords refused at the top of an input schema."""

    unions = ("anyOf", "oneOf", "allOf")

    def __init__(self, name: str, *drops: str) -> None:
        self.name = name
        self.drops = frozenset(("$schema", "$id", "$comment", *drops))


ANTHROPIC = Dialect("anthropic")
OPENAI = Dialect("openai", "$anchor")


def adapt_schema(schema: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    """Return a schema that the API accepts: an object at the top, unions there merged, unknown keywords dropped.

    A merged union is wider than the original; the call itself is still checked against the original.
    """
    top = {key: value for key, value in schema.items() if key not in dialect.drops}
    for union in dialect.unions:
        options = top.pop(union, None)
        if isinstance(options, list):
            top = _merge(top, [o for o in options if isinstance(o, Mapping)], every=union == "allOf")
    if "$ref" in top:
        top = _inline_reference(top)
    top["type"] = "object"
    if not isinstance(top.get("properties"), Mapping):
        top["properties"] = {}
    return top


def _merge(top: dict[str, Any], options: list[Mapping[str, Any]], *, every: bool) -> dict[str, Any]:
    properties = dict(top.get("properties", {}))
    needed = [set(option.get("required", ())) for option in options]
    for option in options:
        for name, value in option.get("properties", {}).items():
            properties.setdefault(name, value)
    common = (set.union(*needed) if every else set.intersection(*needed)) if needed else set()
    merged = {**top, "properties": properties}
    if required := [*top.get("required", ()), *sorted(common - set(top.get("required", ())))]:
        merged["required"] = required
    merged.pop("additionalProperties", None)
    return merged


def _inline_reference(top: dict[str, Any]) -> dict[str, Any]:
    """Replace a reference at the top by its target."""
    seen: set[str] = set()
    while isinstance(reference := top.get("$ref"), str) and reference.startswith("#/") and reference not in seen:
        seen.add(reference)
        target: Any = top
        for part in reference[2:].split("/"):
            target = target.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(target, Mapping) else None
        rest = {key: value for key, value in top.items() if key != "$ref"}
        top = {**(target if isinstance(target, Mapping) else {}), **rest}
    top.pop("$ref", None)
    return top
