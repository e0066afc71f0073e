"""A JSON Schema at work, by jsonschema-rs: does a value fit, and if not, what is wrong with every field."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from wieldy.schema.strict_json import MAX_DEPTH, is_too_deep


class Problem:
    """One field that does not fit. `path` is written as in `edits[2].old_string`; it is empty for the input itself."""

    __slots__ = ("expected", "got", "message", "path")

    def __init__(self, path: str, message: str, expected: str = "", got: str = "") -> None:
        self.path = path
        self.message = message
        self.expected = expected
        self.got = got

    def _words(self) -> tuple[str, str, str, str]:
        return self.path, self.message, self.expected, self.got

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Problem) and self._words() == other._words()

    def __hash__(self) -> int:
        return hash(self._words())

    def __repr__(self) -> str:
        return f"Problem{self._words()}"

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class InvalidInput(Exception):
    """The input does not fit; `problems` names every wrong field."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("; ".join(map(str, self.problems)))


class SchemaError(Exception):
    """A JSON Schema that cannot be used: it breaks the rules of its draft, or refers to something that is not there."""


class UnsupportedAnnotation(TypeError):
    """A type that JSON Schema cannot express, or a parameter that a call by name cannot fill."""

    def __init__(self, owner: str, parameter: str, why: str) -> None:
        super().__init__(f"{owner}: parameter `{parameter}` {why}" if parameter else f"{owner} {why}")
        self.owner = owner
        self.parameter = parameter


_SHOWN = 80


class SchemaValidator:
    """One schema, compiled when first needed: by the draft `$schema` names, else 2020-12. Nothing is ever fetched."""

    __slots__ = ("_refers", "_schema", "_validator")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._validator: Any = None
        self._refers = False

    def compile(self) -> None:
        """Raise `SchemaError` now if the schema cannot be used."""
        if self._validator is None:
            self._validator = _compiled(self._schema)
            self._refers = _refers(self._schema)

    def fits(self, value: Any) -> bool:
        """Whether the value is what the schema asks for."""
        self.compile()
        if self._is_bottomless(value):
            return False
        try:
            return bool(self._validator.is_valid(value))
        except (ValueError, TypeError):  # no JSON at all
            return False

    def problems(self, value: Any) -> tuple[Problem, ...]:
        """Every field that is wrong, in the order of the schema; empty when the value fits."""
        self.compile()
        if self._is_bottomless(value):
            return (Problem("", f"The input is nested more than {MAX_DEPTH} levels deep."),)
        found: dict[Problem, None] = {}
        try:
            for error in self._validator.iter_errors(value):
                found.update(dict.fromkeys(_problems(error, value)))
        except (ValueError, TypeError) as error:
            found[Problem("", f"is not JSON: {error}")] = None
        return tuple(found)

    def _is_bottomless(self, value: Any) -> bool:
        """Whether a schema that can refer to itself would follow the value so deep that the native stack ends first."""
        return self._refers and is_too_deep(value)


def _refers(schema: Any) -> bool:
    if isinstance(schema, Mapping):
        return any(key in schema for key in _REFERENCES) or any(map(_refers, schema.values()))
    return isinstance(schema, list) and any(map(_refers, schema))


_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def _compiled(schema: Mapping[str, Any]) -> Any:
    import jsonschema_rs

    kind = jsonschema_rs.validator_for if "$schema" in schema else jsonschema_rs.Draft202012Validator
    try:
        return kind(dict(schema), validate_formats=False, offline=True)
    except (ValueError, TypeError, RecursionError) as error:
        reason = getattr(error, "message", None) or str(error)
        where = _path(getattr(error, "instance_path", ()))
        raise SchemaError(f"{reason} (at `{where}`)" if where else str(reason)) from error


def _problems(error: Any, whole: Any) -> Iterator[Problem]:
    path, kind, value = error.instance_path, error.kind, error.instance
    match kind.name:
        case "required":
            yield Problem(_path([*path, kind.property]), "is required but missing", "a value", "nothing")
        case "additionalProperties" | "unevaluatedProperties":
            yield from _unknown(path, {name: value.get(name) for name in kind.unexpected})
        case "falseSchema" if error.schema_path[-1:] == ["additionalProperties"]:
            yield from _unknown(path, _at(whole, path))  # where no field is known, only the first is told
        case "anyOf" | "oneOf" if nearer := _nearest(kind, len(path), value):
            for inner in nearer:
                yield from _problems(inner, whole)
        case _:
            expected = _expected(error)
            yield Problem(_path(path), f"expected {expected}, got {shown(value)}", expected, shown(value))


def _unknown(path: list[str | int], fields: Mapping[str, Any]) -> Iterator[Problem]:
    for name, value in fields.items():
        yield Problem(_path([*path, name]), "is not a known field", "no such field", shown(value))


def _at(value: Any, path: Iterable[str | int]) -> Any:
    for step in path:
        value = value[step]
    return value


def _nearest(kind: Any, depth: int, value: Any) -> Sequence[Any]:
    """Of several alternatives the errors of the one meant: the only one of the right type, or the nearest object."""
    branches = getattr(kind, "context", None) or ()
    right = [branch for branch in branches if branch and not any(_rules_out(error, depth) for error in branch)]
    if len(right) == 1 or (right and isinstance(value, dict)):
        return min(right, key=len)
    return ()


def _rules_out(error: Any, depth: int) -> bool:
    """Whether an error says that an alternative was not meant at all: another type, or another tag."""
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
            return f"a value for which this holds: {_cut(error.message, 200)}"


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


def shown(value: Any) -> str:
    """A value in a few words: its type and its beginning."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {_cut(str(value), _SHOWN)}"
        case str():
            return f"the string {_json(_cut(value, _SHOWN))}" if value else "an empty string"
        case Mapping():
            return (
                f"an object ({', '.join(_cut(str(key), 20) for key in list(value)[:5])})"
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


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _path(steps: Iterable[str | int]) -> str:
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{step}" if path else str(step)
    return path


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
        path = _cut_explain(problem.path)
        if not path:
            yield problem.message
        elif problem.got == "nothing":
            yield f"`{path}` {problem.message}{_about(path, schema)}"
        elif problem.expected == "no such field":
            yield f"`{path}` {problem.message}{_nearest_explain(path, missing, schema)}"
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
    about = _cut_explain(" ".join(str(field.get("description", "")).split()))
    words = f"{kind}: {about}" if kind and about else kind or about
    return f" ({words})" if words else ""


def _nearest_explain(path: str, missing: set[str], schema: Mapping[str, Any]) -> str:
    """A word on which field an unknown one may have meant; a missing one is the likelier."""
    known = [str(name) for name in _properties_around(path, schema)]
    if not known:
        return ""
    from difflib import get_close_matches

    parent = path.removesuffix(_name(path))
    plain = {_plain(name): name for name in sorted(known, key=lambda name: parent + name in missing)}
    found = get_close_matches(_plain(_name(path)), plain, n=1, cutoff=0.6)
    return f"; did you mean `{plain[found[0]]}`?" if found else ""


def _cut_explain(text: str) -> str:
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
