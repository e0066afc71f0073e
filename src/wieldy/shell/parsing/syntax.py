"""The syntax tree of a bash command line, before any expansion."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from msgspec import Struct


class Unparsable(ValueError):
    """The text is not bash, or uses a form that the parser does not support."""


class TooComplex(Unparsable):
    """A command line holds more commands than the work limit allows."""

    def __init__(self) -> None:
        super().__init__("more commands than the analysis follows")


class LiteralText(Struct, frozen=True):
    """Characters that stand for themselves; unquoted ones may still be globs, braces or a tilde."""

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

    script: ShellScript
    quoted: bool
    process: bool = False


class Arithmetic(Struct, frozen=True):
    """`$((…))`. Bash evaluates the values of names in it again, which can run code."""

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
    """`name=value`; `items` are the words of an array, `subscript` the text in its brackets."""

    name: str
    value: RawWord | None
    items: tuple[RawWord, ...] = ()
    subscript: RawWord | None = None
    start: int = 0
    end: int = 0

    @property
    def all_words(self) -> tuple[RawWord, ...]:
        return tuple(word for word in (self.subscript, self.value, *self.items) if word)

    @property
    def plain(self) -> bool:
        """Whether it is `name=value`: no array, no subscript, no `+=`."""
        if self.value is None:
            return self.end == self.start + len(self.name) + 1
        return self.subscript is None and self.value.start == self.start + len(self.name) + 1


class Redirect:
    """One redirection. The target of a here-document is its end mark until the parser has read its body."""

    __slots__ = ("descriptor", "operator", "target")

    def __init__(self, operator: str, descriptor: str, target: RawWord) -> None:
        self.operator = operator
        self.descriptor = descriptor
        self.target = target

    @property
    def heredoc(self) -> bool:
        """Whether the target is text for the standard input, not a file."""
        return self.operator in ("<<", "<<-", "<<<")


class SimpleCommand(Struct, frozen=True):
    """A program with its words, assignments before it and redirections anywhere."""

    assignments: tuple[Assignment, ...]
    words: tuple[RawWord, ...]
    redirects: tuple[Redirect, ...]
    source: str
    start: int
    end: int


class Pipeline(Struct, frozen=True):
    """Commands joined by `|`, each in a process of its own when there are several; `negated` by a `!` before them."""

    stages: tuple[Command, ...]
    negated: bool = False


class AndOrList(Struct, frozen=True):
    """Pipelines joined by `&&` and `||`; the first operator is empty."""

    links: tuple[tuple[str, Pipeline], ...]
    background: bool = False


class ShellScript(Struct, frozen=True):
    """And-or lists, run one after the other."""

    and_or_lists: tuple[AndOrList, ...]


class GroupCommand(Struct, frozen=True):
    """`( … )` or `{ …; }`."""

    body: ShellScript
    subshell: bool
    redirects: tuple[Redirect, ...] = ()


class BranchCommand(Struct, frozen=True):
    """`if` and `case`: scripts of which some run; `words` are the subject and patterns of a `case`."""

    bodies: tuple[ShellScript, ...]
    words: tuple[RawWord, ...] = ()
    redirects: tuple[Redirect, ...] = ()


class LoopCommand(Struct, frozen=True):
    """`while`, `until`, `for`, `select`; a `for` names its variable and its words (None: the arguments)."""

    body: ShellScript
    condition: ShellScript | None = None
    variable: str | None = None
    words: tuple[RawWord, ...] | None = None
    header: Arithmetic | None = None
    redirects: tuple[Redirect, ...] = ()
    select: bool = False


class FunctionDefinition(Struct, frozen=True):
    name: str
    body: Command


class Coprocess(Struct, frozen=True):
    body: Command


class ConditionCommand(Struct, frozen=True):
    """`[[ … ]]` or `(( … ))`."""

    words: tuple[RawWord, ...]
    hazard: str = ""
    redirects: tuple[Redirect, ...] = ()


Command: TypeAlias = (
    SimpleCommand | GroupCommand | BranchCommand | LoopCommand | FunctionDefinition | Coprocess | ConditionCommand
)


def every_command(code: ShellScript | Command) -> Iterator[Command]:
    """Every command at any depth, those in substitutions and in functions included."""
    if isinstance(code, ShellScript):
        for chain in code.and_or_lists:
            for _, pipeline in chain.links:
                for stage in pipeline.stages:
                    yield from every_command(stage)
        return
    yield code
    if isinstance(code, FunctionDefinition | Coprocess):
        yield from every_command(code.body)
        return
    for script in (*bodies_of(code), *substituted_scripts(pieces_of(code))):
        yield from every_command(script)


def pieces_of(command: Command) -> tuple[Piece, ...]:
    """The pieces of all words of a command, without those of commands in it."""
    if isinstance(command, FunctionDefinition | Coprocess):
        return ()
    words = [redirect.target for redirect in command.redirects]
    pieces: list[Piece] = []
    match command:
        case SimpleCommand(words=own, assignments=assignments):
            words += [*own, *(word for one in assignments for word in one.all_words)]
        case BranchCommand(words=own) | ConditionCommand(words=own):
            words += own
        case LoopCommand(words=values, header=header):
            words += values or ()
            pieces += [header] if header else []
    return (*pieces, *(piece for word in words for piece in word.pieces))


def nested_pieces(pieces: tuple[Piece, ...]) -> Iterator[Piece]:
    """These pieces and those in their operands, without those of substituted scripts."""
    for piece in pieces:
        yield piece
        if isinstance(piece, Expansion | Arithmetic):
            yield from nested_pieces(piece.operand if isinstance(piece, Expansion) else piece.inner)


def bodies_of(command: Command) -> tuple[ShellScript, ...]:
    """The scripts inside a compound command."""
    match command:
        case GroupCommand(body=body):
            return (body,)
        case LoopCommand(body=body, condition=condition):
            return (body, condition) if condition else (body,)
        case BranchCommand(bodies=bodies):
            return bodies
    return ()


def substituted_scripts(pieces: tuple[Piece, ...]) -> Iterator[ShellScript]:
    """The scripts that run when these pieces are expanded, without those nested in them."""
    return (piece.script for piece in nested_pieces(pieces) if isinstance(piece, Substitution))


def expansion_hazards(pieces: tuple[Piece, ...]) -> Iterator[str]:
    """How expanding these pieces could run code that is not written here."""
    return (
        piece.hazard for piece in nested_pieces(pieces) if isinstance(piece, Expansion | Arithmetic) and piece.hazard
    )
