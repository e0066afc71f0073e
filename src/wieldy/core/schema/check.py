"""Validate values against a JSON Schema with jsonschema-rs, and explain every problem."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from msgspec import Struct

from wieldy.core.schema.strict_json import MAX_DEPTH, is_too_deep
from wieldy.core.text import did_you_mean, plural, truncate, truncate_line

MAX_VISITS = 1_000_000  # of schemas to parts of a value, where a schema is recursive: a check of about a second
MAX_REPORTED_VISITS = 20_000  # where each problem is to be named


class Problem(Struct, frozen=True):
    """One invalid field. `path` is written as in `edits[2].old_string`; it is empty for the input itself."""

    path: str
    message: str
    expected: str = ""
    got: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class InvalidInput(Exception):
    """The input does not match its schema; `problems` names every invalid field."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("; ".join(map(str, self.problems)))


class SchemaError(Exception):
    """A JSON Schema that is invalid in its draft, or has a reference to nothing."""


class UnsupportedAnnotation(TypeError):
    """A type that JSON Schema cannot express, or a parameter that cannot be passed by name."""

    def __init__(self, owner: str, parameter: str, why: str) -> None:
        super().__init__(f"{owner}: parameter `{parameter}` {why}" if parameter else f"{owner} {why}")
        self.owner = owner
        self.parameter = parameter


_MAX_VALUE_CHARS = 80


class SchemaValidator:
    """One schema, compiled on first use, by the draft that `$schema` names, else 2020-12. Nothing is ever fetched."""

    __slots__ = ("_has_references", "_schema", "_size", "_validator")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._validator: Any = None
        self._has_references = False
        self._size: SchemaSize | None = None

    def compile(self) -> None:
        """Raise `SchemaError` now if the schema cannot be used."""
        if self._validator is None:
            self._validator = _compile(self._schema)
            self._has_references = _has_references(self._schema)

    def fits(self, value: Any) -> bool:
        """Whether the value is valid."""
        self.compile()
        if self._may_overflow(value) or self._visits(value) > MAX_VISITS:
            return False
        try:
            return bool(self._validator.is_valid(value))
        except (ValueError, TypeError):  # no JSON at all
            return False

    def problems(self, value: Any) -> tuple[Problem, ...]:
        """Every invalid field, in the order of the schema; empty when the value is valid."""
        self.compile()
        if self._may_overflow(value):
            return (Problem("", f"The input is nested more than {MAX_DEPTH} levels deep."),)
        if self._visits(value) > MAX_REPORTED_VISITS:
            text = "The input does not fit. It is nested too deeply, among too many alternatives, to say where."
            return () if self.fits(value) else (Problem("", text),)
        problems: dict[Problem, None] = {}
        try:
            for error in self._validator.iter_errors(value):
                problems.update(dict.fromkeys(_problems(error, value)))
        except (ValueError, TypeError) as error:
            problems[Problem("", f"is not JSON: {error}")] = None
        return tuple(problems)

    def _may_overflow(self, value: Any) -> bool:
        """Whether a recursive schema would follow the value so deep that the native stack overflows."""
        return self._has_references and is_too_deep(value)

    def _visits(self, value: Any) -> int:
        """How often a validator looks at a part of the value, which a recursive schema may make exponential; 0 for others."""
        if not self._has_references:
            return 0
        if self._size is None:
            try:
                self._size = measure_schema(self._schema, MAX_DEPTH)
            except SchemaError:
                self._size = SchemaSize(0, 0, 0, is_recursive=True)
        return count_visits(self._schema, value) if self._size.is_recursive else 0


def count_visits(schema: Mapping[str, Any], value: Any) -> int:
    """Count how often schemas are applied to parts of a value, up to a number above `MAX_VISITS`.

    What a validator does again and again is counted once and multiplied, so that counting takes little time.
    """
    known: dict[tuple[int, int], int] = {}
    calls = 0

    def visit(node: Any, value: Any) -> int:
        nonlocal calls
        calls += 1
        if calls > MAX_VISITS:
            raise OverflowError
        if not isinstance(node, Mapping) or _is_of_other_type(node.get("type"), value):
            return 1
        key = id(node), id(value)
        if (count := known.get(key)) is None:
            known[key] = 1
            count = known[key] = 1 + sum(visit(child, part) for child, part in _applied(node, value, schema))
        return count

    try:
        return visit(schema, value)
    except (OverflowError, RecursionError):
        return MAX_VISITS + 1


