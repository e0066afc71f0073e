"""Lists of tools as servers send them, made such that the SDK takes them: one bad entry must not cost the whole list.

What the SDK would refuse is set aside under a key of ours in the entry's `_meta`, from where it is judged tool by tool. A call
that was made as a task is answered by the task instead of a result; that too is set aside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

INPUT = "wieldy/inputSchema"
OUTPUT = "wieldy/outputSchema"
REFUSED = "wieldy/refused"
TASK = "wieldy/task"

_FIELDS: Mapping[str, type] = {"title": str, "description": str, "annotations": dict, "icons": list, "execution": dict}


def mended(result: Any) -> None:
    """Mend the result of a `tools/list`, or of a call made as a task, in place; any other result is left alone."""
    if not isinstance(result, dict):
        return
    if "task" in result and "content" not in result:
        result["_meta"] = {**_meta(result), TASK: result.pop("task")}
        result["content"] = []
    if "content" in result:
        result.setdefault("resultType", "complete")  # servers may leave it out; the SDK insists
    if not isinstance(result.get("tools"), list):
        return
    refused: list[str] = []
    result["tools"] = [entry for entry in result["tools"] if _mended(entry, refused)]
    if refused:
        result["_meta"] = {**_meta(result), REFUSED: refused}


def _mended(entry: Any, refused: list[str]) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not entry["name"]:
        refused.append("an entry without a name")
        return False
    for key, kind in _FIELDS.items():
        if key in entry and not isinstance(entry[key], kind):
            del entry[key]
    annotations = entry.get("annotations")
    if isinstance(annotations, dict):
        entry["annotations"] = {key: value for key, value in annotations.items() if _is_annotation(key, value)}
    aside: dict[str, Any] = {}
    if "outputSchema" in entry:
        aside[OUTPUT] = entry.pop("outputSchema")
    schema = entry.get("inputSchema")
    if not _is_plain(schema):
        aside[INPUT] = schema
        entry["inputSchema"] = {"type": "object"}
    if aside or not isinstance(entry.get("_meta", {}), dict):
        entry["_meta"] = {**_meta(entry), **aside}
    return True


def _is_annotation(key: str, value: Any) -> bool:
    return isinstance(value, str if key == "title" else bool)


def _is_plain(schema: Any) -> bool:
    """Whether the SDK's own model of a schema would take it."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return False
    properties, required = schema.get("properties", {}), schema.get("required", [])
    return (
        isinstance(properties, dict)
        and all(isinstance(member, dict | bool) for member in properties.values())
        and isinstance(required, list)
        and all(isinstance(name, str) for name in required)
        and isinstance(schema.get("$schema", ""), str)
    )


def _meta(holder: Mapping[str, Any]) -> dict[str, Any]:
    meta = holder.get("_meta")
    return dict(meta) if isinstance(meta, dict) else {}
