"""The JSON Schema of a settings file, made from the table of keys, for editors and other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from wieldy.settings.keys import Key, tree

FILE = Path(__file__).with_name("settings.schema.json")

_STRINGS: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
_RULE: dict[str, Any] = {
    "type": "object",
    "properties": {"rule": {"type": "string"}, "match": _STRINGS, "not_match": _STRINGS},
    "required": ["rule"],
    "additionalProperties": False,
}
_KINDS: dict[str, dict[str, Any]] = {
    "strings": _STRINGS,
    "rules": {"type": "array", "items": {"anyOf": [{"type": "string"}, _RULE]}},
    "string map": {"type": "object", "additionalProperties": {"type": "string"}},
    "patterns": {"type": "object", "additionalProperties": {"anyOf": [{"type": "string"}, _STRINGS]}},
    "object": {"type": "object"},
    "any": {},
}


_HOOK: dict[str, Any] = {
    "type": "object",
    "properties": {
        "type": {"const": "command"},
        "command": {"description": "What sh runs, or with `args` a program.", "type": "string", "minLength": 1},
        "args": _STRINGS,
        "timeout": {"description": "Seconds it may take.", "type": "number", "exclusiveMinimum": 0},
        "if": {"description": "One permission rule: only calls it covers.", "type": "string"},
        "on_error": {"description": "What its failure means.", "enum": ["block", "warn"]},
    },
    "required": ["command"],
}
_MATCHED_HOOKS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "matcher": {"description": "Names, a regular expression, or nothing for all.", "type": "string"},
        "hooks": {"type": "array", "items": _HOOK},
    },
    "required": ["hooks"],
}


def settings_schema() -> dict[str, Any]:
    """The schema as a plain value."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "wieldy settings",
        **_section(tree()),
        "$defs": {"matchedHooks": _MATCHED_HOOKS},
    }


def as_text() -> str:
    """The schema as the file that is shipped."""
    return json.dumps(settings_schema(), indent=2, ensure_ascii=False) + "\n"


def _section(table: dict[str, Any]) -> dict[str, Any]:
    named = {name: _entry(entry) for name, entry in table.items() if name != "*"}
    schema: dict[str, Any] = {"type": "object"}
    if named:
        schema["properties"] = named
    if "*" in table:
        schema["additionalProperties"] = _entry(table["*"])
    return schema


def _entry(entry: Any) -> dict[str, Any]:
    if not isinstance(entry, Key):
        return _section(entry)
    schema = _hooks() if entry.name == "hooks" else dict(_KINDS.get(entry.kind, {"type": entry.kind}))
    if entry.choices:
        schema["enum"] = list(entry.choices)
    return {"description": entry.what, **schema}


def _hooks() -> dict[str, Any]:
    from wieldy.hooks.moment import MOMENTS

    events = {event: {"type": "array", "items": {"$ref": "#/$defs/matchedHooks"}} for event in MOMENTS}
    return {"type": "object", "properties": events, "additionalProperties": False}


if __name__ == "__main__":
    FILE.write_text(as_text(), "utf-8")
