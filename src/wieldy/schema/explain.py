"""What a model reads when its input does not fit: every field, what was expected, what came, and how to go on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wieldy.schema.problem import Problem

_MOST = 20
_LONGEST = 120


def explain(tool_name: str, problems: Sequence[Problem], schema: Mapping[str, Any]) -> str:
    """The `InputValidationError` text for these problems."""
    count = f"{len(problems)} problems" if len(problems) != 1 else "1 problem"
    lines = [f"InputValidationError: {tool_name} was not run, its input has {count}:"]
    lines.extend(f"- {line}" for line in _lines(problems[:_MOST], schema))
    if len(problems) > _MOST:
        lines.append(f"- and {len(problems) - _MOST} more")
    lines.append(_retry(tool_name, schema))
    return "\n".join(lines)


def _lines(problems: Sequence[Problem], schema: Mapping[str, Any]) -> Iterator[str]:
    missing = {problem.path for problem in problems if problem.got == "nothing"}
    for problem in problems:
        path = _cut(problem.path)
        if not path:
            yield problem.message
        elif problem.got == "nothing":
            yield f"`{path}` {problem.message}{_about(path, schema)}"
        elif problem.expected == "no such field":
            yield f"`{path}` {problem.message}{_nearest(path, missing, schema)}"
        else:
            yield f"`{path}`: {problem.message}"


def _retry(tool_name: str, schema: Mapping[str, Any]) -> str:
    properties = schema.get("properties") or {}
    if not properties:
        if schema.get("additionalProperties") is not False:
            return f"Correct this and call {tool_name} again."
        return f"Call {tool_name} again with {{}}: it takes no fields."
    required = set(schema.get("required") or ())
    names = ", ".join(f"{name} (required)" if name in required else name for name in properties)
    return f"Correct this and call {tool_name} again. Fields: {names}."


def _about(path: str, schema: Mapping[str, Any]) -> str:
    """What the schema says of a missing field: its type and its description."""
    field = _properties_around(path, schema).get(_name(path))
    if not isinstance(field, Mapping):
        return ""
    kinds = field.get("type")
    kind = " or ".join(kinds) if isinstance(kinds, list) else kinds
    about = _cut(" ".join(str(field.get("description", "")).split()))
    words = f"{kind}: {about}" if kind and about else kind or about
    return f" ({words})" if words else ""


def _nearest(path: str, missing: set[str], schema: Mapping[str, Any]) -> str:
    """A word on which field an unknown one may have meant; a missing one is the likelier."""
    known = [str(name) for name in _properties_around(path, schema)]
    if not known:
        return ""
    from difflib import get_close_matches

    parent = path.removesuffix(_name(path))
    plain = {_plain(name): name for name in sorted(known, key=lambda name: parent + name in missing)}
    found = get_close_matches(_plain(_name(path)), plain, n=1, cutoff=0.6)
    return f"; did you mean `{plain[found[0]]}`?" if found else ""


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _name(path: str) -> str:
    return path.rpartition(".")[2]


def _properties_around(path: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The properties of the object that the last step of a path belongs to."""
    node: Any = schema
    for step in re.findall(r"[^.\[\]]+|\[\d+\]", path.removesuffix(_name(path))):
        node = _object_in(node, schema)
        node = node.get("items") if step.startswith("[") else (node.get("properties") or {}).get(step)
    properties = _object_in(node, schema).get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _object_in(node: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The node itself, what it refers to, or the one alternative that describes something with parts."""
    for _ in range(16):
        if not isinstance(node, Mapping):
            return {}
        reference = node.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/$defs/"):
            node = (root.get("$defs") or {}).get(reference.removeprefix("#/$defs/"))
        elif "properties" not in node and "items" not in node and (branches := node.get("anyOf") or node.get("oneOf")):
            inner = [
                b for b in branches if isinstance(b, Mapping) and ("$ref" in b or "properties" in b or "items" in b)
            ]
            node = inner[0] if len(inner) == 1 else None
        else:
            return node
    return {}
