"""What a script would run, as positions in its text: the common ground on which two parsers can be compared."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import TypeAlias

from wieldy.shell.syntax import (
    Assignment,
    Branches,
    Command,
    Condition,
    Coprocess,
    Function,
    Group,
    Literal,
    Loop,
    Piece,
    RawWord,
    Redirect,
    Script,
    Simple,
    Variable,
    scripts_in,
)

Span: TypeAlias = tuple[int, int]
Entry: TypeAlias = tuple[str, tuple[Span, ...]]
_PLAIN_REDIRECTS = frozenset({"<", ">", ">>", ">|", ">&", "&>", "&>>"})


def outline(script: Script, text: str) -> list[Entry]:
    """Every command with its words, every assignment and redirection, as byte positions in order."""
    entries = list(_script(script))
    if not text.isascii():
        at = [0, *accumulate(len(char.encode("utf-8", "surrogatepass")) for char in text)]
        last = len(text)
        entries = [(kind, tuple((at[min(a, last)], at[min(b, last)]) for a, b in spans)) for kind, spans in entries]
    return sorted(entries)


def is_plain(script: Script) -> bool:
    """Whether the script keeps to simple commands, pipes, chains and plain redirections, with nothing nested."""
    for chain in script.chains:
        for _, pipeline in chain.links:
            if pipeline.timed or not all(isinstance(stage, Simple) and _plain(stage) for stage in pipeline.stages):
                return False
    return True


def _plain(simple: Simple) -> bool:
    words = [*simple.words, *(redirect.target for redirect in simple.redirects)]
    for one in simple.assignments:
        if one.items or one.subscript:
            return False
        if one.value:
            words.append(one.value)
    if not all(redirect.operator in _PLAIN_REDIRECTS for redirect in simple.redirects):
        return False
    return all(isinstance(piece, Literal | Variable) for word in words for piece in word.pieces)


def _script(script: Script) -> Iterator[Entry]:
    for chain in script.chains:
        for _, pipeline in chain.links:
            for stage in pipeline.stages:
                yield from _command(stage)


def _command(command: Command) -> Iterator[Entry]:
    match command:
        case Simple():
            yield from _simple(command)
        case Group(body=body):
            yield from _script(body)
        case Branches(bodies=bodies, words=words):
            for one in bodies:
                yield from _script(one)
            yield from _words(words)
        case Loop():
            yield from _loop(command)
        case Function(body=inner) | Coprocess(body=inner):
            yield from _command(inner)
        case Condition(words=words):
            yield from _words(words)
    if not isinstance(command, Simple | Function | Coprocess):
        yield from _redirects(command.redirects)


def _loop(loop: Loop) -> Iterator[Entry]:
    if loop.condition:
        yield from _script(loop.condition)
    yield from _script(loop.body)
    yield from _words(loop.words or ())
    if loop.header:
        yield from _pieces((loop.header,))


def _simple(simple: Simple) -> Iterator[Entry]:
    if simple.words:
        yield "call", tuple((word.start, word.end) for word in simple.words)
    for one in simple.assignments:
        yield "assign", ((one.start, one.end),)
        yield from _assigned(one)
    yield from _words(simple.words)
    yield from _redirects(simple.redirects)


def _assigned(one: Assignment) -> Iterator[Entry]:
    yield from _words(tuple(word for word in (one.subscript, one.value, *one.items) if word))


def _redirects(redirects: tuple[Redirect, ...]) -> Iterator[Entry]:
    for redirect in redirects:
        start, end = redirect.target.start, redirect.target.end
        # Parsers differ in whether a here-document's end mark is part of it; where it starts is enough.
        yield redirect.operator, ((start, start if redirect.operator in ("<<", "<<-") else end),)
        yield from _words((redirect.target,))


def _words(words: tuple[RawWord, ...]) -> Iterator[Entry]:
    for word in words:
        yield from _pieces(word.pieces)


def _pieces(pieces: tuple[Piece, ...]) -> Iterator[Entry]:
    for script in scripts_in(pieces):
        yield from _script(script)
