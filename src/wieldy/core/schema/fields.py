"""The fields of a function, dataclass, TypedDict, struct or NamedTuple, with types, defaults and descriptions."""

from __future__ import annotations

import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from wieldy.core.schema.check import UnsupportedAnnotation


class Param:
    """Description, wire name, further accepted spellings and bounds of a parameter.

    A plain string in `Annotated` is a description too. `name` is what the model writes where Python cannot
    spell it (`-A`); `aliases` are accepted beside it and never shown.
    """

    __slots__ = (
        "about",
        "aliases",
        "examples",
        "ge",
        "gt",
        "le",
        "lt",
        "max_length",
        "min_length",
        "multiple_of",
        "name",
        "pattern",
    )

    def __init__(  # noqa: PLR0913 - each is a keyword of its own
        self,
        about: str = "",
        *,
        name: str | None = None,
        aliases: tuple[str, ...] = (),
        ge: float | None = None,
        gt: float | None = None,
        le: float | None = None,
        lt: float | None = None,
        multiple_of: float | None = None,
        min_length: int | None = None,
        max_length: int | None = None,
        pattern: str | None = None,
        examples: Sequence[Any] | None = None,
    ) -> None:
        if pattern is not None:
            re.compile(pattern)  # raises here rather than at the first call
        self.about = about
        self.name = name
        self.aliases = aliases
        self.ge = ge
        self.gt = gt
        self.le = le
        self.lt = lt
        self.multiple_of = multiple_of
        self.min_length = min_length
        self.max_length = max_length
        self.pattern = pattern
        self.examples = examples

    def __repr__(self) -> str:
        values = {name: value for name in self.__slots__ if (value := getattr(self, name)) not in (None, "", ())}
        return f"Param({', '.join(f'{name}={value!r}' for name, value in values.items())})"

    def with_description(self, about: str) -> Param:
        return self.with_values({"about": about})

    def with_values(self, values: Mapping[str, Any]) -> Param:
        """A copy with other values."""
        return Param(**{**{name: getattr(self, name) for name in self.__slots__}, **values})


def _resolve(annotation: Any, function: types.FunctionType, owner: str, parameter: str) -> Any:
    """Evaluate an annotation that is a string or a reference to a name."""
    annotation = getattr(annotation, "__forward_arg__", annotation)
    if type(annotation) is not str:
        return annotation
    try:
        return _evaluate(annotation, function.__globals__)
    except NameError:
        pass  # perhaps a name of an enclosing function
    except Exception as error:
        raise UnsupportedAnnotation(
            owner, parameter, f"has an unreadable annotation `{annotation}`: {error}"
        ) from error
    try:
        return _evaluate(annotation, {**function.__globals__, **_closure_variables(function)})
    except Exception as error:
        raise UnsupportedAnnotation(owner, parameter, f"is annotated `{annotation}`, but {error}") from error


def _evaluate(text: str, scope: dict[str, Any]) -> Any:
    value = eval(f"(\n{text}\n)", scope)
    return _evaluate(value, scope) if type(value) is str else value


def _closure_variables(function: types.FunctionType) -> dict[str, Any]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    return {name: cell.cell_contents for name, cell in cells}


def _type_hints(cls: type) -> dict[str, Any]:
    """The resolved annotations of a class and its bases, with `Annotated` and `NotRequired`."""
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except NameError:
        pass  # perhaps the class itself, where it was made inside a function
    try:
        return typing.get_type_hints(cls, localns={**vars(cls), cls.__name__: cls}, include_extras=True)
    except NameError as error:
        raise UnsupportedAnnotation(
            cls.__qualname__, "", f"has an annotation that cannot be resolved: {error}"
        ) from error


