"""Tool definitions of MCP servers: repaired before the SDK validates them, checked one by one, named and pinned."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from wieldy.core.state_dirs import config_home
from wieldy.core.truncate import truncate
from wieldy.mcp.client.json_records import JsonRecords
from wieldy.schema.check import SchemaError
from wieldy.schema.parameters import Parameters
from wieldy.schema.provider_dialects import OPENAI, adapt_schema

MAX_DESCRIPTION_CHARS = 4_000
MAX_RESULT_CHARS = 500_000
MAX_NAME_CHARS = 64
MAX_KEY_CHARS = 30

# Where `sanitize_result` puts what the SDK's models would refuse.
INPUT_SCHEMA_KEY = "wieldy/inputSchema"
OUTPUT_SCHEMA_KEY = "wieldy/outputSchema"
REJECTED_KEY = "wieldy/rejected"
TASK_KEY = "wieldy/task"

_OPTIONAL_FIELDS: Mapping[str, type] = {
    "title": str,
    "description": str,
    "annotations": dict,
    "icons": list,
    "execution": dict,
}
_ODD_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")
_UNDERSCORES = re.compile(r"_{2,}")


class InvalidDefinition(ValueError):
    """A definition that no model could use; the message says why."""


class ToolDefinition(Struct, frozen=True):
    """A server's description of a tool. `digest` changes with anything a model or a person would read of it."""

    name: str
    title: str
    description: str
    parameters: Parameters
    read_only: bool
    destructive: bool
    always_load: bool
    max_result_chars: int | None
    digest: str
    as_task: bool = False


def parse_definition(tool: Any) -> ToolDefinition:
    """Convert the SDK's model of a tool. Raises `InvalidDefinition`."""
    meta: Mapping[str, Any] = tool.meta or {}
    schema = meta.get(INPUT_SCHEMA_KEY, tool.input_schema)
    hints = tool.annotations
    read_only = bool(hints and hints.read_only_hint)
    limit = meta.get("anthropic/maxResultSizeChars")
    shown_hints = hints.model_dump(exclude_none=True) if hints else {}
    visible = (tool.name, tool.description or "", schema, shown_hints, *([tool.title] if tool.title else []))
    return ToolDefinition(
        tool.name,
        tool.title or (hints.title if hints and hints.title else ""),
        truncate((tool.description or "").strip(), MAX_DESCRIPTION_CHARS),
        parse_input_schema(schema),
        read_only,
        not read_only and not (hints and hints.destructive_hint is False),
        meta.get("anthropic/alwaysLoad") is True,
        min(limit, MAX_RESULT_CHARS) if isinstance(limit, int) and limit > 0 else None,
        hashlib.sha256(json.dumps(visible, sort_keys=True, default=str).encode()).hexdigest(),
        as_task=bool(tool.execution and tool.execution.task_support == "required"),
    )


def parse_input_schema(schema: Any) -> Parameters:
    """Make parameters that show a schema every provider accepts and validate against the server's own."""
    if schema is None or schema is True:
        schema = {}
    if not isinstance(schema, Mapping):
        raise InvalidDefinition(f"its input schema is {type(schema).__name__}, not an object")
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise InvalidDefinition(f"its input is of type {json.dumps(kind)}, but a tool takes an object")
    parameters = Parameters.from_schema(schema)
    try:
        parameters.compile()
        parameters.schema = adapt_schema(schema, OPENAI)
    except (SchemaError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidDefinition(f"its input schema cannot be used: {error}") from None
    return parameters


def sanitize_result(result: Any) -> None:
    """Repair the result of `tools/list`, or of a call made as a task, in place; leave any other result alone.

    The SDK validates a list as a whole, so one bad entry would cost a server all its tools.
    """
    if not isinstance(result, dict):
        return
    if "task" in result and "content" not in result:
        result["_meta"] = {**_meta(result), TASK_KEY: result.pop("task")}
        result["content"] = []
    if "content" in result:
        result.setdefault("resultType", "complete")  # servers may leave it out, but the SDK requires it
    if not isinstance(result.get("tools"), list):
        return
    rejected: list[str] = []
    result["tools"] = [entry for entry in result["tools"] if _sanitize_tool(entry, rejected)]
    if rejected:
        result["_meta"] = {**_meta(result), REJECTED_KEY: rejected}


def _sanitize_tool(entry: Any, rejected: list[str]) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not entry["name"]:
        rejected.append("an entry without a name")
        return False
    for key, kind in _OPTIONAL_FIELDS.items():
        if key in entry and not isinstance(entry[key], kind):
            del entry[key]
    if "annotations" in entry:
        entry["annotations"] = {
            key: value
            for key, value in entry["annotations"].items()
            if isinstance(value, str if key == "title" else bool)
        }
    moved: dict[str, Any] = {}
    if "outputSchema" in entry:
        moved[OUTPUT_SCHEMA_KEY] = entry.pop("outputSchema")
    schema = entry.get("inputSchema")
    if not _is_accepted_by_sdk(schema):
        moved[INPUT_SCHEMA_KEY] = schema
        entry["inputSchema"] = {"type": "object"}
    if moved or not isinstance(entry.get("_meta", {}), dict):
        entry["_meta"] = {**_meta(entry), **moved}
    return True


def _is_accepted_by_sdk(schema: Any) -> bool:
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


def server_keys(names: Iterable[str]) -> dict[str, str]:
    """Return the unique part of tool names that stands for each server."""
    keys: dict[str, str] = {}
    taken: set[str] = set()
    for name in sorted(names, key=lambda name: (_plain_key(name) != name, name)):
        key = _plain_key(name)
        if key in taken or not key or len(key) > MAX_KEY_CHARS:
            key = f"{key[:20]}_{_short_digest(name)}".lstrip("_")
        taken.add(key)
        keys[name] = key
    return keys


def wire_names(server_key: str, names: Iterable[str]) -> Mapping[str, str]:
    """Map each tool's own name to the name a model calls it by. A name that needs no change is never changed by another."""
    wire: dict[str, str] = {}
    taken: set[str] = set()
    for name in sorted(set(names), key=lambda name: (_ODD_CHARACTER.search(name) is not None, name)):
        plain = f"mcp__{server_key}__{_ODD_CHARACTER.sub('_', name)}"
        if len(plain) > MAX_NAME_CHARS or plain in taken:
            digest = _short_digest(name)
            plain = f"{plain[: MAX_NAME_CHARS - len(digest) - 1]}_{digest}"
        taken.add(plain)
        wire[name] = plain
    return wire


def _plain_key(name: str) -> str:
    return _UNDERSCORES.sub("_", _ODD_CHARACTER.sub("_", name)).strip("_")


def _short_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


class ToolPins:
    """Digests of the definitions a user has accepted, by project, server and tool. All methods block on disk."""

    def __init__(self, root: str, file: Path | None = None, env: Mapping[str, str] = os.environ) -> None:
        self._root = os.path.realpath(root)
        self._records = JsonRecords(config_home(env) / "mcp-pins.json" if file is None else file)

    def changed(self, server: str, digests: Mapping[str, str]) -> frozenset[str]:
        """Return the tools that differ from their pin; pin those never seen before."""
        known = self._records.read(self._root, server)
        new = {tool: digest for tool, digest in digests.items() if tool not in known}
        if new:
            self.pin(server, new)
        return frozenset(tool for tool, digest in digests.items() if known.get(tool, digest) != digest)

    def pin(self, server: str, digests: Mapping[str, str]) -> None:
        """Record definitions that the user has accepted."""
        self._records.merge(digests, self._root, server)
