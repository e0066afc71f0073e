"""Tool definitions of MCP servers: repaired before the SDK validates them, checked one by one, named and pinned."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from wieldy.core.schema.check import REFERENCE_KEYS, SchemaError, SchemaValidator, measure_schema
from wieldy.core.schema.parameters import Parameters
from wieldy.core.schema.provider_dialects import OPENAI, adapt_schema
from wieldy.core.schema.strict_json import TooDeep, is_too_deep
from wieldy.core.state_dirs import config_home
from wieldy.core.text import truncate
from wieldy.files.writing.locked_update import JsonRecords

# Beside each bound the largest value that was measured; docs/mcp.md says of which servers.
MAX_DESCRIPTION_CHARS = 4_000  # 2 781
MAX_TITLE_CHARS = 200  # 35
MAX_FIELD_CHARS = 2_000  # of a description or title inside a schema: 467
MAX_SCHEMA_CHARS = 32_000  # of the schema as it is shown: 1 579
MAX_WISHED_CHARS = 8_000  # of descriptions and schemas of all tools that a server wants in every request: none wants it
MAX_WRITTEN_PARTS = 20_000  # members and items in a schema as it is written: 71
MAX_NODES = 20_000  # objects in a schema, each reference followed: 20
MAX_DEPTH = 64  # levels of a schema, each reference followed: 8
MAX_ALTERNATIVES = 1_000  # ends of all unions of a schema, each reference followed: 10
MAX_RESULT_CHARS = 500_000
MAX_ITEMS = 1_000  # tools, resources or prompts of a server: 26
MAX_NAME_CHARS = 64
MAX_KEY_CHARS = 30
RESOURCE_TOOLS = {"ListMcpResources": "resources.list", "ReadMcpResource": "resources.read"}

# Where `sanitize_result` puts what the SDK's models would refuse.
INPUT_SCHEMA_KEY = "wieldy/inputSchema"
OUTPUT_SCHEMA_KEY = "wieldy/outputSchema"
REJECTED_KEY = "wieldy/rejected"
TASK_KEY = "wieldy/task"
INVALID_KEY = "wieldy/invalid"

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
    shown_chars: int
    max_result_chars: int | None
    digest: str
    as_task: bool = False
    idempotent: bool = False

    @property
    def may_repeat(self) -> bool:
        """Whether the server says that making a call twice is the same as making it once."""
        return self.read_only or self.idempotent


def parse_definition(tool: Any) -> ToolDefinition:
    """Convert the SDK's model of a tool. Raises `InvalidDefinition`."""
    meta: Mapping[str, Any] = tool.meta or {}
    if INVALID_KEY in meta:
        raise InvalidDefinition(str(meta[INVALID_KEY]))
    schema = meta.get(INPUT_SCHEMA_KEY, tool.input_schema)
    parameters = parse_input_schema(schema)
    hints = tool.annotations
    read_only = bool(hints and hints.read_only_hint)
    limit = meta.get("anthropic/maxResultSizeChars")
    shown_hints = hints.model_dump(exclude_none=True) if hints else {}
    description = _shorten((tool.description or "").strip(), MAX_DESCRIPTION_CHARS)
    shown_chars = (
        len(tool.name) + len(description) + len(json.dumps(parameters.schema, ensure_ascii=False, default=str))
    )
    visible = (tool.name, tool.description or "", schema, shown_hints, *([tool.title] if tool.title else []))
    return ToolDefinition(
        tool.name,
        _shorten(tool.title or (hints.title if hints and hints.title else ""), MAX_TITLE_CHARS),
        description,
        parameters,
        read_only,
        not read_only and not (hints and hints.destructive_hint is False),
        meta.get("anthropic/alwaysLoad") is True,
        shown_chars,
        min(limit, MAX_RESULT_CHARS) if isinstance(limit, int) and limit > 0 else None,
        hashlib.sha256(json.dumps(visible, sort_keys=True, default=str).encode()).hexdigest(),
        as_task=bool(tool.execution and tool.execution.task_support == "required"),
        idempotent=bool(hints and hints.idempotent_hint),
    )


def parse_definitions(listed: Iterable[Any]) -> tuple[dict[str, ToolDefinition], dict[str, str]]:
    """The usable definitions by their own names, and what is wrong with the others. Of two with one name the first counts.

    What the server wants in every request counts as far as it is small altogether.
    """
    definitions: dict[str, ToolDefinition] = {}
    problems: dict[str, str] = {}
    remaining = MAX_WISHED_CHARS
    for tool in listed:
        try:
            definition = parse_definition(tool)
        except InvalidDefinition as error:
            problems[tool.name] = str(error)
            continue
        if tool.name in definitions:
            continue
        if definition.always_load and definition.shown_chars > remaining:
            definition = replace(definition, always_load=False)
        elif definition.always_load:
            remaining -= definition.shown_chars
        definitions[tool.name] = definition
    return definitions, problems