_PARAMETERS = r"Args|Arguments|Attributes|Parameters|Params|(?:Keyword|Other)[ ](?:Args|Arguments|Parameters|Params)"
_OUTCOMES = r"Returns?|Yields?|Raises|Exceptions?|Except|Warns|Receives|Sends"
_FIELDS = r"param|parameter|arg|argument|key|keyword"
_OTHER_FIELDS = r"type|rtype|returns?|yields?|raises?|except|exception"
# Every pattern begins with the line break before it, which makes the search fast.
_SECTION = re.compile(
    rf"""\n(?:
      (?:(?P<google>{_PARAMETERS})|{_OUTCOMES}):[ ]*(?=\n|$)
    | (?P<underlined>(?:(?P<numpy>{_PARAMETERS})|{_OUTCOMES})[ ]*\n-{{3,}}[ ]*(?=\n|$))
    | :(?:(?:{_FIELDS})[ ](?:[^:\n]*[ ])?\*{{0,2}}(?P<sphinx>\w+)|(?:{_OTHER_FIELDS})\b[^:\n]*):
    )""",
    re.VERBOSE,
)
_UNINDENTED = re.compile(r"\n(?=[^ \n])")
_UNDERLINED = re.compile(r"\n(?=.+\n-{3,} *(?:\n|$))")
# An entry continues while lines are empty or indented deeper than it.
_GOOGLE_ENTRY = re.compile(r"\n( +)\*{0,2}(\w+) *(?:\(.*?\))? *:(?=\s|$)(.*(?:\n(?:\1 +.*| *(?=\n|$)))*)")
_NUMPY_ENTRY = re.compile(r"\n(\*{0,2}\w+(?: *, *\*{0,2}\w+)*) *(?::.*)?(?=\n|$)((?:\n(?: +.*| *(?=\n|$)))*)")


class Docstring:
    """The description, and the description of each parameter."""

    __slots__ = ("about", "prose")

    def __init__(self, prose: str, about: dict[str, str]) -> None:
        self.prose = prose
        self.about = about


def prose(doc: str) -> str:
    """Return a docstring without its sections on parameters, results and exceptions."""
    return parse_docstring(doc).prose


def parse_docstring(doc: str | None) -> Docstring:
    """Split a docstring in any of the usual styles: Google, NumPy, Sphinx."""
    if not doc:
        return Docstring("", {})
    text = "\n" + inspect.cleandoc(doc)
    prose: list[str] = []
    about: dict[str, str] = {}
    at = 0
    while section := _SECTION.search(text, at):
        prose.append(text[at : section.start()].strip("\n"))
        at = _read_section(text, section, about)
    prose.append(text[at:].strip("\n"))
    return Docstring("\n\n".join(filter(None, prose)).rstrip(), about)


def _read_section(text: str, section: re.Match[str], about: dict[str, str]) -> int:
    """Add the descriptions of parameters in a section to `about`; return where it ends."""
    start = section.end()
    following = (_UNDERLINED if section["underlined"] else _UNINDENTED).search(text, start)
    end = following.start() if following else len(text)
    match section.lastgroup:
        case "google":
            for _, name, words in _GOOGLE_ENTRY.findall(text, start, end):
                about[name] = " ".join(words.split())
        case "sphinx":
            about[section["sphinx"]] = " ".join(text[start:end].split())
        case "underlined" if section["numpy"]:
            for names, words in _NUMPY_ENTRY.findall(text, start, end):
                about.update((name.strip(" *"), " ".join(words.split())) for name in names.split(","))
    return end


class Missing:
    """Marks an absent value where None is a valid one."""


MISSING: Any = Missing
PLAIN = Param()  # declares nothing


class Field:
    """One field: its Python name, its name in JSON (`wire`), its type, bounds and description.

    `fill` makes the value of a field that was not sent, where Python would not.
    """

    __slots__ = ("about", "annotation", "default", "fill", "name", "param", "required", "wire")

    def __init__(
        self, name: str, wire: str, annotation: Any, param: Param, about: str, required: bool, default: Any
    ) -> None:
        self.name = name
        self.wire = wire
        self.annotation = annotation
        self.param = param
        self.about = about
        self.required = required
        self.default = default
        self.fill: Callable[[], Any] | None = None


class Fields:
    """All fields of one owner. `rest` is the annotation of `**kwargs`, or MISSING where there are none."""

    __slots__ = ("fields", "owner", "rest", "tag")

    def __init__(
        self,
        owner: str,
        fields: tuple[Field, ...],
        rest: Any = MISSING,
        tag: tuple[str, str | int] | None = None,
    ) -> None:
        self.owner = owner
        self.fields = fields
        self.rest = rest
        self.tag = tag


