"""Commands that change the shell itself: which may set variables, and which may change the working directory.

Variables and folders are not simulated. A variable has a known value only if one plain assignment or one `for` loop sets it
and nothing else in the script could; a folder is known only after `cd` with a literal path at the top level of a shell.
"""

from __future__ import annotations

from collections import Counter

from wieldy.shell.effects.programs.builtins import ASSIGNING_BUILTINS, FOLDER_CHANGERS, assigned_variables
from wieldy.shell.effects.programs.pipeline_input import UNKNOWN_INPUT
from wieldy.shell.effects.programs.wrappers import SAME_SHELL_SCRIPT, unwrap
from wieldy.shell.effects.words import ShellState, resolve_words
from wieldy.shell.parsing import syntax

_NOTHING_KNOWN = ShellState("", "", ())


def constant_variables(script: syntax.ShellScript) -> frozenset[str]:
    """The variables that one plain assignment or one `for` loop sets, while nothing else in the script can."""
    counts: Counter[str] = Counter()
    for command in syntax.every_command(script):
        match command:
            case syntax.FunctionDefinition() | syntax.Coprocess():
                return frozenset()
            case syntax.LoopCommand(variable=str(name), select=select):
                counts[name] += 2 if select else 1
            case syntax.SimpleCommand(assignments=assignments):
                names = _set_variables(command)
                if names is None:
                    return frozenset()
                counts.update(dict.fromkeys(names, 2))
                for one in assignments:
                    counts[one.name] += 1 if one.plain and not command.words else 2
        for piece in syntax.nested_pieces(syntax.pieces_of(command)):
            if isinstance(piece, syntax.Expansion) and piece.operator in ("=", ":="):
                counts[piece.name] += 2
    return frozenset(name for name, count in counts.items() if count == 1)


def may_change_cwd(code: syntax.ShellScript | syntax.Command) -> bool:
    """Whether the shell that runs this code could be in another folder during it or after it."""
    match code:
        case syntax.ShellScript(and_or_lists=lists):
            pipelines = [pipeline for chain in lists if not chain.background for _, pipeline in chain.links]
            # The stages of a pipeline run in shells of their own.
            return any(may_change_cwd(one.stages[0]) for one in pipelines if len(one.stages) == 1)
        case syntax.SimpleCommand(words=()) | syntax.GroupCommand(subshell=True) | syntax.Coprocess():
            return False
        case syntax.SimpleCommand():
            program = _program(code)
            return program is None or program in FOLDER_CHANGERS
        case syntax.FunctionDefinition(body=body):
            return may_change_cwd(body)
    return any(map(may_change_cwd, syntax.bodies_of(code)))


def _set_variables(command: syntax.SimpleCommand) -> tuple[str, ...] | None:
    """The variables that a command sets, apart from the assignments before it; None if they are not certain."""
    if not command.words:
        return ()
    unwrapped = unwrap(resolve_words(command.words, _NOTHING_KNOWN), UNKNOWN_INPUT)
    if unwrapped.problem or unwrapped.program is None:
        return None
    # The script of `eval` is followed elsewhere.
    name = SAME_SHELL_SCRIPT if SAME_SHELL_SCRIPT in unwrapped.wrappers else unwrapped.program
    names = assigned_variables(name, unwrapped.words[1:])
    always = builtin.always if (builtin := ASSIGNING_BUILTINS.get(name)) is not None else ()
    return None if names is None else (*names, *always)


def _program(command: syntax.SimpleCommand) -> str | None:
    """The program or builtin that finally runs, whatever quotes and wrappers surround it; None if that is not certain."""
    unwrapped = unwrap(resolve_words(command.words, _NOTHING_KNOWN), UNKNOWN_INPUT)
    return None if unwrapped.problem else unwrapped.program
