"""The input of a tool: the schema a model is shown, the spellings accepted, and the way from JSON to Python values."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from wieldy.schema.check import Misfit, Problem, SchemaError, UnsupportedAnnotation

if TYPE_CHECKING:
    from wieldy.schema.check import Checker
    from wieldy.schema.convert import Converter
    from wieldy.schema.fields import Fields
    from wieldy.schema.flat import Accept

__all__ = ["Misfit", "Parameters", "Problem", "SchemaError", "UnsupportedAnnotation", "object_schema_problem"]


class Parameters:
    """What a tool takes. `aliases` maps every further accepted spelling to the name in `schema`.

    `by_its_names`: accepting gives a dict under the names of the schema. The schema is made at once; whatever checks and
    converts is built at the first `accept`.
    """

    __slots__ = ("_accept", "_checking", "_find_flat", "_flat", "_prepare", "aliases", "by_its_names", "schema")

    def __init__(
        self,
        schema: dict[str, Any],
        aliases: Mapping[str, str],
        prepare: Callable[[Converter], Callable[[Any], Any]] | None,
        flat: Callable[[], Accept | None] = lambda: None,
        *,
        by_its_names: bool = False,
    ) -> None:
        self.schema = schema
        self.by_its_names = by_its_names
        self.aliases = _not_hiding(schema, aliases) if aliases else aliases
        self._checking: Checker | None = None
        self._prepare = prepare
        self._accept: Callable[[Any], Any] | None = None
        self._flat: Accept | None = None
        self._find_flat: Callable[[], Accept | None] | None = flat

    @classmethod
    def from_function(
        cls, function: Callable[..., Any], *, skip: Collection[str] = (), aliases: Mapping[str, str] | None = None
    ) -> Parameters:
        """The parameters of a function but those in `skip`; accepting gives keyword arguments under Python names."""
        from wieldy.schema.derive import object_schema
        from wieldy.schema.fields import fields_of_function

        fields = fields_of_function(function, skip)
        return cls(
            object_schema(fields),
            _spellings(fields, aliases),
            lambda convert: convert.keyword_arguments(fields),
            lambda: _flat_arguments(fields),
            by_its_names=all(field.name == field.wire for field in fields.fields),
        )

    @classmethod
    def from_type(cls, kind: type, *, aliases: Mapping[str, str] | None = None) -> Parameters:
        """The fields of a dataclass, TypedDict, msgspec.Struct or pydantic model; accepting gives an instance."""
        from wieldy.schema.derive import object_schema, pydantic_schema
        from wieldy.schema.fields import fields_of_model, is_model, is_pydantic

        if is_pydantic(kind):
            schema, definitions = pydantic_schema(kind)
            whole = {**schema, "$defs": definitions} if definitions else schema
            return cls(whole, aliases or {}, lambda convert: convert.model(kind))
        if not is_model(kind):
            raise UnsupportedAnnotation(
                getattr(kind, "__qualname__", str(kind)),
                "",
                "is no dataclass, TypedDict, msgspec.Struct or pydantic model",
            )
        fields = fields_of_model(kind)
        return cls(object_schema(fields), _spellings(fields, aliases), lambda convert: convert.model(kind))

    @classmethod
    def from_schema(cls, schema: Mapping[str, Any], *, aliases: Mapping[str, str] | None = None) -> Parameters:
        """A raw JSON Schema; accepting gives the checked dict itself."""
        return cls(dict(schema), aliases or {}, None, lambda: _flat_object(schema), by_its_names=True)

    @property
    def _checker(self) -> Checker:
        if self._checking is None:
            from wieldy.schema.check import Checker

            self._checking = Checker(self.schema)
        return self._checking

    def compile(self) -> None:
        """Raise `SchemaError` if the schema cannot be used."""
        self._checker.compile()

    def accept(self, input: dict[str, Any]) -> Any:
        """Python values for an input under canonical names. Raises `Misfit` with every problem at once."""
        if self._find_flat is not None:
            self._flat, self._find_flat = self._find_flat(), None
        if self._flat is not None and (accepted := self._flat(input)) is not None:
            return accepted
        accept = self._accept
        if accept is None:
            accept = self._accept = self._build()
        try:
            return accept(input)
        except (ValueError, TypeError, RecursionError) as error:
            return self._second_look(input, accept, error)

    def _build(self) -> Callable[[Any], Any]:
        if self._prepare is None:
            return self._checked
        from wieldy.schema.convert import Converter

        return self._prepare(Converter())

    def _checked(self, input: dict[str, Any]) -> dict[str, Any]:
        if self._checker.fits(input):
            return input
        raise Misfit(self._checker.problems(input))

    def _second_look(self, input: dict[str, Any], accept: Callable[[Any], Any], error: Exception) -> Any:
        """The fast way refused: list everything the schema forbids, or find out why it alone was not content."""
        if problems := self._checker.problems(input):
            raise Misfit(problems) from None
        if not isinstance(error, Misfit):
            try:
                return accept(_whole_numbers(input))
            except (ValueError, TypeError, RecursionError) as again:
                error = again
        if isinstance(error, Misfit):
            raise Misfit(error.problems) from None
        if isinstance(error, RecursionError):
            raise Misfit([Problem("", "The input is nested too deeply for this tool.")]) from None
        raise Misfit([_complaint(str(error))]) from None


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


def _flat_arguments(fields: Fields) -> Accept | None:
    from wieldy.schema.flat import flat_arguments

    return flat_arguments(fields)


def _flat_object(schema: Mapping[str, Any]) -> Accept | None:
    from wieldy.schema.flat import flat_object

    return flat_object(schema)


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


def _not_hiding(schema: Mapping[str, Any], aliases: Mapping[str, str]) -> dict[str, str]:
    """The aliases that are no field's own name: what the schema shows always means itself."""
    shown = schema.get("properties")
    if not isinstance(shown, Mapping):
        return dict(aliases)
    return {alias: name for alias, name in aliases.items() if alias not in shown}


def _whole_numbers(value: Any) -> Any:
    """1.0 is an integer in JSON Schema; Python wants it said as 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _whole_numbers(item) for key, item in value.items()}
    return [_whole_numbers(item) for item in value] if isinstance(value, list) else value


def _complaint(text: str) -> Problem:
    """msgspec's one complaint, which ends in `- at `$.path``."""
    message, _, where = text.partition(" - at `")
    path = re.sub(r"^\$\.?", "", where.rstrip("`"))
    return Problem(path, message)
