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


class RuleTexts(Struct, frozen=True):
    """`allow`: a rule that allows any of them allows the part. `deny`: the command at every level of wrapping.

    `exact`: a rule with a wildcard must not allow it.
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    exact: bool = False


class Redirections(Struct, frozen=True):
    """What redirections touch. `problem`: why some files are not known in advance; `patterns`: globs for those written."""

    effects: Effects = ()
    problem: str = ""
    patterns: tuple[str, ...] = ()


class CodeInputs(Struct, frozen=True):
    """Texts that a program may run.

    `texts`: here-documents and, if the effects of the program are unknown, what earlier stages of its pipeline may print.
    `variables`: if they are, the values assigned to variables that may influence programs; `code_variable` is the name of one
    that decides which code programs run, such as PATH. `piped`: the input comes from an earlier stage of a pipeline.
    """

    texts: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    code_variable: str = ""
    piped: bool = False


class CommandPart(Struct, frozen=True):
    """One simple command at any depth of a command line.

    A part without `argv` is an assignment or the redirection of a group: only its effects count.
    `cwds`: the folders it may run in. `bulk_reads`: folders whose files it reads without naming them.
    `program_read_only`: it would be read-only without its redirections; `only_fetches`: it would be, were it not for what it
    fetches.
    """

    text: str
    argv: tuple[Word, ...]
    program: str | None
    effects: Effects
    read_only: bool
    known: bool
    why: str = ""
    wrappers: tuple[str, ...] = ()
    rules: RuleTexts = RuleTexts()
    redirects: Redirections = Redirections()
    code: CodeInputs = CodeInputs()
    bulk_reads: tuple[str, ...] = ()
    cwds: tuple[str, ...] = ()
    program_read_only: bool = False
    only_fetches: bool = False
