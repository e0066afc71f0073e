"""Shell builtins that only change the folder, print, test, or set variables that influence no program."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from wieldy.shell.effects.command_part import CommandPart
from wieldy.shell.effects.programs.spec import (
    NO_EFFECTS,
    CallEffects,
    ProgramCall,
    ProgramCheck,
    UnknownArguments,
    option_table,
    parse_args,
    unknown,
    word_set,
)
from wieldy.shell.effects.words import Word, literal

SAFE_VARIABLES = word_set(
    "LANG LC_ALL LC_COLLATE LC_CTYPE LC_MESSAGES LC_MONETARY LC_NUMERIC LC_TIME TZ TERM COLUMNS LINES "
    "NO_COLOR FORCE_COLOR CLICOLOR CLICOLOR_FORCE CI DEBUG VERBOSE NODE_ENV RUST_BACKTRACE RUST_LOG PYTHONUNBUFFERED "
    "PYTHONDONTWRITEBYTECODE"
)
# Upper-case names that scripts give to values of their own and no known program looks at.
_SCRIPT_VARIABLES = word_set(
    "BASE BRANCH COMMIT DIR DIRS END EXT FILE FILES FOLDER HASH ID LIMIT LINE LOG MODULE MSG NAME NEW NUM OLD OUT OUTPUT PACKAGE "
    "PATTERN PKG PR PROJECT QUERY REF REPO RESULT REV ROOT SHA SRC START TAG TARGET VALUE VERSION"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INFLUENTIAL_LOWERCASE = re.compile(r"(https?|ftp|all|no)_proxy|npm_config_.*|histchars|auto_resume")
# What `printf` prints; of every other conversion, some store into a variable, as `%n` and `%Ln` do.
_PRINTING_FORMAT = re.compile(
    r"%%|%[-#+ 0']*(\d+|\*)?(\.(\d+|\*)?)?[hjlLtz]*[diouxXeEfFgGaAcsbqQ]|%\([^)%]*(%.[^)%]*)*\)T"
)
_UNARY = word_set("-a -b -c -d -e -f -g -h -k -n -p -r -s -t -u -w -x -z -G -L -N -O -S")
_BINARY = word_set("= == != < > -eq -ne -lt -le -gt -ge -nt -ot -ef")
_SET_OPTIONS = re.compile(r"[-+][efuxvhbEmnTBCa]+")
_NAMED_SETTINGS = word_set("errexit nounset pipefail xtrace verbose noglob noclobber")


class AssigningBuiltin(Struct, frozen=True):
    """A builtin that sets variables: those that options in `named` or operands name; `always` are set without being named.

    `operands`: the operands are names, or `assignments`: names with or without a value.
    """

    options: str
    named: tuple[str, ...] = ()
    operands: bool = False
    assignments: bool = False
    always: tuple[str, ...] = ()


_DECLARATION = AssigningBuiltin("-rxp", operands=True, assignments=True)
# Every builtin that sets variables. Keywords, expansions and arithmetic that do are hazards of the syntax tree.
ASSIGNING_BUILTINS: Mapping[str, AssigningBuiltin | None] = {
    "read": AssigningBuiltin("-ers -d: -n: -N: -p: -t: -u:", operands=True, always=("REPLY",)),
    **dict.fromkeys(
        ("mapfile", "readarray"), AssigningBuiltin("-t -d: -n: -O: -s: -u:", operands=True, always=("MAPFILE",))
    ),
    "printf": AssigningBuiltin("-v:", ("-v",)),
    "wait": AssigningBuiltin("-fn -p:", ("-p",)),
    "unset": AssigningBuiltin("-v", operands=True),
    **dict.fromkeys(("declare", "typeset", "export", "readonly"), _DECLARATION),
    "local": AssigningBuiltin("-r", operands=True, assignments=True),
    "cd": AssigningBuiltin("", always=("PWD", "OLDPWD")),
    # What they set depends on arithmetic, on code, or on an option string.
    **dict.fromkeys(
        word_set(
            "let getopts eval source . trap enable alias unalias shopt pushd popd bind complete compopt compgen fc hash"
        )
    ),
}


def assigned_variables(name: str, args: tuple[Word, ...]) -> tuple[str, ...] | None:
    """The variables that a call of a builtin sets by name; None if they are not certain."""
    if name not in ASSIGNING_BUILTINS:
        return ()
    builtin = ASSIGNING_BUILTINS[name]
    if builtin is None:
        return None
    if not (builtin.named or builtin.operands):
        return ()
    try:
        parsed = parse_args(args, option_table(builtin.options, exact=True, stops_at_operand=not builtin.operands))
    except UnknownArguments:
        return None
    names: list[str] = []
    for word in (*parsed.values(*builtin.named), *(parsed.operands if builtin.operands else ())):
        variable, equals, value = word.prefix.partition("=") if builtin.assignments else (word.prefix, "", "")
        certain = word.kind == "literal" or (equals and word.kind != "multiple")
        # `declare` reads a value in parentheses as an array, whose subscripts are evaluated.
        array = (
            equals
            and name in ("declare", "typeset", "local")
            and (value.startswith("(") or not (value or word.kind == "literal"))
        )
        if not certain or array or not _NAME.fullmatch(variable):
            return None
        names.append(variable)
    return tuple(names)


def is_harmless_variable(name: str) -> bool:
    """Whether setting a variable changes nothing programs do: known ones, and lower-case names, which scripts use."""
    return name in SAFE_VARIABLES or (name.islower() and not _INFLUENTIAL_LOWERCASE.fullmatch(name))


def is_script_variable(name: str) -> bool:
    """Whether setting a variable for the shell alone, not for one program, changes nothing programs do."""
    return is_harmless_variable(name) or name in _SCRIPT_VARIABLES or (len(name) == 1 and name.isupper())


DECLARATIONS = word_set("export declare typeset local readonly")
ENDS_SHELL = "exit"
FOLDER_CHANGERS = word_set("cd pushd popd eval source .")


def changes_folder(part: CommandPart) -> bool:
    """Whether the shell is in another folder after a part whose effects are known."""
    return part.program == "cd"


def folder_after(name: str, args: tuple[Word, ...], home: str) -> str | None:
    """The folder a shell is in after a builtin; empty if that is not known, None for the one it was in."""
    if name != "cd":
        return "" if name in FOLDER_CHANGERS else None
    options = [word.text for word in args if word.kind == "literal" and word.text in ("-P", "-L", "--")]
    targets = [word.text for word in args if word.text not in options]
    # `cd -P` can follow a symlink to anywhere.
    return "" if "-P" in options else (targets or [home])[0]


def _no_effects(call: ProgramCall) -> CallEffects:
    return NO_EFFECTS


def _assigning(call: ProgramCall) -> CallEffects:
    """A builtin that sets variables, none of which influences a program."""
    names = assigned_variables(call.name, call.args)
    if names is None:
        return unknown(f"which variables `{call.name}` sets, and to what, is not known in advance")
    for name in names:
        if not is_harmless_variable(name):
            return unknown(f"`{call.name}` sets `{name}`, which can change what programs do")
    return NO_EFFECTS


def _printf(call: ProgramCall) -> CallEffects:
    if assigned_variables(call.name, call.args) != ():
        return unknown("an option of `printf` can set variables")
    operands = parse_args(call.args, option_table("", stops_at_operand=True)).operands
    if operands and not (operands[0].kind == "literal" and "%" not in _PRINTING_FORMAT.sub("", operands[0].text)):
        return unknown("the format of `printf` can set variables")
    return NO_EFFECTS


def _cd(call: ProgramCall) -> CallEffects:
    words = [word for word in call.args if not (word.kind == "literal" and word.text in ("-P", "-L", "--"))]
    if len(words) > 1 or any(word.kind == "literal" and word.text.startswith("-") for word in words):
        return unknown("this `cd` is not to one folder")
    if words and words[0].kind != "literal":
        return unknown("the folder of `cd` is not known in advance")
    return NO_EFFECTS


def _test(call: ProgramCall) -> CallEffects:
    args = list(call.args)
    if call.name == "[" and (not args or args.pop().text != "]"):
        return unknown("`[` lacks its `]`")
    for index, word in enumerate(args):
        if word.kind in ("multiple", "glob"):
            return unknown(f"`{word.source}` in a test could become several words")
        if word.kind == "literal" and word.text in ("-v", "-R"):
            return unknown("a test for a variable can run code in a subscript")
        if word.dynamic and not _is_operand(args, index):
            return unknown(f"`{word.source}` could become a test operator")
    # A test looks at the metadata of a file, never at its content, which path rules protect.
    return NO_EFFECTS


def _is_operand(args: list[Word], index: int) -> bool:
    """Whether an unknown word stands where only an operand can stand."""
    before = args[index - 1].text if index and args[index - 1].kind == "literal" else ""
    after = args[index + 1].text if index + 1 < len(args) and args[index + 1].kind == "literal" else ""
    return (
        len(args) == 1
        or before in _UNARY
        or before in _BINARY
        or after in _BINARY
        or (before == "!" and len(args) == 2)
    )


def _exit(call: ProgramCall) -> CallEffects:
    if len(call.args) > 1 or any(not (word.dynamic or word.text.lstrip("-").isdecimal()) for word in call.args):
        return unknown(f"`{call.name}` takes one number")
    return NO_EFFECTS


def _set(call: ProgramCall) -> CallEffects:
    words = iter(call.args)
    for word in words:
        if word.kind == "literal" and word.text in ("-o", "+o"):
            value = next(words, literal(""))
            if value.kind != "literal" or value.text not in _NAMED_SETTINGS:
                return unknown("what this setting of `set -o` does is not known")
        elif word.kind == "literal" and _SET_OPTIONS.fullmatch(word.text.removesuffix("o")):
            if word.text.endswith("o") and next(words, literal("")).text not in _NAMED_SETTINGS:
                return unknown("what this setting of `set -o` does is not known")
        else:
            return unknown("what these arguments of `set` do is not known")
    return NO_EFFECTS


BUILTINS: Mapping[str, ProgramCheck] = {
    **dict.fromkeys(("echo", ":", "true", "false"), _no_effects),
    **dict.fromkeys(("break", "continue", "exit", "return", "shift"), _exit),
    **dict.fromkeys(("test", "["), _test),
    **dict.fromkeys(("export", "local", "declare", "readonly", "read", "unset"), _assigning),
    "printf": _printf,
    "cd": _cd,
    "set": _set,
}
