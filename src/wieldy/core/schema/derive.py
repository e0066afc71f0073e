"""Derive JSON Schema (draft 2020-12) from Python annotations."""

from __future__ import annotations

import enum
import types
import typing
from collections import abc
from typing import Any, TypeAlias

from wieldy.core.schema.check import UnsupportedAnnotation
from wieldy.core.schema.fields import (
    MISSING,
    PLAIN,
    Field,
    Fields,
    Param,
    fields_of_model,
    is_model,
    is_named_tuple,
    is_pydantic,
    is_typed_dict,
    prose,
    unwrap,
    written_doc,
)

Schema: TypeAlias = dict[str, Any]

_PATHS = frozenset({"Path", "PurePath", "PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath"})


def is_path(cls: Any) -> bool:
    """Whether a class is one of pathlib's."""
    return getattr(cls, "__name__", "") in _PATHS and cls.__module__.split(".")[0] == "pathlib"


def merge_union(members: list[Schema]) -> Schema:
    """Merge the members of a union, in the shortest form."""
    distinct: list[Schema] = []
    for member in members:
        if not member:
            return {}
        if member not in distinct or "$ref" in member:
            distinct.append(member)
    if len(distinct) == 1:
        return distinct[0]
    if all(len(member) == 1 and "type" in member for member in distinct):
        kinds = [member["type"] for member in distinct]
        if "number" in kinds and "integer" in kinds:
            kinds.remove("integer")
        return {"type": kinds[0] if len(kinds) == 1 else kinds}
    rest = [member for member in distinct if member != {"type": "null"}]
    if len(rest) == 1 and isinstance(rest[0].get("type"), str):
        schema = {**rest[0], "type": [rest[0]["type"], "null"]}
        if "enum" in schema:
            schema["enum"] = [*schema["enum"], None]
        return schema
    return {"anyOf": distinct}


def add_bounds(schema: Schema, param: Param) -> None:
    """Add a parameter's bounds to its schema, under the keyword that fits its type."""
    for name, keyword in _NUMBERS:
        if (limit := getattr(param, name)) is not None:
            schema[keyword] = limit
    if param.pattern is not None:
        schema["pattern"] = param.pattern
    if param.examples is not None:
        schema["examples"] = list(param.examples)
    if param.min_length is not None or param.max_length is not None:
        for kind in _kinds(schema):
            if suffix := _LENGTHS.get(kind):
                if param.min_length is not None:
                    schema["min" + suffix] = param.min_length
                if param.max_length is not None:
                    schema["max" + suffix] = param.max_length


_NUMBERS = (
    ("ge", "minimum"),
    ("gt", "exclusiveMinimum"),
    ("le", "maximum"),
    ("lt", "exclusiveMaximum"),
    ("multiple_of", "multipleOf"),
)
_LENGTHS = {"string": "Length", "array": "Items", "object": "Properties"}


def _kinds(schema: Schema) -> set[str]:
    kinds = schema.get("type", [])
    names = {kinds} if isinstance(kinds, str) else set(kinds)
    return names.union(*map(_kinds, schema.get("anyOf", ())))


def unless_empty(key: str, schema: Schema) -> Schema:
    """The keyword, or nothing where the schema allows everything."""
    return {key: schema} if schema else {}


def array_of(items: list[Schema], minimum: int) -> Schema:
    """An array with one schema per position, of which the first `minimum` are required."""
    if not items:
        return {"type": "array", "maxItems": 0}
    return {"type": "array", "prefixItems": items, "minItems": minimum, "maxItems": len(items)}


def default_as_json(default: Any, depth: int = 0) -> Any:
    """Convert a default to JSON; MISSING if JSON cannot express it."""
    if isinstance(default, enum.Enum):
        return default_as_json(default.value, depth)
    kind = type(default)
    if kind in (str, int, bool, type(None)):
        return default
    if kind is float:
        return default if default - default == 0 else MISSING  # neither infinite nor NaN
    if depth > 8:
        return MISSING
    if kind in (list, tuple):
        items = [default_as_json(item, depth + 1) for item in default]
        return MISSING if MISSING in items else items
    if kind is dict and all(type(key) is str for key in default):
        values = {key: default_as_json(value, depth + 1) for key, value in default.items()}
        return MISSING if MISSING in values.values() else values
    return str(default) if is_path(kind) else MISSING