def _applied(node: Mapping[str, Any], value: Any, schema: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield which schemas of a node a validator applies to which parts of a value, or more."""
    named = node.get("properties")
    for name, child in node.items():
        if name in REFERENCE_KEYS and isinstance(child, str):
            yield _resolve(child, schema), value
        elif name in ("allOf", "anyOf", "oneOf") and isinstance(child, list):
            yield from ((each, value) for each in child)
        elif name in ("not", "if", "then", "else"):
            yield child, value
        elif name in ("dependentSchemas", "dependencies") and isinstance(child, Mapping):
            yield from ((each, value) for each in child.values())
        elif isinstance(value, dict):
            if name == "properties" and isinstance(child, Mapping):
                yield from ((each, value[key]) for key, each in child.items() if key in value)
            elif name == "patternProperties" and isinstance(child, Mapping):
                yield from ((each, part) for each in child.values() for part in value.values())
            elif name in ("additionalProperties", "unevaluatedProperties"):
                yield from (
                    (child, part) for key, part in value.items() if not isinstance(named, Mapping) or key not in named
                )
        elif isinstance(value, list):
            if isinstance(child, list) and name in ("items", "prefixItems"):
                yield from zip(child, value, strict=False)
            elif name in ("items", "contains", "additionalItems", "unevaluatedItems"):
                yield from ((child, part) for part in value)


def _is_of_other_type(kind: Any, value: Any) -> bool:
    kinds = kind if isinstance(kind, list) else [kind]
    if isinstance(value, dict):
        return kind is not None and "object" not in kinds
    return isinstance(value, list) and kind is not None and "array" not in kinds


class SchemaSize(Struct, frozen=True):
    """How large a schema is when its references are followed; one that leads back to where it began counts as nothing.

    `alternatives` are the ends of all `anyOf` and `oneOf` together.
    """

    nodes: int
    depth: int
    alternatives: int
    is_recursive: bool


def measure_schema(schema: Mapping[str, Any], max_depth: int) -> SchemaSize:
    """Measure in time that is linear in the schema as written. Raises `SchemaError` where it is deeper than `max_depth`."""
    known: dict[int, tuple[int, int, int]] = {}
    open_nodes: set[int] = set()
    is_recursive = False

    def visit(node: Any, depth: int) -> tuple[int, int, int]:
        nonlocal is_recursive
        key = id(node)
        if key in open_nodes:
            is_recursive = True
            return 0, 0, 0
        if (size := known.get(key)) is not None:
            if depth + size[1] > max_depth:
                raise SchemaError(_TOO_NESTED.format(max_depth))
            return size
        if depth > max_depth:
            raise SchemaError(_TOO_NESTED.format(max_depth))
        open_nodes.add(key)
        nodes = alternatives = below = 0
        children = node.items() if isinstance(node, Mapping) else enumerate(node)
        for name, child in children:
            if node is schema and name in ("$defs", "definitions"):
                continue  # counted where they are referred to
            if name in REFERENCE_KEYS and isinstance(child, str):
                child = _resolve(child, schema)  # noqa: PLW2901
            if not isinstance(child, Mapping | list):
                continue
            child_nodes, child_depth, child_alternatives = visit(child, depth + 1)
            if name in ("anyOf", "oneOf") and isinstance(child, list):
                child_alternatives = max(child_alternatives, len(child))
            nodes, below = nodes + child_nodes, max(below, child_depth)
            alternatives += child_alternatives
        open_nodes.discard(key)
        size = known[key] = (nodes + isinstance(node, Mapping), below + 1, alternatives)
        return size

    nodes, depth, alternatives = visit(schema, 1)
    return SchemaSize(nodes, depth, alternatives, is_recursive)


_TOO_NESTED = "it is nested more than {} levels deep where its references are followed"


def _resolve(reference: str, schema: Any) -> Any:
    """The target of a reference inside a schema; None for any other."""
    if not reference.startswith("#"):
        return None
    target = schema
    for part in reference[1:].split("/")[1:]:
        step = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(target, list):
            target = target[int(step)] if step.isdecimal() and int(step) < len(target) else None
        else:
            target = target.get(step) if isinstance(target, Mapping) else None
    return target


def _has_references(schema: Any) -> bool:
    if isinstance(schema, Mapping):
        return any(key in schema for key in REFERENCE_KEYS) or any(map(_has_references, schema.values()))
    return isinstance(schema, list) and any(map(_has_references, schema))


REFERENCE_KEYS = ("$ref", "$dynamicRef", "$recursiveRef")


def _compile(schema: Mapping[str, Any]) -> Any:
    import jsonschema_rs

    kind = jsonschema_rs.validator_for if "$schema" in schema else jsonschema_rs.Draft202012Validator
    try:
        return kind(dict(schema), validate_formats=False, offline=True)
    except (ValueError, TypeError, RecursionError) as error:
        path = getattr(error, "instance_path", ())
        reason = getattr(error, "message", None) or str(error)
        if path[-1:] == ["type"]:
            reason = _unknown_type(getattr(error, "instance", None)) or reason
        where = _path(path)
        raise SchemaError(f"{reason} (at `{where}`)" if where else str(reason)) from error


_TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")
# What programmers write for them.
_TYPE_SLIPS = {
    **dict.fromkeys(("float", "double", "decimal"), "number"),
    **dict.fromkeys(("int", "long"), "integer"),
    **dict.fromkeys(("str", "text"), "string"),
    **dict.fromkeys(("list", "tuple", "set"), "array"),
    **dict.fromkeys(("dict", "map"), "object"),
    **dict.fromkeys(("none", "nil"), "null"),
    "bool": "boolean",
}


def _unknown_type(value: Any) -> str:
    """What to write instead of a type that JSON Schema does not have; empty where all of them are known."""
    names = value if isinstance(value, list) else [value]
    unknown = next((name for name in names if name not in _TYPES), None)
    if not isinstance(unknown, str):
        return ""
    meant = _TYPE_SLIPS.get(unknown.lower()) or (unknown.lower() if unknown.lower() in _TYPES else None)
    advice = f'use "{meant}"' if meant else f"use one of {', '.join(_TYPES)}"
    return f'"{unknown}" is no type of JSON Schema: {advice}'


def _problems(error: Any, whole: Any) -> Iterator[Problem]:
    path, kind, value = error.instance_path, error.kind, error.instance
    match kind.name:
        case "required":
            yield Problem(_path([*path, kind.property]), "is required but missing", "a value", "nothing")
        case "additionalProperties" | "unevaluatedProperties":
            yield from _unknown(path, {name: value.get(name) for name in kind.unexpected})
        case "falseSchema" if error.schema_path[-1:] == ["additionalProperties"]:
            yield from _unknown(path, _at(whole, path))  # without known fields, only the first is reported
        case "anyOf" | "oneOf" if nearer := _nearest(kind, len(path), value):
            for inner in nearer:
                yield from _problems(inner, whole)
        case _:
            expected = _expected(error)
            yield Problem(
                _path(path), f"expected {expected}, got {describe_value(value)}", expected, describe_value(value)
            )


def _unknown(path: list[str | int], fields: Mapping[str, Any]) -> Iterator[Problem]:
    for name, value in fields.items():
        yield Problem(_path([*path, name]), "is not a known field", "no such field", describe_value(value))


def _at(value: Any, path: Iterable[str | int]) -> Any:
    for step in path:
        value = value[step]
    return value


def _nearest(kind: Any, depth: int, value: Any) -> Sequence[Any]:
    """The errors of the alternative that was probably meant: the only one of the right type, or the nearest object."""
    branches = getattr(kind, "context", None) or ()
    candidates = [branch for branch in branches if branch and not any(_rules_out(error, depth) for error in branch)]
    if len(candidates) == 1 or (candidates and isinstance(value, dict)):
        return min(candidates, key=len)
    return ()


def _rules_out(error: Any, depth: int) -> bool:
    """Whether an error shows that an alternative was not meant: another type, or another tag."""
    below = len(error.instance_path) - depth
    if below == 1:
        return bool(error.kind.name == "const")
    return below < 1 and error.kind.name in ("type", "enum", "const")


def _expected(error: Any) -> str:
    kind = error.kind
    match kind.name:
        case "type":
            return _either(_A[name] for name in sorted(kind.types, key=_ORDER.index))
        case "enum":
            return "one of " + ", ".join(map(_json, kind.options)) if len(kind.options) > 1 else _json(kind.options[0])
        case "const":
            return _json(kind.expected_value)
        case "anyOf" | "oneOf":
            branches = getattr(kind, "context", None) or ()
            firsts = dict.fromkeys(_expected(branch[0]) for branch in branches if branch)
            return _either(firsts) if firsts else "exactly one of the alternatives"
        case "falseSchema":
            return "nothing here"
        case name if name in _LIMITS:
            before, after = _LIMITS[name]
            return f"{before} {kind.value}{after if kind.value == 1 or not after else after + 's'}"
        case "pattern":
            return f"text that matches `{kind.value}`"
        case _:
            return f"a value for which this holds: {truncate(error.message, 200)}"


_A = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_ORDER = list(_A)
_LIMITS = {
    "minimum": ("at least", ""),
    "maximum": ("at most", ""),
    "exclusiveMinimum": ("more than", ""),
    "exclusiveMaximum": ("less than", ""),
    "multipleOf": ("a multiple of", ""),
    "minLength": ("at least", " character"),
    "maxLength": ("at most", " character"),
    "minItems": ("at least", " item"),
    "maxItems": ("at most", " item"),
    "minProperties": ("at least", " field"),
    "maxProperties": ("at most", " field"),
}


def describe_value(value: Any) -> str:
    """Describe a value in a few words: its type and its beginning."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {truncate(str(value), _MAX_VALUE_CHARS)}"
        case str():
            return f"the string {_json(truncate(value, _MAX_VALUE_CHARS))}" if value else "an empty string"
        case Mapping():
            return (
                f"an object ({', '.join(truncate(str(key), 20) for key in list(value)[:5])})"
                if value
                else "an empty object"
            )
        case list() | tuple():
            return f"a list of {len(value)}" if value else "an empty list"
    return type(value).__name__


def _either(choices: Iterable[str]) -> str:
    *first, last = dict.fromkeys(choices)
    return f"{', '.join(first)} or {last}" if first else last


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _path(steps: Iterable[str | int]) -> str:
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{step}" if path else str(step)
    return path


_MAX_PROBLEMS = 20
_MAX_LINE_CHARS = 120


def explain(tool_name: str, problems: Sequence[Problem], schema: Mapping[str, Any]) -> str:
    """Say what is wrong with the input of a tool."""
    lines = [f"{tool_name} was not run, its input has {plural(len(problems), 'problem')}:"]
    lines.extend(f"- {line}" for line in _lines(problems[:_MAX_PROBLEMS], schema))
    if len(problems) > _MAX_PROBLEMS:
        lines.append(f"- and {len(problems) - _MAX_PROBLEMS} more")
    return "\n".join(lines)


def _lines(problems: Sequence[Problem], schema: Mapping[str, Any]) -> Iterator[str]:
    missing = {problem.path for problem in problems if problem.got == "nothing"}
    for problem in problems:
        path = truncate(problem.path, _MAX_LINE_CHARS)
        if not path:
            yield problem.message
        elif problem.got == "nothing":
            yield f"`{path}` {problem.message}{_about(path, schema)}"
        elif problem.expected == "no such field":
            yield f"`{path}` {problem.message}{_suggest_field(path, missing, schema)}"
        else:
            yield f"`{path}`: {problem.message}"


def suggest_retry(tool_name: str, schema: Mapping[str, Any]) -> str:
    """Tell a model how to call a tool again."""
    properties = schema.get("properties") or {}
    if not properties:
        if schema.get("additionalProperties") is not False:
            return f"Correct this and call {tool_name} again."
        return f"Call {tool_name} again with {{}}: it takes no fields."
    required = set(schema.get("required") or ())
    names = ", ".join(f"{name} (required)" if name in required else name for name in properties)
    return f"Correct this and call {tool_name} again. Fields: {names}."


def _about(path: str, schema: Mapping[str, Any]) -> str:
    """The type and description of a missing field."""
    field = _properties_around(path, schema).get(_name(path))
    if not isinstance(field, Mapping):
        return ""
    kinds = field.get("type")
    kind = " or ".join(kinds) if isinstance(kinds, list) else kinds
    about = truncate_line(str(field.get("description", "")), _MAX_LINE_CHARS)
    detail = f"{kind}: {about}" if kind and about else kind or about
    return f" ({detail})" if detail else ""


def _suggest_field(path: str, missing: set[str], schema: Mapping[str, Any]) -> str:
    """Suggest the field that an unknown one may have meant, preferably a missing one."""
    known = [str(name) for name in _properties_around(path, schema)]
    if not known:
        return ""
    parent = path.removesuffix(_name(path))
    return did_you_mean(_name(path), sorted(known, key=lambda name: parent + name in missing))


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
    """The node itself, what it refers to, or the one alternative with properties or items."""
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
