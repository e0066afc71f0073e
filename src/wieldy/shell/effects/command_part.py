"""One simple command of a command line: its effects and the texts that permission rules are compared with."""

from __future__ import annotations

from msgspec import Struct

from wieldy.core.effects import Effects
from wieldy.shell.effects.words import Word


class Sweep(Struct, frozen=True):
    """Files that a command opens without naming them, so that symlinks among them decide what is read.

    They match `pattern`, a glob below `folder`, or lie anywhere below `folder` and are links named like `links`.
    `splits`: names with blanks, quotes or wildcards become other names. `dashes`: names that begin with one become options.
    """

    folder: str
    pattern: str = ""
    links: str | None = "*"
    splits: bool = False
    dashes: bool = False


class CommandPart(Struct, frozen=True):
    """One simple command at any depth of a command line.

    A part without `argv` is an assignment or the redirection of a group: only its effects count.
    `allow_texts`: a rule that allows any of them allows the part. `deny_texts`: the command at every level of wrapping, for
    rules that deny or ask. `cwds`: the folders it may run in. `bulk_reads`: folders whose files it reads without naming them.
    `exact_rule`: a rule with a wildcard must not allow it. `redirect_effects`: the effects of its redirections;
    `program_read_only`: it would be read-only without them; `only_fetches`: it would be, were it not for what it fetches.
    `input_texts`: texts of here-documents and, if its effects are unknown, what earlier stages of its pipeline may print.
    `variable_values`: if its effects are unknown, the values assigned to variables that may influence programs.
    `code_variable`: the name of a variable among them that decides which code programs run, such as PATH.
    `piped`: its input comes from an earlier stage of a pipeline. `redirect_problem`: why the files of its redirections are
    not known in advance; `redirect_patterns`: globs for those that it writes.
    """

    text: str
    argv: tuple[Word, ...]
    program: str | None
    effects: Effects
    read_only: bool
    known: bool
    why: str = ""
    wrappers: tuple[str, ...] = ()
    allow_texts: tuple[str, ...] = ()
    deny_texts: tuple[str, ...] = ()
    bulk_reads: tuple[str, ...] = ()
    cwds: tuple[str, ...] = ()
    exact_rule: bool = False
    redirect_effects: Effects = ()
    program_read_only: bool = False
    only_fetches: bool = False
    input_texts: tuple[str, ...] = ()
    variable_values: tuple[str, ...] = ()
    code_variable: str = ""
    piped: bool = False
    redirect_problem: str = ""
    redirect_patterns: tuple[str, ...] = ()
