"""A form that a server wants filled in, as questions to the person, field by field, and their replies as its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wieldy.core.inquiry import Inquiry, Reply

YES, NO = "yes", "no"


def inquiries(server: str, message: str, schema: Mapping[str, Any]) -> list[Inquiry]:
    """One question for each field; the first says who asks, and for what."""
    asked: list[Inquiry] = []
    required = schema.get("required", ())
    for name, field in _properties(schema).items():
        about = field.get("title") or name
        detail = f" ({field['description']})" if field.get("description") else ""
        default = f" [Enter: {_said(field['default'])}]" if "default" in field else ""
        optional = "" if name in required or default else " [may be left out]"
        head = "" if asked else f"The MCP server {server} asks: {message}\n"
        options = tuple(_options(field))
        asked.append(Inquiry(f"{head}{about}{detail}{default}{optional}", options, field.get("type") == "array"))
    return asked


def values(schema: Mapping[str, Any], replies: Sequence[Reply]) -> dict[str, Any]:
    """What the replies stand for; a field without one has its default, or is left out."""
    found: dict[str, Any] = {}
    for (name, field), reply in zip(_properties(schema).items(), replies, strict=True):
        if str(reply):
            found[name] = _value(field, reply)
        elif "default" in field:
            found[name] = field["default"]
    return found


def _properties(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    return {name: field if isinstance(field, Mapping) else {} for name, field in properties.items()}


def _options(field: Mapping[str, Any]) -> dict[str, Any]:
    """What can be chosen, by what is shown of it."""
    if field.get("type") == "boolean":
        return {YES: True, NO: False}
    of = field.get("items") if field.get("type") == "array" else field
    if not isinstance(of, Mapping):
        return {}
    titled = of.get("oneOf") or of.get("anyOf") or ()
    if titled:
        return {str(each.get("title", each["const"])): each["const"] for each in titled if "const" in each}
    choices = of.get("enum") or ()
    names = of.get("enumNames") or choices
    return {str(name): choice for name, choice in zip(names, choices, strict=False)}


def _value(field: Mapping[str, Any], reply: Reply) -> Any:
    options = _options(field)
    if field.get("type") == "array":
        return [options[each] for each in reply.chosen if each in options] or str(reply)
    said = str(reply)
    if said in options:
        return options[said]
    try:
        return {"integer": int, "number": float}.get(field.get("type", ""), str)(said)
    except ValueError:
        return said  # does not fit, and is declined as such


def _said(default: Any) -> str:
    if isinstance(default, bool):
        return YES if default else NO
    return ", ".join(map(str, default)) if isinstance(default, list) else str(default)
