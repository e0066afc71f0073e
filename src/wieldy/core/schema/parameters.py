"""The input of a tool: its JSON Schema, the accepted spellings, and the conversion from JSON to Python values."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from wieldy.core.schema.check import InvalidInput, Problem, SchemaValidator, UnsupportedAnnotation

if TYPE_CHECKING:
    from wieldy.core.schema.convert import Converter
    from wieldy.core.schema.fields import Fields


class Parameters:
    """What a tool takes. `aliases` maps every further accepted spelling to the name in `schema`.

    The schema is derived at once; the converter is built at the first `accept`.
    """

    __slots__ = ("_accept", "_checker", "_make_converter", "aliases", "schema")

    def __init__(
        self,
        schema: dict[str, Any],
        aliases: Mapping[str, str],
        make_converter: Callable[[Converter], Callable[[Any], Any]] | None = None,
    ) -> None:
        self.schema = schema
        self.aliases = _without_field_names(aliases, schema) if aliases else aliases
        self._checker = SchemaValidator(schema)
        self._make_converter = make_converter
        self._accept: Callable[[Any], Any] | None = None

    @classmethod
    def from_function(
        cls, function: Callable[..., Any], *, skip: Collection[str] = (), aliases: Mapping[str, str] | None = None
    ) -> Parameters:
        """The parameters of a function except those in `skip`; `accept` returns keyword arguments."""
        from wieldy.core.schema.derive import object_schema
        from wieldy.core.schema.fields import fields_of_function

        fields = fields_of_function(function, skip)
        return cls(
            object_schema(fields), _spellings(fields, aliases), lambda converter: converter.keyword_arguments(fields)
        )

    @classmethod
    def from_type(cls, kind: type, *, aliases: Mapping[str, str] | None = None) -> Parameters:
        """The fields of a dataclass, TypedDict, msgspec.Struct or pydantic model; `accept` returns an instance."""
        from wieldy.core.schema.derive import object_schema, pydantic_schema
        from wieldy.core.schema.fields import fields_of_model, is_model, is_pydantic

        if is_pydantic(kind):
            schema, definitions = pydantic_schema(kind)
            whole = {**schema, "$defs": definitions} if definitions else schema
            return cls(whole, aliases or {}, lambda converter: converter.model(kind))
        if not is_model(kind):
            raise UnsupportedAnnotation(
                getattr(kind, "__qualname__", str(kind)),
                "",
                "is no dataclass, TypedDict, msgspec.Struct or pydantic model",
            )
        fields = fields_of_model(kind)
        return cls(object_schema(fields), _spellings(fields, aliases), lambda converter: converter.model(kind))

    @classmethod
    def from_annotation(cls, annotation: Any, owner: str) -> Parameters:
        """Any annotation, such as `list[Plan]`; `accept` takes and returns what it says. Errors name the `owner`."""
        from wieldy.core.schema.derive import annotation_schema
        from wieldy.core.schema.fields import is_model, is_pydantic

        if is_pydantic(annotation) or is_model(annotation):
            return cls.from_type(annotation)
        return cls(annotation_schema(annotation, owner), {}, lambda converter: converter.value(annotation))

    @classmethod
    def from_schema(cls, schema: Mapping[str, Any], *, aliases: Mapping[str, str] | None = None) -> Parameters:
        """A raw JSON Schema; `accept` returns the checked dict itself."""
        return cls(dict(schema), aliases or {})

    def compile(self) -> None:
        """Raise `SchemaError` if the schema cannot be used."""
        self._checker.compile()

    def accept(self, input: Any) -> Any:
        """Python values for an input under canonical names. Raises `InvalidInput` with every problem at once."""
        if self._accept is None:
            self._accept = self._build()
        try:
            return self._accept(input)
        except (ValueError, TypeError, RecursionError) as error:
            return self._retry(input, self._accept, error)

    def _build(self) -> Callable[[Any], Any]:
        if self._make_converter is None:
            return self._check
        from wieldy.core.schema.convert import Converter

        return self._make_converter(Converter())

    def _check(self, input: Any) -> Any:
        if self._checker.fits(input):
            return input
        raise InvalidInput(self._checker.problems(input))

    def _retry(self, input: Any, accept: Callable[[Any], Any], error: Exception) -> Any:
        """Conversion failed: raise every problem the schema finds; if it finds none, retry with `1.0` as `1`."""
        if problems := self._checker.problems(input):
            raise InvalidInput(problems) from None
        if not isinstance(error, InvalidInput):
            try:
                return accept(_with_whole_numbers(input))
            except (ValueError, TypeError, RecursionError) as second_error:
                error = second_error
        if isinstance(error, InvalidInput):
            raise InvalidInput(error.problems) from None
        if isinstance(error, RecursionError):
            raise InvalidInput([Problem("", "The input is nested too deeply for this tool.")]) from None
        raise InvalidInput([_msgspec_problem(str(error))]) from None


def object_schema_problem(schema: Any) -> str | None:
    """Why a schema cannot be the input of a tool, or None if it can."""
    if not isinstance(schema, Mapping):
        return f"the input schema is {type(schema).__name__}, not a JSON object"
    kind = schema.get("type")
    if kind == "object":
        properties = schema.get("properties", {})
        return None if isinstance(properties, Mapping) else "`properties` of the input schema is not a JSON object"
    if kind is not None:
        return f'the input schema has type {kind!r}; a tool takes an object (`"type": "object"`)'
    combined = [key for key in ("anyOf", "oneOf", "allOf", "$ref", "enum", "const") if key in schema]
    if combined:
        return f'the input schema is a top-level `{combined[0]}`; a tool takes an object (`"type": "object"`)'
    return 'the input schema does not say `"type": "object"`'


def _spellings(fields: Fields, declared: Mapping[str, str] | None) -> dict[str, str]:
    """Every accepted spelling; a declared alias may point at the Python name of a field."""
    spellings = {}
    if declared:
        wire = {field.name: field.wire for field in fields.fields}
        spellings = {alias: wire.get(name, name) for alias, name in declared.items()}
    for field in fields.fields:
        if field.param.aliases:
            spellings.update(dict.fromkeys(field.param.aliases, field.wire))
    return spellings


def _without_field_names(aliases: Mapping[str, str], schema: Mapping[str, Any]) -> dict[str, str]:
    """Drop aliases that are a field's own name: a name in the schema always means that field."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return dict(aliases)
    return {alias: name for alias, name in aliases.items() if alias not in properties}


def _with_whole_numbers(value: Any) -> Any:
    """Turn 1.0 into 1: JSON Schema calls both integers, msgspec only the second."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _with_whole_numbers(item) for key, item in value.items()}
    return [_with_whole_numbers(item) for item in value] if isinstance(value, list) else value


def _msgspec_problem(text: str) -> Problem:
    """Parse an error of msgspec, which ends in ``- at `$.path` ``."""
    message, _, where = text.partition(" - at `")
    path = re.sub(r"^\$\.?", "", where.rstrip("`"))
    return Problem(path, message)
