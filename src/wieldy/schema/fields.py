"""The fields of whatever can be filled from a JSON object: a function, a dataclass, a TypedDict, a struct."""

from __future__ import annotations

import re
import sys
import types
import typing
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Any

from wieldy.schema.check import UnsupportedAnnotation


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
            import re

            re.compile(pattern)  # a wrong one is the author's mistake: better said here than at the first call
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
        said = {name: value for name in self.__slots__ if (value := getattr(self, name)) not in (None, "", ())}
        return f"Param({', '.join(f'{name}={value!r}' for name, value in said.items())})"

    def described(self, about: str) -> Param:
        """The same with this description."""
        return Param(**{**{name: getattr(self, name) for name in self.__slots__}, "about": about})


@lru_cache(maxsize=4096)
def _compiled(text: str) -> types.CodeType:
    # The first `compile` of a program sets up every type of syntax tree there is, which takes longer than all the rest.
    code: types.CodeType = eval(f"lambda: (\n{text}\n)").__code__
    return code


def resolve(annotation: Any, function: types.FunctionType, owner: str, parameter: str) -> Any:
    """The type an annotation of a function means."""
    if type(annotation) is not str:
        return annotation
    try:
        return _evaluated(annotation, function.__globals__)
    except NameError:
        pass  # perhaps a name of an enclosing function
    except Exception as error:
        raise UnsupportedAnnotation(
            owner, parameter, f"has an unreadable annotation `{annotation}`: {error}"
        ) from error
    try:
        return _evaluated(annotation, {**function.__globals__, **_enclosing(function)})
    except Exception as error:
        raise UnsupportedAnnotation(owner, parameter, f"is annotated `{annotation}`, but {error}") from error


def _evaluated(text: str, scope: dict[str, Any]) -> Any:
    value = eval(_compiled(text), scope)
    return _evaluated(value, scope) if type(value) is str else value


def _enclosing(function: types.FunctionType) -> dict[str, Any]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    return {name: cell.cell_contents for name, cell in cells}


def hints_of(cls: type) -> dict[str, Any]:
    """The resolved annotations of a class and its bases, `Annotated` and `NotRequired` kept."""
    if hasattr(cls, "__record_fields__"):
        try:
            return _plain_hints(cls)
        except NameError:
            pass  # a class made inside a function
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


