"""What each provider's API accepts of a schema, as a table, and how one that asks for more is made acceptable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Dialect:
    """The limits of one API. `unions` are those refused at the top of an input schema."""

    unions = ("anyOf", "oneOf", "allOf")

    def __init__(self, name: str, *drops: str) -> None:
        self.name = name
        self.drops = frozenset(("$schema", "$id", "$comment", *drops))


ANTHROPIC = Dialect("anthropic")
OPENAI = Dialect("openai", "$anchor")


def adapted(schema: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    """A schema the API takes: an object at the top, unions there merged into one, words it does not know left out.

    A merged union is wider than the original; the call itself is still checked against the original.
    """
    top = {key: value for key, value in schema.items() if key not in dialect.drops}
    for union in dialect.unions:
        options = top.pop(union, None)
        if isinstance(options, list):
            top = _merged(top, [o for o in options if isinstance(o, Mapping)], every=union == "allOf")
    if "$ref" in top:
        top = _followed(top)
    top["type"] = "object"
    if not isinstance(top.get("properties"), Mapping):
        top["properties"] = {}
    return top


def _merged(top: dict[str, Any], options: list[Mapping[str, Any]], *, every: bool) -> dict[str, Any]:
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


def _followed(top: dict[str, Any]) -> dict[str, Any]:
    """A reference at the top, replaced by what it refers to."""
    seen: set[str] = set()
    while isinstance(reference := top.get("$ref"), str) and reference.startswith("#/") and reference not in seen:
        seen.add(reference)
        found: Any = top
        for part in reference[2:].split("/"):
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
        rest = {key: value for key, value in top.items() if key != "$ref"}
        top = {**(found if isinstance(found, Mapping) else {}), **rest}
    top.pop("$ref", None)
    return top
