"""One tool as its server defines it, made acceptable to providers, or set aside alone with the reason."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from wieldy.core.record import record
from wieldy.mcp.listing import INPUT
from wieldy.schema.dialect import OPENAI, adapted
from wieldy.schema.parameters import Parameters, SchemaError

MOST_DESCRIPTION = 4_000
MOST_RESULT_CHARS = 500_000


class Unfit(ValueError):
    """A definition that no model could use; the message says why."""


@record
class Definition:
    """What a server says of a tool. `digest` changes with anything a model or a person would read of it."""

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


def definition_of(tool: Any) -> Definition:
    """From the SDK's model of a tool. Raises `Unfit`."""
    meta: Mapping[str, Any] = tool.meta or {}
    schema = meta.get(INPUT, tool.input_schema)
    hints = tool.annotations
    read_only = bool(hints and hints.read_only_hint)
    limit = meta.get("anthropic/maxResultSizeChars")
    return Definition(
        tool.name,
        tool.title or (hints.title if hints and hints.title else ""),
        _cut(tool.description or ""),
        parameters_of(schema),
        read_only,
        not read_only and not (hints and hints.destructive_hint is False),
        meta.get("anthropic/alwaysLoad") is True,
        min(limit, MOST_RESULT_CHARS) if isinstance(limit, int) and limit > 0 else None,
        digest(tool.name, tool.description or "", schema, hints.model_dump(exclude_none=True) if hints else {}),
        as_task=bool(tool.execution and tool.execution.task_support == "required"),
    )


def parameters_of(schema: Any) -> Parameters:
    """Parameters that show a schema any provider takes and check against the one the server gave."""
    if schema is None or schema is True:
        schema = {}
    if not isinstance(schema, Mapping):
        raise Unfit(f"its input schema is {type(schema).__name__}, not an object")
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise Unfit(f"its input is of type {json.dumps(kind)}, and a tool takes an object")
    parameters = Parameters.from_schema(schema)
    try:
        parameters.compile()
        shown = adapted(schema, OPENAI)
    except (SchemaError, ValueError, TypeError, AttributeError, RecursionError) as why:
        raise Unfit(f"its input schema cannot be used: {why}") from None
    parameters.schema = shown
    return parameters


def digest(*parts: Any) -> str:
    """A fingerprint of what a server says of a tool."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _cut(text: str) -> str:
    text = text.strip()
    return text if len(text) <= MOST_DESCRIPTION else text[: MOST_DESCRIPTION - 1] + "…"