def parse_input_schema(schema: Any) -> Parameters:
    """Make parameters that show a schema every provider accepts and validate against the server's own."""
    if schema is None or schema is True:
        schema = {}
    if not isinstance(schema, Mapping):
        raise InvalidDefinition(f"its input schema is {type(schema).__name__}, not an object")
    if is_too_deep(schema):
        raise InvalidDefinition(str(TooDeep()))
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise InvalidDefinition(f"its input is of type {json.dumps(kind)}, but a tool takes an object")
    try:
        _require_small(schema)
        parameters = Parameters.from_schema(schema)
        SchemaValidator(schema).compile()  # and thrown away: most tools are never called
        parameters.schema = _shorten_texts(adapt_schema(schema, OPENAI))
    except (SchemaError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidDefinition(f"its input schema cannot be used: {error}") from None
    if (chars := len(json.dumps(parameters.schema, ensure_ascii=False, default=str))) > MAX_SCHEMA_CHARS:
        raise InvalidDefinition(f"its input schema has {chars:,} characters, and at most {MAX_SCHEMA_CHARS:,} are sent")
    return parameters


def _require_small(schema: Mapping[str, Any]) -> None:
    """Refuse a schema that is small as written and huge where its references are followed, as a validator does."""
    _require_followed_references(schema)
    size = measure_schema(schema, MAX_DEPTH)
    if size.nodes > MAX_NODES:
        raise SchemaError(f"it has more than {MAX_NODES:,} parts where its references are followed")
    if size.alternatives > MAX_ALTERNATIVES:
        raise SchemaError(f"it has more than {MAX_ALTERNATIVES:,} alternatives where its references are followed")


def _require_followed_references(schema: Mapping[str, Any]) -> None:
    """Refuse references that a validator follows in a way that `measure_schema` does not: by names and addresses."""
    pending: list[Any] = [schema]
    count = 0
    while pending:
        part = pending.pop()
        count += len(part) if isinstance(part, Mapping | list) else 0
        if count > MAX_WRITTEN_PARTS:
            raise SchemaError(f"it has more than {MAX_WRITTEN_PARTS:,} parts")
        if isinstance(part, Mapping):
            if isinstance(part.get("$id"), str) and part is not schema:
                raise SchemaError("it has an `$id` inside, and references that start there cannot be followed")
            for key in REFERENCE_KEYS:
                reference = part.get(key)
                if isinstance(reference, str) and reference != "#" and not reference.startswith("#/"):
                    raise SchemaError(
                        f"its reference `{truncate(reference, 100)}` is not a place in it, such as `#/$defs/a`"
                    )
            pending.extend(part.values())
        elif isinstance(part, list):
            pending.extend(part)


def _shorten_texts(schema: Any) -> Any:
    """Cut what a schema says to the model; what it checks stays."""
    if isinstance(schema, Mapping):
        return {
            key: _shorten(value, MAX_FIELD_CHARS) if key in _PROSE and isinstance(value, str) else _shorten_texts(value)
            for key, value in schema.items()
        }
    return [_shorten_texts(item) for item in schema] if isinstance(schema, list) else schema


_PROSE = frozenset({"description", "title", "$comment", "markdownDescription"})


def _shorten(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{truncate(text, limit)} (cut: the server sent {len(text):,} characters)"


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
    result["tools"] = [entry for entry in result["tools"][: MAX_ITEMS + 1] if _sanitize_tool(entry, rejected)]
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
    if is_too_deep(entry):
        # The SDK would refuse the whole list, and each reader of the entry would need a check.
        name = entry["name"]
        entry.clear()
        entry |= {"name": name, "inputSchema": {"type": "object"}, "_meta": {INVALID_KEY: str(TooDeep())}}
        return True
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


def server_keys(names: Iterable[str], foreign: Container[str] = ()) -> dict[str, str]:
    """Return the unique part of tool names that stands for each server. `foreign` ones take no key from the others."""
    keys: dict[str, str] = {}
    taken: set[str] = set()
    for name in sorted(names, key=lambda name: (name in foreign, _plain_key(name) != name, name)):
        key = _plain_key(name)
        if key in taken or not key or len(key) > MAX_KEY_CHARS:
            key = f"{key[:20]}_{_short_digest(name)}".lstrip("_")
        taken.add(key)
        keys[name] = key
    return keys


def wire_names(server_key: str, names: Iterable[str]) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Map each tool's own name to the name a model calls it by; and those that are left out to the name that is taken.

    The name depends on nothing but the tool's own, so that a rule keeps its meaning whatever else the server lists. A name that
    needs no change is never taken by another.
    """
    owners: dict[str, str] = {}
    collisions: dict[str, str] = {}
    for name in sorted(set(names), key=lambda name: (_ODD_CHARACTER.search(name) is not None, name)):
        wire = f"mcp__{server_key}__{_ODD_CHARACTER.sub('_', name)}"
        if len(wire) > MAX_NAME_CHARS:
            digest = _short_digest(name)
            wire = f"{wire[: MAX_NAME_CHARS - len(digest) - 1]}_{digest}"
        if wire in owners:
            collisions[name] = wire
        else:
            owners[wire] = name
    return {name: wire for wire, name in owners.items()}, collisions


def resource_rule_name(server_key: str, tool: str) -> str:
    """The name by which rules know one of `RESOURCE_TOOLS` where it is used on a server; no tool has a dot in its name."""
    return f"mcp__{server_key}__{RESOURCE_TOOLS[tool]}"


def _plain_key(name: str) -> str:
    return _UNDERSCORES.sub("_", _ODD_CHARACTER.sub("_", name)).strip("_")


def _short_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


class ToolPins:
    """Digests of the definitions a user has accepted, by project, server and tool. All methods block on disk.

    Server and tool are those of the name that a model calls and rules know, not those that the server uses: what takes the
    place of a tool is a changed tool.
    """

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