def _plain_hints(cls: type) -> dict[str, Any]:
    """The same for a class whose annotations are plain text; `typing` takes longer for it."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        for name, text in base.__dict__.get("__annotations__", {}).items():  # noqa: RUF063 - inspect is slow
            scope = vars(sys.modules[base.__module__])
            found[name] = _evaluated(text, scope) if type(text) is str else text
    return found


_PARAMETERS = r"Args|Arguments|Attributes|Parameters|Params|(?:Keyword|Other)[ ](?:Args|Arguments|Parameters|Params)"
_OUTCOMES = r"Returns?|Yields?|Raises|Exceptions?|Except|Warns|Receives|Sends"
_FIELDS = r"param|parameter|arg|argument|key|keyword"
_OTHER_FIELDS = r"type|rtype|returns?|yields?|raises?|except|exception"
# Every pattern begins with the line break before it: that is what makes the search for it fast.
_SECTION = re.compile(
    rf"""\n(?:
      (?:(?P<google>{_PARAMETERS})|{_OUTCOMES}):[ ]*(?=\n|$)
    | (?P<underlined>(?:(?P<numpy>{_PARAMETERS})|{_OUTCOMES})[ ]*\n-{{3,}}[ ]*(?=\n|$))
    | :(?:(?:{_FIELDS})[ ](?:[^:\n]*[ ])?\*{{0,2}}(?P<sphinx>\w+)|(?:{_OTHER_FIELDS})\b[^:\n]*):
    )""",
    re.VERBOSE,
)
_INDENT = re.compile(r"\n( *)(?=[^ \n])")
_UNINDENTED = re.compile(r"\n(?=[^ \n])")
_UNDERLINED = re.compile(r"\n(?=.+\n-{3,} *(?:\n|$))")
# An entry goes on as long as lines are empty or indented deeper than it.
_GOOGLE_ENTRY = re.compile(r"\n( +)\*{0,2}(\w+) *(?:\(.*?\))? *:(?=\s|$)(.*(?:\n(?:\1 +.*| *(?=\n|$)))*)")
_NUMPY_ENTRY = re.compile(r"\n(\*{0,2}\w+(?: *, *\*{0,2}\w+)*) *(?::.*)?(?=\n|$)((?:\n(?: +.*| *(?=\n|$)))*)")


class Docstring:
    """The words about the whole, and the words about each parameter."""

    __slots__ = ("about", "prose")

    def __init__(self, prose: str, about: dict[str, str]) -> None:
        self.prose = prose
        self.about = about


def prose(doc: str) -> str:
    """A docstring without its sections on parameters, results and exceptions."""
    return read(doc).prose


def read(doc: str | None) -> Docstring:
    """Take a docstring apart."""
    if not doc:
        return Docstring("", {})
    if "\n" not in doc and ":" not in doc:  # no section could stand there
        return Docstring(_dedented(doc).rstrip(), {})
    text = "\n" + _dedented(doc)
    kept: list[str] = []
    about: dict[str, str] = {}
    at = 0
    while section := _SECTION.search(text, at):
        kept.append(text[at : section.start()].strip("\n"))
        at = _take(text, section, about)
    kept.append(text[at:].strip("\n"))
    return Docstring("\n\n".join(filter(None, kept)).rstrip(), about)


def _dedented(doc: str) -> str:
    """A docstring without the indentation of the code around it; several times faster than `inspect.cleandoc`."""
    text = doc.expandtabs() if "\t" in doc else doc
    if "\n" not in text:
        return text.lstrip()
    margin = min(_INDENT.findall(text), default="")
    return (text.replace("\n" + margin, "\n") if margin else text).lstrip()


def _take(text: str, section: re.Match[str], about: dict[str, str]) -> int:
    """Note what a section says of parameters, and tell where it ends."""
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
    """What stands where nothing was said; None may have been said."""


MISSING: Any = Missing
PLAIN = Param()  # nothing said
_VARARGS, _VARKEYWORDS = 0x04, 0x08  # CO_VARARGS, CO_VARKEYWORDS; the module that names them is slow to load
_WRAPPED = frozenset({"__wrapped__", "__signature__"})


class Field:
    """One field: its Python name, what the model calls it, its type, and what its author said about it."""

    __slots__ = ("about", "annotation", "default", "name", "param", "required", "wire")

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
    """The bare type, and what `Annotated` says about it."""
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
    if about and not param.about:
        param = Param(about) if param is PLAIN else param.described(about)
    return bare, param


def _from_meta(meta: Any) -> Param:
    names = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern", "examples")
    return Param(meta.description or "", **{name: getattr(meta, name) for name in names})


def _field(name: str, annotation: Any, about: str, required: bool, default: Any, wire: str = "") -> Field:
    if isinstance(annotation, type):
        return Field(name, wire or name, annotation, PLAIN, about, required, default)
    bare, param = unwrap(annotation)
    return Field(name, param.name or wire or name, bare, param, param.about or about, required, default)


def fields_of_function(function: Callable[..., Any], skip: Collection[str] = ()) -> Fields:
    """The parameters of a function that a call by name can fill."""
    if type(function) is not types.FunctionType or not _WRAPPED.isdisjoint(function.__dict__):
        return _fields_of_callable(function, skip)
    code = function.__code__
    owner = function.__name__
    if code.co_flags & _VARARGS:
        raise UnsupportedAnnotation(
            owner, "*" + code.co_varnames[code.co_argcount + code.co_kwonlyargcount], _NO_VARARGS
        )
    count = code.co_argcount
    names = code.co_varnames[: count + code.co_kwonlyargcount]
    defaults = function.__defaults__ or ()
    keyword_defaults = function.__kwdefaults__ or {}
    first_default = count - len(defaults)
    annotations = function.__annotations__
    about = read(function.__doc__).about
    found = []
    for index, name in enumerate(names):
        if name in skip:
            continue
        if index < code.co_posonlyargcount:
            raise UnsupportedAnnotation(owner, name, _NO_POSITIONAL)
        if index >= count:
            default = keyword_defaults.get(name, MISSING)
        else:
            default = defaults[index - first_default] if index >= first_default else MISSING
        annotation = annotations.get(name, Any)
        if type(annotation) is str:
            annotation = resolve(annotation, function, owner, name)
        found.append(_field(name, annotation, about.get(name, ""), default is MISSING, default))
    rest = MISSING
    if code.co_flags & _VARKEYWORDS:
        name = code.co_varnames[len(names)]
        rest = resolve(annotations.get(name, Any), function, owner, name)
    return Fields(owner, tuple(found), rest)


_NO_VARARGS = "takes any number of values without names, which JSON cannot say; take a list instead"
_NO_POSITIONAL = "is positional-only, but a call fills parameters by name"


def _fields_of_callable(function: Callable[..., Any], skip: Collection[str]) -> Fields:
    """The same for methods, partials, decorated functions and objects with `__call__`."""
    import inspect

    owner = getattr(function, "__name__", type(function).__name__)
    inner: Any = function
    while not isinstance(inner, types.FunctionType):
        inner = getattr(inner, "__func__", None) or getattr(inner, "func", None) or _call_method(inner)
        if inner is None or isinstance(inner, types.WrapperDescriptorType):
            raise UnsupportedAnnotation(owner, "", "is not a Python function, so its parameters are unknown")
    inner = inspect.unwrap(inner)
    about = read(inner.__doc__).about
    found, rest = [], MISSING
    for name, parameter in inspect.signature(function).parameters.items():
        if name in skip:
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise UnsupportedAnnotation(owner, "*" + name, _NO_VARARGS)
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise UnsupportedAnnotation(owner, name, _NO_POSITIONAL)
        written = Any if parameter.annotation is parameter.empty else parameter.annotation
        annotation = resolve(written, inner, owner, name)
        if parameter.kind is parameter.VAR_KEYWORD:
            rest = annotation
            continue
        default = MISSING if parameter.default is parameter.empty else parameter.default
        found.append(_field(name, annotation, about.get(name, ""), default is MISSING, default))
    return Fields(owner, tuple(found), rest)


def _call_method(instance: Any) -> Any:
    return type(instance).__call__ if callable(instance) else None


def is_model(cls: Any) -> bool:
    """Whether a class is filled from a JSON object, field by field."""
    return isinstance(cls, type) and (
        is_typed_dict(cls)
        or any(hasattr(cls, mark) for mark in ("__record_fields__", "__dataclass_fields__", "__struct_fields__"))
    )


def is_typed_dict(cls: Any) -> bool:
    """Whether a class is a TypedDict, of `typing` or of `typing_extensions`."""
    return isinstance(cls, type) and issubclass(cls, dict) and hasattr(cls, "__required_keys__")


def is_pydantic(cls: Any) -> bool:
    """Whether a class is a pydantic model, told without importing pydantic."""
    return isinstance(cls, type) and hasattr(cls, "model_json_schema") and hasattr(cls, "model_validate")


def is_named_tuple(cls: Any) -> bool:
    """Whether a class is a NamedTuple."""
    return isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields")


def fields_of_model(cls: Any) -> Fields:
    """The fields of a record, dataclass, TypedDict, msgspec.Struct or NamedTuple."""
    hints = hints_of(cls)
    about = read(written_doc(cls)).about
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
    if hasattr(cls, "__record_fields__"):
        return Fields(owner, tuple(_record_fields(cls, hints, about)))
    return Fields(owner, tuple(_dataclass_fields(cls, hints, about)))


def written_doc(cls: type) -> str:
    """The docstring somebody wrote; what dataclasses and named tuples make up themselves is not one."""
    doc = cls.__dict__.get("__doc__") or ""
    return "" if doc.startswith(f"{cls.__name__}(") else doc


def _typed_dict_fields(cls: Any, hints: dict[str, Any], about: dict[str, str]) -> typing.Iterator[Field]:
    for name, written in hints.items():
        hint, required = written, name in cls.__required_keys__
        while (origin := typing.get_origin(hint)) in (typing.Required, typing.NotRequired):
            required = origin is typing.Required
            (hint,) = typing.get_args(hint)
        yield _field(name, hint, about.get(name, ""), required, MISSING)


def _record_fields(cls: Any, hints: dict[str, Any], about: dict[str, str]) -> typing.Iterator[Field]:
    defaults: dict[str, Any] = cls.__record_defaults__
    for name in cls.__record_fields__:
        yield _field(name, hints[name], about.get(name, ""), name not in defaults, defaults.get(name, MISSING))


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
    found = []
    for field in fields(cls):
        default = MISSING if field.default is NODEFAULT else field.default
        if field.default_factory in (list, dict):
            default = field.default_factory()
        words = about.get(field.name, "")
        found.append(_field(field.name, hints[field.name], words, field.required, default, field.encode_name))
    tag = (config.tag_field, config.tag) if config.tag is not None else None
    return Fields(cls.__qualname__, tuple(found), MISSING, tag)
