"""Tool calls made by hand, with `wieldy call` or `/call`: words to input, results to text."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from wieldy.core.errors import WieldyError
from wieldy.core.outcome import Done, Image, Refused, ToolResult
from wieldy.core.person_text import without_reminders
from wieldy.core.tool import Tool
from wieldy.engine.pipeline import nearest


class InvalidToolInput(WieldyError):
    """The words are no input for the tool; the message is one line."""


def split_words(line: str) -> list[str]:
    """Split a typed line: JSON and `command=…` stay whole, fields are split as a shell does."""
    if line.startswith(("{", "command=")):
        return [line]
    try:
        return shlex.split(line)
    except ValueError:
        raise InvalidToolInput("a quotation mark is not closed") from None


def parse_input(words: list[str], tool: Tool | None) -> Mapping[str, Any] | str:
    """Build a tool's input from one JSON object or `key=value` words. Raises `InvalidToolInput`."""
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        return words[0]
    properties = tool.schema.get("properties", {}) if tool else {}
    names = [*properties, *(tool.parameters.aliases if tool else ())]
    fields: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise InvalidToolInput(f"`{word}` is not key=value; fields of this tool: {', '.join(properties) or 'none'}")
        if properties and key not in names and (near := nearest(key, names, most=1)):
            raise InvalidToolInput(f"{tool.name if tool else ''} takes no `{key}`; did you mean `{near[0]}`?")
        fields[key] = _parse_value(value, properties.get(key, {}))
    return fields


def _parse_value(text: str, schema: Any) -> Any:
    """Keep text where the schema accepts text; elsewhere parse JSON if possible."""
    if not isinstance(schema, dict) or _accepts_text(schema):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _accepts_text(schema: Mapping[str, Any]) -> bool:
    kind = schema.get("type")
    if kind is None and "anyOf" in schema:
        return any(_accepts_text(option) for option in schema["anyOf"])
    return kind is None or kind == "string" or (isinstance(kind, list) and "string" in kind)


def format_result(result: ToolResult) -> str:
    """Return a result as text for a person: whole, images by their size."""
    outcome = result.outcome
    if not isinstance(outcome, Done):
        text = result.person_text
        is_named = not isinstance(outcome, Refused) or text.startswith(result.name)
        return text if is_named else f"{result.name}: {text}"
    text = "\n".join(
        f"[{block.media_type}, {len(block.data) * 3 // 4:,} bytes; --json prints it]"
        if isinstance(block, Image)
        else without_reminders(block.text)
        for block in outcome.content
    )
    return text if text.strip() else result.text
