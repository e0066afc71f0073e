"""Makes the JSON Schema of settings files and the table of keys in the docs. Run as a program, it writes the first and prints
the second."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from wieldy.core.console import write
from wieldy.core.setting_keys import KEYS, SettingKey, key_tree

_KIND_NAMES = {
    "strings": "list of strings",
    "rules": "list of rules",
    "string map": "strings by name",
    "patterns": "patterns by parameter",
}
FILE = Path(__file__).with_name("settings.schema.json")

_STRINGS: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
_RULE: dict[str, Any] = {
    "type": "object",
    "properties": {"rule": {"type": "string"}, "match": _STRINGS, "not_match": _STRINGS},
    "required": ["rule"],
    "additionalProperties": False,
}
_SCHEMAS: dict[str, dict[str, Any]] = {
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
    """Return the JSON Schema of a settings file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "wieldy settings",
        **_section_schema(key_tree()),
        "$defs": {"matchedHooks": _MATCHED_HOOKS},
    }


def as_text() -> str:
    """Return the text of the shipped schema file."""
    return json.dumps(settings_schema(), indent=2, ensure_ascii=False) + "\n"


def _section_schema(keys: dict[str, Any]) -> dict[str, Any]:
    named = {name: _entry_schema(entry) for name, entry in keys.items() if name != "*"}
    schema: dict[str, Any] = {"type": "object"}
    if named:
        schema["properties"] = named
    if "calls" in named:  # a rate limit
        schema["required"] = ["calls", "seconds"]
        named["calls"]["minimum"] = 1
    if "*" in keys:
        schema["additionalProperties"] = _entry_schema(keys["*"])
    return schema


def _entry_schema(entry: Any) -> dict[str, Any]:
    if not isinstance(entry, SettingKey):
        return _section_schema(entry)
    schema = _hooks_schema() if entry.name == "hooks" else dict(_SCHEMAS.get(entry.kind, {"type": entry.kind}))
    if entry.kind in ("integer", "number"):
        schema["minimum" if entry.kind == "integer" else "exclusiveMinimum"] = 0
    if entry.choices:
        schema["enum"] = list(entry.choices)
    if entry.default is not None:
        schema["default"] = entry.default
    return {"description": entry.description, **schema}


def _hooks_schema() -> dict[str, Any]:
    from wieldy.policy.hooks.events import HOOK_EVENTS

    events = {event: {"type": "array", "items": {"$ref": "#/$defs/matchedHooks"}} for event in HOOK_EVENTS}
    return {"type": "object", "properties": events, "additionalProperties": False}


def docs_table() -> str:
    """Return the table of keys for docs/settings.md."""
    lines = ["| key | type | default | meaning | |", "| --- | --- | --- | --- | --- |"]
    for key in KEYS:
        kind = " · ".join(f"`{choice}`" for choice in key.choices) or _KIND_NAMES.get(key.kind, key.kind)
        default = "–" if key.default is None else f"`{json.dumps(key.default)}`"
        mark = "✓" if key.project_may_set else ""
        lines.append(f"| `{key.name}` | {kind} | {default} | {key.description} | {mark} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(as_text(), "utf-8")
    write(docs_table(), end="")