def unwrap(annotation: Any) -> tuple[Any, Param]:
    """Return the bare type, and what `Annotated` declares about it."""
    if typing.get_origin(annotation) is not typing.Annotated:
        return annotation, PLAIN
    bare, *extras = typing.get_args(annotation)
    about, param = "", PLAIN
    for extra in extras:
        if isinstance(extra, str):
            about = extra
        elif isinstance(extra, Param):
            param = extra
        elif type(extra).__name__ == "Meta" and type(extra).__module__.startswith("msgspec"):
            param = _from_meta(extra)
        elif declared := _foreign(extra, annotation):
            param = param.with_values(declared)
    if about and not param.about:
        param = Param(about) if param is PLAIN else param.with_description(about)
    return bare, param


def _foreign(extra: Any, annotation: Any) -> dict[str, Any] | None:
    """What metadata of another library declares. Raises `UnsupportedAnnotation` for what cannot be honored."""
    from wieldy.core.schema.foreign_metadata import UnusableMetadata, read_metadata

    try:
        return read_metadata(extra)
    except UnusableMetadata as error:
        raise UnsupportedAnnotation(f"the annotation {annotation}", "", str(error)) from None


def _from_meta(meta: Any) -> Param:
    names = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern", "examples")
    return Param(meta.description or "", **{name: getattr(meta, name) for name in names})


def _field(name: str, annotation: Any, about: str, required: bool, default: Any, wire: str = "") -> Field:
    if isinstance(annotation, type):
        return Field(name, wire or name, annotation, PLAIN, about, required, default)
    bare, param = unwrap(annotation)
    return Field(name, param.name or wire or name, bare, param, param.about or about, required, default)


def fields_of_function(function: Callable[..., Any], skip: Collection[str] = ()) -> Fields:
    """The parameters of a function, method, partial or callable object; all must be passed by name."""
    owner = getattr(function, "__name__", type(function).__name__)
    inner = _inner_function(function, owner)
    about = parse_docstring(inner.__doc__).about
    fields: list[Field] = []
    rest = MISSING
    for name, parameter in signature_of(function).parameters.items():
        if name in skip:
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise UnsupportedAnnotation(
                owner,
                "*" + name,
                "takes any number of values without names, which JSON cannot say; take a list instead",
            )
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise UnsupportedAnnotation(owner, name, "is positional-only, but a call fills parameters by name")
        is_rest = parameter.kind is parameter.VAR_KEYWORD
        annotation = Any if is_rest and parameter.annotation is parameter.empty else parameter.annotation
        if annotation is parameter.empty:
            raise UnsupportedAnnotation(owner, name, "has no annotation: say what it takes, such as `str`, or `Any`")
        annotation = _resolve(annotation, inner, owner, name)
        if is_rest:
            rest = annotation
            continue
        default = MISSING if parameter.default is parameter.empty else parameter.default
        fields.append(_parameter(name, annotation, about.get(name, ""), default))
    return Fields(owner, tuple(fields), rest)


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The signature. Python 3.14 evaluates annotations when asked: names that do not exist, or not yet, stay references."""
    try:
        return inspect.signature(function)
    except NameError:
        if sys.version_info >= (3, 14):
            from annotationlib import Format

            return inspect.signature(function, annotation_format=Format.FORWARDREF)
        raise


def _parameter(name: str, annotation: Any, about: str, default: Any) -> Field:
    """A parameter; pydantic's `Field(…)` as its annotation or default declares bounds and the default."""
    from wieldy.core.schema.foreign_metadata import NO_DEFAULT, field_default, is_field_info

    infos = [extra for extra in getattr(annotation, "__metadata__", ()) if is_field_info(extra)]
    if is_field_info(default):
        infos.append(default)
        annotation = typing.Annotated[annotation, default]
        default = MISSING
    if not infos or default is not MISSING:
        return _field(name, annotation, about, default is MISSING, default)
    # Python does not know this default: each call gets it from here.
    value = field_default(infos[-1])
    field = _field(name, annotation, about, value is NO_DEFAULT, MISSING if value is NO_DEFAULT else value)
    field.fill = (lambda: field_default(infos[-1])) if value is not NO_DEFAULT else None
    return field


