"""Tools called by a person: words become an input, a result becomes lines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from wieldy.core.content import Image
from wieldy.core.failure import WieldyError
from wieldy.core.result import ToolResult
from wieldy.core.tool import Tool
from wieldy.engine.lookup import nearest


class Unclear(WieldyError):
    """What was typed makes no input; one line says why."""


def words_of(line: str) -> list[str]:
    """The words of a line that was typed for a tool: JSON or a command as it stands, fields as a shell would part them."""
    import shlex

    if line.startswith(("{", "command=")):
        return [line]
    try:
        return shlex.split(line)
    except ValueError:
        raise Unclear("a quotation mark is not closed") from None


def input_of(words: list[str], tool: Tool | None) -> Mapping[str, Any] | str:
    """A tool's input from words: one JSON object, or fields. Raises `Unclear`."""
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        return words[0]
    properties = tool.schema.get("properties", {}) if tool else {}
    names = [*properties, *(tool.parameters.aliases if tool else ())]
    fields: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise Unclear(f"`{word}` is not key=value; fields of this tool: {', '.join(properties) or 'none'}")
        if properties and key not in names and (near := nearest(key, names, most=1)):
            raise Unclear(f"{tool.name if tool else ''} takes no `{key}`; did you mean `{near[0]}`?")
        fields[key] = _value(value, properties.get(key, {}))
    return fields


def _value(text: str, schema: Any) -> Any:
    """Text stays text where the schema takes text; elsewhere it is JSON if it can be."""
    if not isinstance(schema, dict) or _takes_text(schema):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _takes_text(schema: Mapping[str, Any]) -> bool:
    kind = schema.get("type")
    if kind is None and "anyOf" in schema:
        return any(_takes_text(option) for option in schema["anyOf"])
    return kind is None or kind == "string" or (isinstance(kind, list) and "string" in kind)


def shown(result: ToolResult) -> str:
    """A result for a person: text as it is, pictures by their size."""
    return "\n".join(
        f"[{block.media_type}, {len(block.data) * 3 // 4:,} bytes; --json prints it]"
        if isinstance(block, Image)
        else block.text
        for block in result.content
    )
