"""Making input schemas from functions, and checking a call's input, beside what the same work costs bare."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from inspect import cleandoc, signature
from types import FunctionType
from typing import Any, get_type_hints

import msgspec
from bench.claim import Claim, best_of

from wieldy.core.schema.json_repair import UnreadableJson, read_object
from wieldy.core.schema.parameters import Parameters

FUNCTIONS = 500
CALLS = 20_000
_SOURCE = '''
def tool_{n}(path: str, limit: int = 10, recursive: bool = False, tags: list[str] | None = None) -> str:
    """List the files of kind {n} below a folder.

    Args:
        path: Where to look for kind {n}.
        limit: How many names to give back.
        recursive: Whether to go into folders.
        tags: Only files with one of these tags.

    Returns:
        The names, one a line.
    """
'''


class Bare(msgspec.Struct, forbid_unknown_fields=True):
    a: int
    b: int


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def claims() -> Iterator[Claim]:
    yield from _schemas("types", "")
    yield from _schemas("text", "from __future__ import annotations\n")
    yield from _accept()
    yield from _read()


def _schemas(written: str, first: str) -> Iterator[Claim]:
    functions = list(_functions(first))
    taken, bare = best_of(
        9,
        lambda: [Parameters.from_function(function) for function in functions],
        lambda: [
            (signature(function), get_type_hints(function), cleandoc(function.__doc__ or "")) for function in functions
        ],
    )
    yield Claim(
        f"{FUNCTIONS} schemas from functions with annotations as {written}",
        taken * 1e3,
        25,
        " ms",
        f"{taken / FUNCTIONS * 1e6:.1f} µs each",
    )
    detail = f"signature, hints and clean docstring alone: {bare / FUNCTIONS * 1e6:.1f} µs each"
    yield Claim(f"the same beside asking inspect, annotations as {written}", taken / bare, 1, detail=detail)


def _functions(first: str) -> Iterator[FunctionType]:
    """Functions that differ in every word a cache could hold on to."""
    for n in range(FUNCTIONS):
        scope: dict[str, Any] = {}
        exec(first + _SOURCE.format(n=n), scope)
        yield scope[f"tool_{n}"]


def _accept() -> Iterator[Claim]:
    parameters = Parameters.from_function(add)
    others_loaded_it = "jsonschema_rs" in sys.modules
    parameters.accept({"a": 1, "b": 2})
    ours, bare = best_of(
        7,
        _repeated(parameters.accept),
        _repeated(lambda value: msgspec.structs.asdict(msgspec.convert(value, Bare))),
    )
    detail = f"accept {ours / CALLS * 1e6:.2f} µs, msgspec.convert and asdict {bare / CALLS * 1e6:.2f} µs"
    yield Claim("accept(add) beside bare msgspec", ours / bare, 4, detail=detail)
    yield Claim("accept(add)", ours / CALLS * 1e6, 3, " µs")
    assert others_loaded_it or "jsonschema_rs" not in sys.modules, "a fitting input must not load the schema checker"


def _repeated(work: Callable[[dict[str, Any]], object]) -> Callable[[], None]:
    def run() -> None:
        for n in range(CALLS):
            work({"a": n, "b": 2})

    return run


def _read() -> Iterator[Claim]:
    """Garbage of four times the size may take four times as long, not sixteen times."""
    for name, start, unit, count in (
        ("an open string", '{"a": "', "x", 1_000_000),
        ("escaped quotes", '{"a": "', '\\"', 500_000),
        ("an open list", '{"a": [1', ",1", 500_000),
        ("a mended list", '{"b": True, "a": [1', ",1", 15_000),
    ):
        part, whole = best_of(5, _refused(start + unit * count), _refused(start + unit * count * 4))
        detail = f"{whole * 1e3:.1f} ms for {len(unit) * count * 4 / 1e6:g} MB"
        yield Claim(f"reading {name} of four times the size", whole / part, 9, detail=detail)


def _refused(text: str) -> Callable[[], None]:
    def run() -> None:
        try:
            read_object(text)
        except UnreadableJson as unreadable:
            assert unreadable.cut_off

    return run