_SIMPLE: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    float: {"type": "number"},
    None: {"type": "null"},
    type(None): {"type": "null"},
    Any: {},
    object: {},
}
# By name, so that the modules need not be imported.
_BY_NAME: dict[tuple[str, str], Schema] = {
    ("datetime", "datetime"): {"type": "string", "format": "date-time"},
    ("datetime", "date"): {"type": "string", "format": "date"},
    ("datetime", "time"): {"type": "string", "format": "time"},
    ("uuid", "UUID"): {"type": "string", "format": "uuid"},
}
ARRAYS: dict[Any, type] = {
    list: list,
    set: set,
    frozenset: frozenset,
    abc.Sequence: list,
    abc.MutableSequence: list,
    abc.Collection: list,
    abc.Iterable: list,
    abc.Set: set,
    abc.MutableSet: set,
}
OBJECTS = frozenset({dict, abc.Mapping, abc.MutableMapping})
_INTEGER_KEY = "^-?(0|[1-9][0-9]*)$"
_JSON_TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}


def object_schema(fields: Fields) -> Schema:
    """Derive the schema of an object with these fields, including `$defs`."""
    derivation = Derivation(fields.owner)
    return derivation.finish(derivation.object_of(fields))


def annotation_schema(annotation: Any, owner: str) -> Schema:
    """Derive the schema of any annotation, including `$defs`."""
    derivation = Derivation(owner)
    return derivation.finish(derivation.schema_of(annotation))


