"""Functions that start themselves more than once."""

from __future__ import annotations

from wieldy.shell.assigned import simple_commands
from wieldy.shell.syntax import Branches, Command, Function, Group, Loop, Pipeline, Script, Simple


def fork_bombs(script: Script) -> list[str]:
    """The names of functions that call themselves in a pipe or in the background."""
    return [function.name for function in _functions(script) if _multiplies(function)]


def _functions(script: Script) -> list[Function]:
    found: list[Function] = []
    for chain in script.chains:
        for _, pipeline in chain.links:
            for stage in pipeline.stages:
                if isinstance(stage, Function):
                    found.append(stage)
                else:
                    found.extend(function for body in _bodies(stage) for function in _functions(body))
    return found


def _bodies(command: Command) -> tuple[Script, ...]:
    match command:
        case Group(body=body) | Loop(body=body):
            return (body,)
        case Branches(bodies=bodies):
            return bodies
    return ()


def _multiplies(function: Function) -> bool:
    return any(_splits(body, function.name) for body in _bodies(function.body))


def _splits(script: Script, name: str) -> bool:
    for chain in script.chains:
        for _, pipeline in chain.links:
            if _calls(pipeline, name) and (chain.background or len(pipeline.stages) > 1):
                return True
            if any(_splits(body, name) for stage in pipeline.stages for body in _bodies(stage)):
                return True
    return False


def _calls(pipeline: Pipeline, name: str) -> bool:
    for stage in pipeline.stages:
        commands = (
            [stage] if isinstance(stage, Simple) else [s for body in _bodies(stage) for s in simple_commands(body)]
        )
        if any(simple.words and simple.words[0].source == name for simple in commands):
            return True
    return False
