"""The shape of a command line as bash reads it: commands, words and redirections, before anything is expanded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from msgspec import Struct


class Unparsable(ValueError):
    """The text is not bash, or uses a form that this grammar leaves to a person."""


class LiteralText(Struct, frozen=True):
    """Characters that stand for themselves; unquoted ones may still be patterns, braces or a tilde."""

    text: str
    quoted: bool


class Variable(Struct, frozen=True):
    """`$name` or `${name}`."""

    name: str
    quoted: bool


class Expansion(Struct, frozen=True):
    """`${name…}` with an operator. `hazard` says how expanding it could run code."""

    name: str
    operator: str
    operand: tuple[Piece, ...]
    quoted: bool
    hazard: str = ""


class Substitution(Struct, frozen=True):
    """`$(…)`, backticks, `<(…)` or `>(…)`: a script whose output or pipe takes its place."""

    script: Script
    quoted: bool
    process: bool = False


class Arithmetic(Struct, frozen=True):
    """`$((…))`. Names in it are evaluated again, which can run code."""

    inner: tuple[Piece, ...]
    quoted: bool
    hazard: str = ""


Piece: TypeAlias = LiteralText | Variable | Expansion | Substitution | Arithmetic


class RawWord(Struct, frozen=True):
    """One word as written, from `start` to `end` of the source."""

    pieces: tuple[Piece, ...]
    source: str
    start: int
    end: int


class Assignment(Struct, frozen=True):
    """`name=value`; `items` are the words of an array, `subscript` what stood in its brackets."""

    name: str
    value: RawWord | None
    items: tuple[RawWord, ...] = ()
    subscript: RawWord | None = None
    start: int = 0
    end: int = 0


class Redirect:
    """One redirection. A here-document's target is its end mark until the parser has come to its body."""

    __slots__ = ("descriptor", "operator", "target")

    def __init__(self, operator: str, descriptor: str, target: RawWord) -> None:
        self.operator = operator
        self.descriptor = descriptor
        self.target = target

    @property
    def heredoc(self) -> bool:
        """Whether the target is text for the standard input, not a file."""
        return self.operator in ("<<", "<<-", "<<<")


class Simple(Struct, frozen=True):
    """A program with its words, assignments before it and redirections anywhere."""

    assignments: tuple[Assignment, ...]
    words: tuple[RawWord, ...]
    redirects: tuple[Redirect, ...]
    source: str
    start: int
    end: int


class Pipeline(Struct, frozen=True):
    """Commands joined by `|`, each in a process of its own when there are several."""

    stages: tuple[Command, ...]
    timed: bool = False


class Chain(Struct, frozen=True):
    """Pipelines joined by `&&` and `||`; the first operator is empty."""

    links: tuple[tuple[str, Pipeline], ...]
    background: bool = False


class Script(Struct, frozen=True):
    """Chains, one after the other."""

    chains: tuple[Chain, ...]


class Group(Struct, frozen=True):
    """`( … )` or `{ …; }`."""

    body: Script
    subshell: bool
    redirects: tuple[Redirect, ...] = ()


class Branches(Struct, frozen=True):
    """`if` and `case`: scripts of which some run; `words` are the subject and patterns of a `case`."""

    bodies: tuple[Script, ...]
    words: tuple[RawWord, ...] = ()
    redirects: tuple[Redirect, ...] = ()


class Loop(Struct, frozen=True):
    """`while`, `until`, `for`, `select`; a `for` names its variable and its words (None: the arguments)."""

    body: Script
    condition: Script | None = None
    variable: str | None = None
    words: tuple[RawWord, ...] | None = None
    header: Arithmetic | None = None
    redirects: tuple[Redirect, ...] = ()


class Function(Struct, frozen=True):
    """A definition; the body runs when its name is called."""

    name: str
    body: Command


class Coprocess(Struct, frozen=True):
    """A command run beside the shell."""

    body: Command


class Condition(Struct, frozen=True):
    """`[[ … ]]` or `(( … ))`."""

    words: tuple[RawWord, ...]
    hazard: str = ""
    redirects: tuple[Redirect, ...] = ()


Command: TypeAlias = Simple | Group | Branches | Loop | Function | Coprocess | Condition


def scripts_in(pieces: tuple[Piece, ...]) -> Iterator[Script]:
    """The scripts that run when these pieces are expanded, innermost nested ones not included."""
    for piece in pieces:
        if isinstance(piece, Substitution):
            yield piece.script
        elif isinstance(piece, Expansion):
            yield from scripts_in(piece.operand)
        elif isinstance(piece, Arithmetic):
            yield from scripts_in(piece.inner)


def hazards_in(pieces: tuple[Piece, ...]) -> Iterator[str]:
    """Why expanding these pieces could run code that is not written here."""
    for piece in pieces:
        if isinstance(piece, Expansion):
            if piece.hazard:
                yield piece.hazard
            yield from hazards_in(piece.operand)
        elif isinstance(piece, Arithmetic):
            if piece.hazard:
                yield piece.hazard
            yield from hazards_in(piece.inner)
