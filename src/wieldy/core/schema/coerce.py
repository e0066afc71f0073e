"""Coerce values of nearly the right type, only where the schema forbids the value and permits the coerced one.

A field that permits strings is never changed. If the result as a whole is not valid, the value is returned unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from wieldy.core.schema.check import SchemaValidator
from wieldy.core.schema.strict_json import decode

Notes: TypeAlias = tuple[str, ...]

_ALL = frozenset({"string", "integer", "number", "boolean", "array", "object", "null"})
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_BOOLEANS = {"true": True, "false": False, "True": True, "False": False}
_MAX_REFERENCES = 16


def coerce(schema: Mapping[str, Any], value: dict[str, Any]) -> tuple[dict[str, Any], Notes]:
    """Return the coerced value and a note for each change; the value unchanged if the result would not be valid."""
    notes: list[str] = []
    coerced = _Coercion(schema, notes).at(schema, value, "")
    if notes and SchemaValidator(schema).fits(coerced):
        return coerced, tuple(notes)
    return value, ()


class _Coercion:
    """Walks over a value and its schema side by side."""

    def __init__(self, root: Mapping[str, Any], notes: list[str]) -> None:
        self._root = root
        self._notes = notes

    def at(self, schema: Any, value: Any, path: str) -> Any:
        """Coerce the value at one path."""
        schema = self._dereference(schema)
        if isinstance(value, str):
            return self._text(schema, value, path)
        if isinstance(value, dict):
            return self._object(self._branch(schema, value, "object"), value, path)
        if isinstance(value, list):
            return self._list(self._branch(schema, value, "array"), value, path)
        return value

    def _text(self, schema: Any, text: str, path: str) -> Any:
        permitted = self._permitted(schema)
        if "string" in permitted:
            return text
        if text[:1] in "[{" and permitted & {"array", "object"}:
            return self._decoded(text, permitted, path)
        if text in _BOOLEANS and "boolean" in permitted:
            self._notes.append(f'`{path}`: the string "{text}" was read as {text.lower()}')
            return _BOOLEANS[text]
        if number := _NUMBER.fullmatch(text):
            whole = number[1] is None and number[2] is None
            if ("number" in permitted or ("integer" in permitted and whole)) and len(text) < 300:
                self._notes.append(f'`{path}`: the string "{text}" was read as a number')
                return int(text) if whole else float(text)
        return text

    def _decoded(self, text: str, permitted: frozenset[str], path: str) -> Any:
        try:
            value, _ = decode(text)
        except ValueError:
            return text
        kind = "a list" if isinstance(value, list) else "an object"
        if ("array" if isinstance(value, list) else "object") not in permitted:
            return text
        self._notes.append(f"`{path}`: a string holding {kind} was read as {kind}")
        return value

    def _object(self, schema: Any, value: dict[str, Any], path: str) -> dict[str, Any]:
        if not isinstance(schema, Mapping):
            return value
        properties = schema.get("properties") or {}
        required = schema.get("required") or ()
        others = schema.get("additionalProperties")
        coerced = {}
        for key, item in value.items():
            below = f"{path}.{key}" if path else key
            inner = properties.get(key, others)
            if item is None and key in properties and key not in required and "null" not in self._permitted(inner):
                self._notes.append(f"`{below}`: null was left out, as the field is optional")
                continue
            coerced[key] = item if inner is None else self.at(inner, item, below)
        return coerced

    def _list(self, schema: Any, value: list[Any], path: str) -> list[Any]:
        if not isinstance(schema, Mapping):
            return value
        first = schema.get("prefixItems") or ()
        rest = schema.get("items")
        if isinstance(rest, list):  # draft 7 writes prefixItems this way
            first, rest = rest, schema.get("additionalItems")
        return [
            self.at(first[index] if index < len(first) else rest, item, f"{path}[{index}]")
            for index, item in enumerate(value)
        ]

    def _branch(self, schema: Any, value: Any, kind: str) -> Any:
        """The only alternative for this kind of value, if there is just one."""
        if not isinstance(schema, Mapping):
            return schema
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema and "properties" not in schema and "items" not in schema:
                branches = [self._dereference(branch) for branch in schema[keyword]]
                fitting = [branch for branch in branches if kind in self._permitted(branch)]
                return fitting[0] if len(fitting) == 1 else None
        return schema

    def _dereference(self, schema: Any) -> Any:
        """Follow references inside the document; None where the target is unknown."""
        for _ in range(_MAX_REFERENCES):
            if not isinstance(schema, Mapping) or "$ref" not in schema:
                return schema
            schema = self._target(schema["$ref"])
        return None

    def _target(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return self._root if reference == "#" else None
        node: Any = self._root
        for step in reference[2:].split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, Mapping) or name not in node:
                return None
            node = node[name]
        return node

    def _permitted(self, schema: Any, depth: int = 0) -> frozenset[str]:
        """The JSON types a schema permits; all of them where that is unknown."""
        schema = self._dereference(schema)
        if schema is False:
            return frozenset()
        if not isinstance(schema, Mapping) or depth > _MAX_REFERENCES:
            return _ALL
        permitted = _ALL
        if (kinds := schema.get("type")) is not None:
            permitted &= _with_integers([kinds] if isinstance(kinds, str) else kinds)
        if "enum" in schema:
            permitted &= _with_integers(_kind(value) for value in schema["enum"])
        if "const" in schema:
            permitted &= _with_integers([_kind(schema["const"])])
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                permitted &= frozenset().union(*(self._permitted(branch, depth + 1) for branch in schema[keyword]))
        for branch in schema.get("allOf", ()):
            permitted &= self._permitted(branch, depth + 1)
        return permitted


def _with_integers(kinds: Any) -> frozenset[str]:
    types = frozenset(kinds)
    return types | {"integer"} if "number" in types else types


def _kind(value: Any) -> str:
    names = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
    return names.get(type(value), "null")
