"""Which variables a script may set, and whether it may change folder: found by looking, without following it."""

from __future__ import annotations

from collections.abc import Container, Iterator

from wieldy.shell.programs.options import names
from wieldy.shell.syntax import (
    Branches,
    Command,
    Condition,
    Coprocess,
    Expansion,
    Function,
    Group,
    Loop,
    RawWord,
    Script,
    Simple,
)

_SETTERS = names(
    "read declare typeset local export readonly printf unset mapfile readarray getopts let eval source . trap"
)
_MOVERS = frozenset({"cd", "pushd", "popd", "eval", "source", ".", "builtin", "command"})


class Everything(Container[str]):
    """A set that holds every name."""

    def __contains__(self, name: object) -> bool:
        return True


def assigned_names(script: Script) -> Container[str]:
    """The variables that a script may set; everything, if it uses a command that can set any."""
    found: set[str] = set()
    for simple in simple_commands(script):
        if simple.words and simple.words[0].source in _SETTERS:
            return Everything()
        found.update(one.name for one in simple.assignments)
        for word in _words(simple):
            found.update(p.name for p in word.pieces if isinstance(p, Expansion) and p.operator in ("=", ":="))
    found.update(_loop_variables(script))
    return found


def moves(code: Script | Command) -> bool:
    """Whether the working directory may be another after this."""
    found = simple_commands(code) if isinstance(code, Script) else _in_command(code)
    return any(simple.words and simple.words[0].source in _MOVERS for simple in found)


def simple_commands(script: Script) -> Iterator[Simple]:
    """Every simple command of a script outside substitutions."""
    for chain in script.chains:
        for _, pipeline in chain.links:
            for stage in pipeline.stages:
                yield from _in_command(stage)


def _in_command(command: Command) -> Iterator[Simple]:
    match command:
        case Simple():
            yield command
        case Group(body=body):
            yield from simple_commands(body)
        case Branches(bodies=bodies):
            for body in bodies:
                yield from simple_commands(body)
        case Loop(body=body, condition=condition):
            yield from simple_commands(body)
            if condition:
                yield from simple_commands(condition)
        case Function(body=inner) | Coprocess(body=inner):
            yield from _in_command(inner)
        case Condition():
            return


def _words(simple: Simple) -> Iterator[RawWord]:
    yield from simple.words
    for one in simple.assignments:
        yield from (word for word in (one.value, *one.items) if word)


def _loop_variables(script: Script) -> Iterator[str]:
    for chain in script.chains:
        for _, pipeline in chain.links:
            for stage in pipeline.stages:
                if isinstance(stage, Loop):
                    if stage.variable:
                        yield stage.variable
                    yield from _loop_variables(stage.body)
                elif isinstance(stage, Group):
                    yield from _loop_variables(stage.body)
                elif isinstance(stage, Branches):
                    for body in stage.bodies:
                        yield from _loop_variables(body)
