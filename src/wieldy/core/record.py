"""`@record`: a frozen dataclass that costs nothing to define.

`dataclasses` compiles half a dozen methods for every class when it is defined, most of a millisecond each; a program that
defines a hundred spends its whole start-up there. Here the methods are shared, and a class gets an `__init__` of its own when
there are more than a few instances: most have one or two, and first calls are not the time for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast, dataclass_transform, overload

T = TypeVar("T")

FEW = 32
"""Instances that are made before a class gets an `__init__` of its own: to compile it takes as long as they take longer."""


class Missing:
    """What stands where nothing was given; None may have been given."""


MISSING: Any = Missing


class Factory:
    """How the default of a field is made anew for every record."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


def field(*, default_factory: Callable[[], T]) -> T:
    """A field whose default is made anew for every record."""
    return cast("T", Factory(default_factory))


# A record gets a dictionary of its own instead of the one it begins with, which shares its keys with all others of its class:
# CPython 3.11 reads attributes out of the first kind five times as fast, and makes them as fast.
_give = object.__setattr__


class FrozenError(AttributeError):
    """A record cannot be changed; `changed` makes another."""


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T], /) -> type[T]: ...
@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(*, eq: bool = True) -> Callable[[type[T]], type[T]]: ...


def record(cls: type[Any] | None = None, /, *, eq: bool = True) -> Any:
    """Make a class a frozen record of its annotated fields, in order, base classes first."""
    if cls is None:
        return lambda cls: _made(cls, eq)
    return _made(cls, eq)


@dataclass_transform(field_specifiers=(field,))
def mutable(cls: type[T]) -> type[T]:
    """The same for a class whose fields may change: each instance is equal to itself only."""
    made: Any = _made(cls, eq=False)
    del made.__setattr__, made.__delattr__
    return cls


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def keyword_record(cls: type[T]) -> type[T]:
    """A record whose fields are given by name only, so that a base class may have defaults where a subclass has none."""
    made: Any = _made(cls, eq=True)
    setattr(made, "__match_args__", ())  # noqa: B010 - a checker believes it knows better
    made.__record_places__ = 0
    return cls


def fields_of(record: Any) -> tuple[str, ...]:
    """The names of a record's fields, or of a record class's."""
    names: tuple[str, ...] = record.__record_fields__
    return names


def is_record(value: Any) -> bool:
    """Whether a value is a record."""
    return hasattr(type(value), "__record_fields__")


def changed(record: T, **fields: Any) -> T:
    """The same record with some fields changed."""
    return type(record)(**{**vars(record), **fields})


def finish(namespace: Mapping[str, Any]) -> None:
    """Give all record classes of a module an `__init__` of their own, where there is time for it, not with their instances."""
    for found in tuple(namespace.values()):
        if isinstance(found, type) and "__record_fields__" in found.__dict__:
            cls: Any = found
            if cls.__init__ is _first_time:
                cls.__init__ = _initialiser(cls)


def _made(cls: Any, eq: bool) -> Any:
    defaults: dict[str, Any] = dict(getattr(cls, "__record_defaults__", {}))
    names = dict.fromkeys(getattr(cls, "__record_fields__", ()))
    for name, annotation in cls.__dict__.get("__annotations__", {}).items():  # noqa: RUF063 - inspect is slow
        if "ClassVar" in str(annotation):
            continue
        names[name] = None
        default = cls.__dict__.get(name, MISSING)
        if isinstance(default, Factory):
            delattr(cls, name)
        if default is MISSING:
            defaults.pop(name, None)
        else:
            defaults[name] = default
    cls.__record_fields__ = tuple(names)
    setattr(cls, "__match_args__", tuple(names))  # noqa: B010 - a checker believes it knows better
    cls.__record_defaults__ = defaults
    cls.__record_places__ = len(names)
    # Counted in place: to change the class would make the interpreter forget what it has found out about it.
    cls.__record_left__ = [FEW]
    cls.__init__ = _first_time
    cls.__setattr__ = cls.__delattr__ = _refuse
    cls.__repr__ = _shown
    if eq:
        cls.__eq__, cls.__hash__ = _equals, _hashed
    return cls


def _first_time(self: Any, *args: Any, **kwargs: Any) -> None:
    """Stands in for `__init__` for a few instances: then, or where the arguments do not fit, the class gets the real one."""
    cls: Any = type(self)
    if "__record_fields__" not in cls.__dict__:
        cls = next(base for base in cls.__mro__ if "__record_fields__" in base.__dict__)
    if cls.__init__ is _first_time:
        left: list[int] = cls.__record_left__
        if left[0] and _filled(self, cls, args, kwargs):
            left[0] -= 1
            return
        cls.__init__ = _initialiser(cls)
    cls.__init__(self, *args, **kwargs)


def _filled(self: Any, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Give a record its fields, without a function made for it; False where the arguments do not fit."""
    names, defaults = cls.__record_fields__, cls.__record_defaults__
    if len(args) > cls.__record_places__:
        return False
    own: dict[str, Any] = dict(zip(names, args, strict=False))
    named = 0
    for name in names[len(args) :]:
        if name in kwargs:
            own[name] = kwargs[name]
            named += 1
        elif name not in defaults:
            return False
        else:
            default = defaults[name]
            own[name] = default.make() if isinstance(default, Factory) else default
    if named < len(kwargs):
        return False
    _give(self, "__dict__", own)
    return True


def _initialiser(cls: Any) -> Callable[..., None]:
    names, defaults = cls.__record_fields__, cls.__record_defaults__
    known: dict[str, Any] = {"MISSING": MISSING, "__give": _give}  # no field has that name
    parameters, lines = [], []
    for name in names:
        if name not in defaults:
            parameters.append(name)
        elif isinstance(default := defaults[name], Factory):
            known[f"make_{name}"] = default.make
            parameters.append(f"{name}=MISSING")
            lines.append(f"    if {name} is MISSING: {name} = make_{name}()")
        else:
            known[f"default_{name}"] = default
            parameters.append(f"{name}=default_{name}")
    lines.append(f"    __give(self, '__dict__', {{{', '.join(f'{name!r}: {name}' for name in names)}}})")
    after = "*, " if names and not cls.__record_places__ else ""
    source = f"def __init__(self, {after}{', '.join(parameters)}):\n" + "\n".join(lines)
    exec(source, known)
    made: Callable[..., None] = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _refuse(self: Any, name: str, value: Any = None) -> None:
    raise FrozenError(f"{type(self).__name__} is frozen: `{name}` cannot be changed")


def _shown(self: Any) -> str:
    own = vars(self)
    return f"{type(self).__qualname__}({', '.join(f'{name}={own[name]!r}' for name in self.__record_fields__)})"


def _equals(self: Any, other: object) -> Any:
    return vars(self) == vars(other) if type(other) is type(self) else NotImplemented


def _hashed(self: Any) -> int:
    return hash((type(self), *vars(self).values()))
