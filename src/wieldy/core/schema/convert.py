"""Convert JSON values to the Python values that annotations ask for, with msgspec.

msgspec ignores unknown fields of nested models and refuses some unions. So every model is mirrored by a strict struct,
and what msgspec cannot convert is a marker class whose maker runs as msgspec's `dec_hook`.
"""

from __future__ import annotations

import enum
import re
import typing
from collections.abc import Callable
from keyword import iskeyword
from types import GenericAlias, UnionType
from typing import Any

import msgspec

from wieldy.core.schema.derive import ARRAYS, OBJECTS, is_path
from wieldy.core.schema.fields import (
    MISSING,
    PLAIN,
    Fields,
    Param,
    fields_of_model,
    is_model,
    is_named_tuple,
    is_pydantic,
    is_typed_dict,
    unwrap,
)

Maker: typing.TypeAlias = Callable[[Any], Any]

_NATIVE = frozenset({str, int, float, bool, None, type(None), Any, list, dict, set, frozenset, tuple})
_UNION: Any = typing.Union
_FAMILIES: dict[Any, str] = {
    str: "text",
    int: "number",
    float: "number",
    **dict.fromkeys((list, dict, set, frozenset, tuple), "length"),
}
_STRINGY = frozenset({("datetime", "datetime"), ("datetime", "date"), ("datetime", "time"), ("uuid", "UUID")})


