"""What a shell command would do, judged before it runs: its parts, its verdict, and the catastrophes in it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from wieldy.core.effects import Effects
from wieldy.shell.parsing.budget import TooMuch
from wieldy.shell.parsing.read import confirmed, read
from wieldy.shell.parsing.syntax import Script, Unparsable
from wieldy.shell.policy.catastrophic import Danger, dangers
from wieldy.shell.policy.command_part import CommandPart, foreign_letters, oddities
from wieldy.shell.policy.script_walk import Walk
from wieldy.shell.policy.words import ShellState

Verdict: TypeAlias = Literal["read_only", "known", "unknown"]
REMEMBERED = 512


class Analysis(Struct, frozen=True):
    """`read_only`: proven to change nothing. `known`: every effect is listed. `unknown`: a person should look."""

    parts: tuple[CommandPart, ...]
    verdict: Verdict
    catastrophic: tuple[Danger, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def effects(self) -> Effects:
        """The effects of all parts together."""
        return tuple(dict.fromkeys(effect for part in self.parts for effect in part.effects))


def analyze(command: str, *, cwd: str, home: str, root: str | None = None) -> Analysis:
    """Judge a command as bash would run it in `cwd`. Answers are remembered; nothing is run and no file is read."""
    return _analyze(command, os.path.normpath(cwd), os.path.normpath(home), os.path.normpath(root or cwd))


@lru_cache(maxsize=REMEMBERED)
def _analyze(command: str, cwd: str, home: str, root: str) -> Analysis:
    scene = ShellState(home, root, (cwd,))
    problems = oddities(command)
    try:
        script = read(command)
    except (Unparsable, RecursionError) as error:
        return _not_understood(command, scene, [*problems, f"not understood: {error}"])
    walk = Walk(command, script)
    try:
        walk.script(script, scene)
    except (TooMuch, RecursionError) as error:
        why = str(error) if isinstance(error, TooMuch) else "nested too deeply"
        return _not_understood(command, scene, [*problems, why], walk.parts)
    problems += walk.problems
    problems += [
        f"`{part.program}` contains {name}" for part in walk.parts for name in foreign_letters(part.program or "")
    ]
    if not walk.parts:
        problems.append("there is no command in it")
    found = (*(_bombs(walk.scripts) if walk.defined else ()), *dangers(tuple(walk.parts), scene))
    return _judged(walk, found, problems)


def _judged(walk: Walk, found: tuple[Danger, ...], problems: list[str]) -> Analysis:
    parts = tuple(walk.parts) if walk.straight else tuple(dict.fromkeys(walk.parts))
    if problems or not all(part.known for part in parts):
        return Analysis(_doubted(parts) if problems else parts, "unknown", found, tuple(problems))
    if not all(confirmed(text, script) for text, script in walk.scripts):
        problems.append("a second parser reads the command differently")
        return Analysis(_doubted(parts), "unknown", found, tuple(problems))
    read_only = all(part.read_only for part in parts) and not found
    return Analysis(parts, "read_only" if read_only else "known", found)


def _doubted(parts: tuple[CommandPart, ...]) -> tuple[CommandPart, ...]:
    """Parts of a command that is not understood as a whole: none of them is proven harmless."""
    return tuple(replace(part, read_only=False) for part in parts)


def _not_understood(
    command: str, scene: ShellState, problems: list[str], found: Sequence[CommandPart] = ()
) -> Analysis:
    """What can still be said: the parts that were found before it was given up, and a rough reading of all of it."""
    from wieldy.shell.policy.fallback import crude_parts

    parts = (*_doubted(tuple(found)), *crude_parts(command, scene.cwds[0]))
    return Analysis(parts, "unknown", dangers(parts, scene), tuple(problems))


def _bombs(scripts: list[tuple[str, Script]]) -> tuple[Danger, ...]:
    from wieldy.shell.policy.catastrophic import fork_bombs

    names = [name for _, script in scripts for name in fork_bombs(script)]
    return tuple(Danger("deny", f"the function `{name}` starts itself again and again", f"{name}()") for name in names)


def classify(command: str, *, cwd: str | None = None, home: str | None = None) -> Literal["read_only", "ask", "deny"]:
    """`read_only`: proven harmless. `deny`: no mode runs it. `ask`: everything else."""
    here = cwd or os.getcwd()
    analysis = analyze(command, cwd=here, home=home or os.path.expanduser("~"))
    if any(danger.behavior == "deny" for danger in analysis.catastrophic):
        return "deny"
    return "read_only" if analysis.verdict == "read_only" else "ask"