class Derivation:
    """Derives one schema: every model gets a definition; one that is referenced once is inlined at the end."""

    __slots__ = ("_aliases", "_definitions", "_foreign", "_names", "_owner", "_parameter", "_references")

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._parameter = ""
        self._aliases: list[Any] = []
        self._definitions: dict[type, Schema] = {}
        self._references: dict[type, list[Schema]] = {}
        self._names: dict[type, str] = {}
        self._foreign: Schema = {}

    def object_of(self, fields: Fields) -> Schema:
        """The schema of these fields, with unresolved references."""
        outer = self._parameter
        properties: Schema = {}
        required: list[str] = []
        if fields.tag:
            properties[fields.tag[0]] = {"const": fields.tag[1]}
            required.append(fields.tag[0])
        for field in fields.fields:
            self._parameter = f"{outer}.{field.name}" if outer else field.name
            if field.wire in properties:
                raise UnsupportedAnnotation(self._owner, self._parameter, "has the name of another one")
            properties[field.wire] = self._property(field)
            if field.required:
                required.append(field.wire)
        self._parameter = outer
        schema: Schema = {"type": "object", "properties": properties}
        if required:
            schema["required"] = required
        rest = fields.rest
        schema["additionalProperties"] = False if rest is MISSING else (self.schema_of(rest) or True)
        return schema

    def finish(self, schema: Schema) -> Schema:
        """Resolve the references: a model used once is inlined, any other goes into `$defs`."""
        definitions: Schema = dict(self._foreign)
        for cls, references in self._references.items():
            definition = self._definitions[cls]
            if len(references) == 1:
                (node,) = references
                overrides = {key: value for key, value in node.items() if key != "$ref"}
                node.clear()
                node.update(definition)
                node.update(overrides)
                # The node shares the objects inside the definition, so references in it are resolved too.
            else:
                definitions[self._names[cls]] = definition
        if definitions:
            schema["$defs"] = definitions
        return schema

    def _property(self, field: Field) -> Schema:
        schema = self.schema_of(field.annotation)
        if field.param is not PLAIN:
            add_bounds(schema, field.param)
        if field.about:
            schema["description"] = field.about
        # A default of null would tell the model nothing new.
        if field.default is not MISSING and field.default is not None:
            default = default_as_json(field.default)
            if default is not MISSING:
                schema["default"] = default
        return schema

    def schema_of(self, annotation: Any) -> Schema:
        """Derive the schema of one annotation: always a fresh dict."""
        try:
            simple = _SIMPLE.get(annotation)
        except TypeError:  # unhashable: a Literal or Annotated of something mutable
            simple = None
        if simple is not None:
            return simple.copy()
        origin = typing.get_origin(annotation)
        if origin is not None:
            return self._generic(annotation, origin)
        if isinstance(annotation, type):
            return self._class(annotation)
        if (target := getattr(annotation, "__supertype__", None)) is not None:  # NewType
            return self.schema_of(target)
        if type(annotation).__name__ == "TypeAliasType":
            return self._alias(annotation)
        raise self._unsupported(annotation)

    def _alias(self, alias: Any) -> Schema:
        if alias in self._aliases:
            raise self._unsupported(alias, "refers to itself; use a dataclass")
        self._aliases.append(alias)
        schema = self.schema_of(alias.__value__)
        self._aliases.pop()
        return schema

    def _generic(self, annotation: Any, origin: Any) -> Schema:
        arguments = typing.get_args(annotation)
        if origin is typing.Union or origin is types.UnionType:
            return merge_union([self.schema_of(argument) for argument in arguments])
        if origin in ARRAYS:
            if ARRAYS[origin] is not list and not _is_hashable(arguments[0]):
                raise self._unsupported(arguments[0], "a set cannot hold")
            return {"type": "array", **unless_empty("items", self.schema_of(arguments[0]))}
        if origin is typing.Annotated:
            bare, param = unwrap(annotation)
            schema = self.schema_of(bare)
            add_bounds(schema, param)
            if param.about:
                schema["description"] = param.about
            return schema
        if origin is typing.Literal:
            return self._choice(
                [value.value if isinstance(value, enum.Enum) else value for value in arguments], annotation
            )
        if origin is tuple:
            return self._tuple(arguments)
        if origin in OBJECTS:
            return self._mapping(*arguments)
        if origin in (typing.Final, typing.Required, typing.NotRequired):
            return self.schema_of(arguments[0])
        raise self._unsupported(annotation)

    def _class(self, cls: type) -> Schema:
        if cls in ARRAYS or cls is tuple:
            return {"type": "array"}
        if cls in OBJECTS:
            return {"type": "object"}
        if (named := _BY_NAME.get((cls.__module__, cls.__name__))) is not None:
            return named.copy()
        if is_path(cls):
            return {"type": "string"}
        if issubclass(cls, enum.Enum):
            return self._choice([member.value for member in cls], cls)
        if is_pydantic(cls):
            return self._pydantic(cls)
        if is_named_tuple(cls):
            fields = fields_of_model(cls).fields
            minimum = sum(field.required for field in fields)
            return array_of([self._property(field) for field in fields], minimum)
        if is_model(cls):
            return self._reference(cls)
        raise self._unsupported(cls)

    def _tuple(self, arguments: tuple[Any, ...]) -> Schema:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return {"type": "array", **unless_empty("items", self.schema_of(arguments[0]))}
        return array_of([self.schema_of(argument) for argument in arguments], len(arguments))

    def _mapping(self, key: Any, value: Any) -> Schema:
        schema: Schema = {"type": "object", **unless_empty("additionalProperties", self.schema_of(value))}
        names = self.schema_of(key)
        if names == {"type": "integer"}:
            return {**schema, "propertyNames": {"pattern": _INTEGER_KEY}}
        if names.get("type", "string") != "string":
            raise self._unsupported(key, "cannot be the key of a JSON object")
        names.pop("type", None)
        return {**schema, **unless_empty("propertyNames", names)}

    def _choice(self, values: list[Any], annotation: Any) -> Schema:
        kinds = {_JSON_TYPES.get(type(value), "") for value in values}
        if "" in kinds or not values:
            raise self._unsupported(annotation, "has values that JSON cannot say")
        return {"type": kinds.pop(), "enum": values} if len(kinds) == 1 else {"enum": values}

    def _reference(self, cls: type) -> Schema:
        node: Schema = {}
        if cls in self._references:
            self._references[cls].append(node)
        else:
            self._references[cls] = [node]
            self._names[cls] = self._free_name(cls.__name__)
            definition = self.object_of(fields_of_model(cls))
            if about := prose(written_doc(cls)):
                definition = {"description": about, **definition}
            self._definitions[cls] = definition
        node["$ref"] = f"#/$defs/{self._names[cls]}"
        return node

    def _pydantic(self, cls: Any) -> Schema:
        name = self._free_name(cls.__name__)
        schema, definitions = pydantic_schema(cls, f"{name}.")
        self._foreign.update(definitions)
        return schema

    def _free_name(self, name: str) -> str:
        taken = {*self._names.values(), *(key.partition(".")[0] for key in self._foreign)}
        if name not in taken:
            return name
        return next(f"{name}{n}" for n in range(2, len(taken) + 3) if f"{name}{n}" not in taken)

    def _unsupported(self, annotation: Any, why: str = "cannot be expressed in JSON Schema") -> UnsupportedAnnotation:
        name = annotation.__qualname__ if isinstance(annotation, type) else str(annotation)
        return UnsupportedAnnotation(self._owner, self._parameter, f"is annotated `{name}`, which {why}")


def _is_hashable(annotation: Any) -> bool:
    """Whether values of an annotation can be members of a set."""
    kind = typing.get_origin(annotation) or annotation
    if kind in ARRAYS:
        return ARRAYS[kind] is frozenset
    return kind not in OBJECTS and not is_typed_dict(kind) and getattr(kind, "__hash__", None) is not None


def pydantic_schema(cls: Any, prefix: str = "") -> tuple[Schema, Schema]:
    """A pydantic model's own schema and definitions; unknown fields are refused unless it allows them."""
    schema: Schema = cls.model_json_schema(ref_template=f"#/$defs/{prefix}{{model}}")
    definitions = {prefix + name: definition for name, definition in schema.pop("$defs", {}).items()}
    if "$ref" in schema and len(schema) == 1:  # a recursive model
        schema = dict(definitions[schema["$ref"].removeprefix("#/$defs/")])
    schema.pop("title", None)
    for model in (schema, *definitions.values()):
        if model.get("type") == "object" and "properties" in model:
            model.setdefault("additionalProperties", False)
    return schema, definitions