class _Marker(type):
    """The metaclass of marker classes: msgspec checks `isinstance`, and whatever a maker returned counts as one."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return True


class Converter:
    """Builds functions that convert JSON; they raise `ValueError` or `TypeError` for invalid values."""

    def __init__(self) -> None:
        self._makers: dict[type, Maker] = {}
        self._models: dict[type, type] = {}
        self._is_plain = True

    def keyword_arguments(self, fields: Fields) -> Maker:
        """Return a function from a JSON object to keyword arguments."""
        if fields.rest is not MISSING:
            return self._with_rest(fields)
        names = _struct_names(fields)
        struct = self._mirror(fields, names)
        rename = _renamer({name: field.name for name, field in zip(names, fields.fields, strict=True)})
        convert, unset = self._convert_to(struct), msgspec.UNSET
        if all(field.required for field in fields.fields):
            return lambda value: rename(convert(value))
        fills = {field.name: field.fill for field in fields.fields if field.fill is not None}
        if not fills:
            return lambda value: {name: item for name, item in rename(convert(value)).items() if item is not unset}

        def make(value: Any) -> dict[str, Any]:
            arguments = rename(convert(value))
            return {
                name: fills[name]() if item is unset else item
                for name, item in arguments.items()
                if item is not unset or name in fills
            }

        return make

    def model(self, cls: type) -> Maker:
        """Return a function from a JSON object to an instance of a dataclass, TypedDict, struct or pydantic model."""
        return self._makers[self._model_type(cls)]

    def value(self, annotation: Any) -> Maker:
        """Return a function from JSON to a value of any annotation."""
        return self._convert_to(self._type(annotation, PLAIN))

    def _with_rest(self, fields: Fields) -> Maker:
        known = {field.wire for field in fields.fields}
        hidden = {field.name for field in fields.fields} - known
        named = self.keyword_arguments(Fields(fields.owner, fields.fields, tag=fields.tag))
        convert_rest = self._convert_to(GenericAlias(dict, (str, self._type(fields.rest, PLAIN))))

        def make(value: Any) -> dict[str, Any]:
            arguments = named({key: item for key, item in value.items() if key in known})
            rest = {key: item for key, item in value.items() if key not in known}
            if taken := hidden.intersection(rest):
                raise ValueError(f"`{min(taken)}` is not a known field")
            return {**convert_rest(rest), **arguments}

        return make

    def _hook(self, kind: type, value: Any) -> Any:
        return self._makers[kind](value)

    def _convert_to(self, kind: Any) -> Maker:
        """msgspec's conversion to a type, with `dec_hook` only where a marker or a non-string key needs it."""
        convert, hook = msgspec.convert, self._hook
        if self._is_plain:
            return lambda value: convert(value, kind)
        return lambda value: convert(value, kind, dec_hook=hook, str_keys=True)

    def _mirror(self, fields: Fields, names: tuple[str, ...]) -> type:
        entries: list[Any] = []
        rename: dict[str, str] = {}
        for name, field in zip(names, fields.fields, strict=True):
            kind = self._type(field.annotation, field.param)
            entries.append((name, kind) if field.required else (name, kind, msgspec.UNSET))
            rename[name] = field.wire
        tag_field, tag = fields.tag or (None, None)
        return msgspec.defstruct(
            "Input", entries, kw_only=True, forbid_unknown_fields=True, rename=rename, tag_field=tag_field, tag=tag
        )

    def _type(self, annotation: Any, bounds: Param) -> Any:
        """The type for which msgspec accepts exactly what the JSON Schema accepts."""
        origin = typing.get_origin(annotation)
        if origin is None:
            return self._plain_type(annotation, bounds)
        arguments = typing.get_args(annotation)
        if origin is typing.Annotated:
            bare, param = unwrap(annotation)
            return self._type(bare, param)
        if origin is typing.Union or origin is UnionType:
            return self._union([self._type(argument, bounds) for argument in arguments])
        if origin is typing.Literal:
            return self._literal(arguments)
        if origin in ARRAYS:
            return _bounded(GenericAlias(ARRAYS[origin], self._type(arguments[0], PLAIN)), bounds, "length")
        if origin is tuple:
            parts = tuple(part if part is ... else self._type(part, PLAIN) for part in arguments)
            return _bounded(GenericAlias(tuple, parts), bounds, "length" if ... in parts else "")
        if origin in OBJECTS:
            self._is_plain = False
            key, value = (self._type(argument, PLAIN) for argument in arguments)
            return _bounded(GenericAlias(dict, (key, value)), bounds, "length")
        return self._type(arguments[0], bounds)  # Final, Required, NotRequired

    def _plain_type(self, cls: Any, bounds: Param) -> Any:
        if cls in _NATIVE:
            return _bounded(cls, bounds, _FAMILIES.get(cls, ""))
        if cls in ARRAYS:
            return _bounded(ARRAYS[cls], bounds, "length")
        if cls is object or cls in OBJECTS:
            return Any if cls is object else _bounded(dict, bounds, "length")
        if not isinstance(cls, type):
            return self._type(getattr(cls, "__supertype__", None) or cls.__value__, bounds)  # NewType, TypeAliasType
        text = _bounded(str, bounds, "text")
        if (cls.__module__, cls.__name__) in _STRINGY:
            return (
                cls if text is str else self._marker(lambda value: msgspec.convert(msgspec.convert(value, text), cls))
            )
        if is_path(cls):
            return self._marker(lambda value: cls(msgspec.convert(value, text)))
        if issubclass(cls, enum.Enum):
            return self._enum(cls)
        return self._model_type(cls)

    def _marker(self, maker: Maker) -> type:
        kind = _Marker("Marker", (), {})
        self._is_plain = False
        self._makers[kind] = maker
        return kind

    def _model_type(self, cls: type) -> type:
        kind = self._models.get(cls)
        if kind is None:
            self._is_plain = False
            kind = self._models[cls] = _Marker(cls.__name__, (), {})  # before its fields: a model may contain itself
            self._makers[kind] = self._model_maker(cls)
        return kind

    def _model_maker(self, cls: Any) -> Maker:
        if is_pydantic(cls):
            from wieldy.core.schema.pydantic_models import pydantic_maker

            return pydantic_maker(cls)
        fields = fields_of_model(cls)
        if is_named_tuple(cls):
            return self._named_tuple(cls, fields)
        assert is_model(cls)
        arguments = self.keyword_arguments(fields)
        if is_typed_dict(cls):
            return arguments
        return lambda value: cls(**arguments(value))

    def _named_tuple(self, cls: Any, fields: Fields) -> Maker:
        kinds = [self._type(field.annotation, field.param) for field in fields.fields]
        least = sum(field.required for field in fields.fields)

        def make(value: Any) -> Any:
            count = len(value) if isinstance(value, list) else 0
            shape = GenericAlias(tuple, tuple(kinds[: max(least, min(count, len(kinds)))]))
            return cls(*msgspec.convert(value, shape, dec_hook=self._hook, str_keys=True))

        return make

    def _union(self, members: list[Any]) -> Any:
        """msgspec's own union where it supports it, else the first member that accepts the value."""
        union = _UNION[tuple(members)]
        non_null = [member for member in members if member not in (None, type(None))]
        if len(non_null) == 1 and len(non_null) < len(members):
            return union
        # Beside an int Literal or Enum, msgspec refuses other whole numbers although `float` accepts them.
        is_supported = float not in non_null or not any(map(_is_choice, non_null))
        if is_supported and not any(member in self._makers or _is_bounded(member) for member in non_null):
            try:
                msgspec.json.Decoder(union)
                return union
            except TypeError:
                pass

        def make(value: Any) -> Any:
            first_error: Exception | None = None
            for member in members:
                try:
                    return msgspec.convert(value, member, dec_hook=self._hook, str_keys=True)
                except (ValueError, TypeError) as error:
                    first_error = first_error or error
            raise ValueError(str(first_error))

        return self._marker(make)

    def _literal(self, values: tuple[Any, ...]) -> Any:
        if all(type(value) in (str, int) for value in values):
            return typing.Literal[values]
        table = {_key(value.value if isinstance(value, enum.Enum) else value): value for value in values}
        return self._marker(lambda value: _choose(table, value))

    def _enum(self, cls: type[enum.Enum]) -> Any:
        if {type(member.value) for member in cls} in ({str}, {int}):
            return cls
        table = {_key(member.value): member for member in cls}
        return self._marker(lambda value: _choose(table, value))