def _inner_function(function: Any, owner: str) -> types.FunctionType:
    """The Python function inside a method, partial, decorated function or callable object."""
    inner: Any = function
    while not isinstance(inner, types.FunctionType):
        inner = getattr(inner, "__func__", None) or getattr(inner, "func", None) or _call_method(inner)
        if inner is None or isinstance(inner, types.WrapperDescriptorType):
            raise UnsupportedAnnotation(owner, "", "is not a Python function, so its parameters are unknown")
    unwrapped: types.FunctionType = inspect.unwrap(inner)
    return unwrapped


def _call_method(instance: Any) -> Any:
    return type(instance).__call__ if callable(instance) else None


def is_model(cls: Any) -> bool:
    """Whether a class is filled from a JSON object, field by field."""
    return isinstance(cls, type) and (
        is_typed_dict(cls) or hasattr(cls, "__dataclass_fields__") or hasattr(cls, "__struct_fields__")
    )


def is_typed_dict(cls: Any) -> bool:
    """Whether a class is a TypedDict, of `typing` or of `typing_extensions`."""
    return isinstance(cls, type) and issubclass(cls, dict) and hasattr(cls, "__required_keys__")


def is_pydantic(cls: Any) -> bool:
    """Whether a class is a pydantic model, without importing pydantic."""
    return isinstance(cls, type) and hasattr(cls, "model_json_schema") and hasattr(cls, "model_validate")


def is_named_tuple(cls: Any) -> bool:
    """Whether a class is a NamedTuple."""
    return isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields")


def fields_of_model(cls: Any) -> Fields:
    """The fields of a dataclass, TypedDict, msgspec.Struct or NamedTuple."""
    hints = _type_hints(cls)
    about = parse_docstring(written_doc(cls)).about
    owner: str = cls.__qualname__
    if is_typed_dict(cls):
        return Fields(owner, tuple(_typed_dict_fields(cls, hints, about)))
    if hasattr(cls, "__struct_fields__"):
        return _struct_fields(cls, hints, about)
    if is_named_tuple(cls):
        defaults: dict[str, Any] = cls._field_defaults
        named: tuple[str, ...] = cls._fields
        return Fields(
            owner,
            tuple(
                _field(n, hints.get(n, Any), about.get(n, ""), n not in defaults, defaults.get(n, MISSING))
                for n in named
            ),
        )
    return Fields(owner, tuple(_dataclass_fields(cls, hints, about)))


def written_doc(cls: type) -> str:
    """The docstring in the source, not the one that dataclasses and named tuples generate."""
    doc = cls.__dict__.get("__doc__") or ""
    return "" if doc.startswith(f"{cls.__name__}(") else doc


def _typed_dict_fields(cls: Any, hints: dict[str, Any], about: dict[str, str]) -> typing.Iterator[Field]:
    for name, annotation in hints.items():
        hint, required = annotation, name in cls.__required_keys__
        while (origin := typing.get_origin(hint)) in (typing.Required, typing.NotRequired):
            required = origin is typing.Required
            (hint,) = typing.get_args(hint)
        yield _field(name, hint, about.get(name, ""), required, MISSING)


def _dataclass_fields(cls: Any, hints: dict[str, Any], about: dict[str, str]) -> typing.Iterator[Field]:
    import dataclasses

    for field in dataclasses.fields(cls):
        if not field.init:
            continue
        default = MISSING if field.default is dataclasses.MISSING else field.default
        required = default is MISSING and field.default_factory is dataclasses.MISSING
        if field.default_factory in (list, dict):
            default = field.default_factory()
        yield _field(field.name, hints[field.name], about.get(field.name, ""), required, default)


def _struct_fields(cls: Any, hints: dict[str, Any], about: dict[str, str]) -> Fields:
    from msgspec import NODEFAULT
    from msgspec.structs import fields

    config = cls.__struct_config__
    if config.array_like:
        raise UnsupportedAnnotation(cls.__qualname__, "", "is an array-like struct; an object is needed")
    result = []
    for field in fields(cls):
        default = MISSING if field.default is NODEFAULT else field.default
        if field.default_factory in (list, dict):
            default = field.default_factory()
        description = about.get(field.name, "")
        result.append(_field(field.name, hints[field.name], description, field.required, default, field.encode_name))
    tag = (config.tag_field, config.tag) if config.tag is not None else None
    return Fields(cls.__qualname__, tuple(result), MISSING, tag)
