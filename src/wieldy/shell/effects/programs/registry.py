"""Every program whose effects are known."""

from __future__ import annotations

from collections.abc import Mapping

from wieldy.shell.effects.command_part import CommandPart
from wieldy.shell.effects.programs.awk import check_awk
from wieldy.shell.effects.programs.builtins import BUILTINS
from wieldy.shell.effects.programs.find import check_find, commands_of_find
from wieldy.shell.effects.programs.gh import check_gh
from wieldy.shell.effects.programs.git import check_git, may_print_content
from wieldy.shell.effects.programs.read_only_tools import HELP_PROGRAMS, READ_ONLY_TOOLS, VERSION_OPTIONS
from wieldy.shell.effects.programs.sed import check_sed
from wieldy.shell.effects.programs.spec import (
    NO_EFFECTS,
    CallEffects,
    ProgramCall,
    ProgramCheck,
    UnknownArguments,
    unknown,
    word_set,
)
from wieldy.shell.effects.programs.special import SPECIAL_PROGRAMS
from wieldy.shell.effects.programs.writers import WRITERS
from wieldy.shell.effects.words import Word

TABLES: tuple[Mapping[str, ProgramCheck], ...] = (
    BUILTINS,
    READ_ONLY_TOOLS,
    WRITERS,
    SPECIAL_PROGRAMS,
    {"git": check_git, "gh": check_gh, "find": check_find},
    dict.fromkeys(("sed", "gsed"), check_sed),
    dict.fromkeys(("awk", "gawk", "mawk"), check_awk),
    dict.fromkeys(("egrep", "fgrep"), READ_ONLY_TOOLS["grep"]),
)
# Programs that open the files they are given; if their arguments are not understood, these may be others than those named.
_FILE_PROGRAMS = frozenset(
    {
        *READ_ONLY_TOOLS,
        *WRITERS,
        *word_set("jq xxd tar gzip gunzip zcat zipinfo strings fd fdfind gofmt yq find sed gsed awk gawk mawk date"),
    }
    | word_set("egrep fgrep")
)
_PROGRAMS = {name: check for table in TABLES for name, check in table.items()}


def executed_commands(name: str | None, args: tuple[Word, ...]) -> list[tuple[Word, ...]] | None:
    """The commands that a program runs for each file that it finds; None when they cannot be separated from the rest."""
    return commands_of_find(args) if name == "find" else []


def opens_unnamed_files(part: CommandPart) -> bool:
    """Whether a program whose arguments are not understood may open other files than those named."""
    return part.program in _FILE_PROGRAMS or (part.program == "git" and may_print_content(part.argv[1:]))


def check_program(call: ProgramCall) -> CallEffects:
    """The effects of one program call, as far as they are known."""
    if len(call.args) == 1 and call.args[0].kind == "literal":
        option = call.args[0].text
        if option in VERSION_OPTIONS.get(call.name, ()) or (option == "--help" and call.name in HELP_PROGRAMS):
            return NO_EFFECTS
    check = _PROGRAMS.get(call.name)
    if check is None:
        return unknown(f"`{call.name}` is not known to only read")
    try:
        return check(call)
    except UnknownArguments as error:
        return unknown(str(error))