def _struct_names(fields: Fields) -> tuple[str, ...]:
    """The field names of the mirroring struct: the Python names where a struct can have them."""
    names = tuple(field.name for field in fields.fields)
    if all(name.isidentifier() and not iskeyword(name) and not name.startswith("__") for name in names):
        return names
    return tuple(f"f{index}" for index in range(len(names)))


def _renamer(names: dict[str, str]) -> Maker:
    if all(name == meant for name, meant in names.items()):
        return msgspec.structs.asdict
    return lambda made: {names[name]: value for name, value in msgspec.structs.asdict(made).items()}


def _key(value: Any) -> tuple[bool, Any]:
    """Equal for values that are equal in JSON: 1 and 1.0 are, 1 and true are not."""
    return isinstance(value, bool), value


def _choose(table: dict[tuple[bool, Any], Any], value: Any) -> Any:
    if isinstance(value, (list, dict)) or _key(value) not in table:
        raise ValueError("is none of the allowed values")
    return table[_key(value)]


def _is_choice(kind: Any) -> bool:
    return typing.get_origin(kind) is typing.Literal or (isinstance(kind, type) and issubclass(kind, enum.Enum))


def _is_bounded(kind: Any) -> bool:
    """Bounded members stay out of msgspec's unions: version 0.22 corrupts memory on some, such as a pattern beside a dict."""
    return typing.get_origin(kind) is typing.Annotated


def _bounded(kind: Any, bounds: Param, family: str) -> Any:
    if bounds is PLAIN or not family:
        return kind
    if family == "number":
        names: tuple[str, ...] = ("ge", "gt", "le", "lt", "multiple_of")
    else:
        names = ("min_length", "max_length")
    limits: dict[str, Any] = {name: limit for name in names if (limit := getattr(bounds, name)) is not None}
    if family == "text" and bounds.pattern is not None:
        limits["pattern"] = _python_pattern(bounds.pattern)
    return typing.Annotated[kind, msgspec.Meta(**limits)] if limits else kind


def _python_pattern(pattern: str) -> str:
    r"""In JSON Schema `$` is the very end; in Python it also stands before a last line break, so it becomes `\Z`."""
    return re.sub(r"\\.|\[(?:\\.|[^\]\\])*\]|\$", lambda m: r"\Z" if m[0] == "$" else m[0], pattern, flags=re.DOTALL)
