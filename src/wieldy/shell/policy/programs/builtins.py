"""Shell builtins that only change the folder, print, test, or set variables that influence no program."""

from __future__ import annotations

import re
from collections.abc import Mapping

from wieldy.shell.policy.programs.spec import (
    NO_EFFECTS,
    CallEffects,
    ProgramCall,
    ProgramCheck,
    option_table,
    parse_args,
    unknown,
    word_set,
)
from wieldy.shell.policy.words import Word, literal

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
_STORING_FORMAT = re.compile(r"%[-#+ 0-9.*'lhjzt]*n")
_UNARY = word_set("-a -b -c -d -e -f -g -h -k -n -p -r -s -t -u -w -x -z -G -L -N -O -S")
_BINARY = word_set("= == != < > -eq -ne -lt -le -gt -ge -nt -ot -ef")
_SET_OPTIONS = re.compile(r"[-+][efuxvhbEmnTBCa]+")
_NAMED_SETTINGS = word_set("errexit nounset pipefail xtrace verbose noglob noclobber")


def is_harmless_variable(name: str) -> bool:
    """Whether setting a variable changes nothing programs do: known ones, and lower-case names, which scripts use."""
    return name in SAFE_VARIABLES or (name.islower() and not _INFLUENTIAL_LOWERCASE.fullmatch(name))


def is_script_variable(name: str) -> bool:
    """Whether setting a variable for the shell alone, not for one program, changes nothing programs do."""
    return is_harmless_variable(name) or name in _SCRIPT_VARIABLES or (len(name) == 1 and name.isupper())


def _no_effects(call: ProgramCall) -> CallEffects:
    return NO_EFFECTS


def _printf(call: ProgramCall) -> CallEffects:
    if not call.args:
        return NO_EFFECTS
    first, *rest = call.args
    if first.static and first.text == "--" and rest:
        first = rest[0]
    elif first.may_be_option:
        return unknown("`printf` with an option, which can set variables")
    if not first.static or _STORING_FORMAT.search(first.text):
        return unknown("a format of `printf` that can set variables")
    return NO_EFFECTS


def _cd(call: ProgramCall) -> CallEffects:
    words = [word for word in call.args if not (word.static and word.text in ("-P", "-L", "--"))]
    if len(words) > 1 or any(word.static and word.text.startswith("-") for word in words):
        return unknown("a `cd` that is not to one folder")
    if words and not words[0].static:
        return unknown("a `cd` to a folder that is not known in advance")
    return NO_EFFECTS


def _test(call: ProgramCall) -> CallEffects:
    args = list(call.args)
    if call.name == "[" and (not args or args.pop().text != "]"):
        return unknown("a `[` without `]`")
    for index, word in enumerate(args):
        if word.kind in ("multiple", "glob"):
            return unknown(f"`{word.source}` in a test could become several words")
        if word.static and word.text in ("-v", "-R"):
            return unknown("a test for a variable can run code in a subscript")
        if word.dynamic and not _is_operand(args, index):
            return unknown(f"`{word.source}` could become a test operator")
    # A test looks at the metadata of a file, never at its content, which path rules protect.
    return NO_EFFECTS


def _is_operand(args: list[Word], index: int) -> bool:
    """Whether an unknown word stands where only an operand can stand."""
    before = args[index - 1].text if index and args[index - 1].static else ""
    after = args[index + 1].text if index + 1 < len(args) and args[index + 1].static else ""
    return (
        len(args) == 1
        or before in _UNARY
        or before in _BINARY
        or after in _BINARY
        or (before == "!" and len(args) == 2)
    )


def _exit(call: ProgramCall) -> CallEffects:
    if len(call.args) > 1 or any(not (word.dynamic or word.text.lstrip("-").isdecimal()) for word in call.args):
        return unknown(f"`{call.name}` with more than a number")
    return NO_EFFECTS


def _set(call: ProgramCall) -> CallEffects:
    words = iter(call.args)
    for word in words:
        if word.static and word.text in ("-o", "+o"):
            value = next(words, literal(""))
            if not value.static or value.text not in _NAMED_SETTINGS:
                return unknown("`set -o` with an unknown setting")
        elif word.static and _SET_OPTIONS.fullmatch(word.text.removesuffix("o")):
            if word.text.endswith("o") and next(words, literal("")).text not in _NAMED_SETTINGS:
                return unknown("`set -o` with an unknown setting")
        else:
            return unknown("`set` with arguments")
    return NO_EFFECTS


def _read(call: ProgramCall) -> CallEffects:
    return _names_only(parse_args(call.args, option_table("-ers -d: -n: -N: -p: -t: -u:", exact=True)).operands)


def _unset(call: ProgramCall) -> CallEffects:
    return _names_only(parse_args(call.args, option_table("-v", exact=True)).operands)


def _declare(call: ProgramCall) -> CallEffects:
    """`export`, `local`, `declare` and `readonly` of names without subscripts that influence no program."""
    parsed = parse_args(call.args, option_table("-rxp" if call.name != "local" else "-r", exact=True))
    for word in parsed.operands:
        name, equals, _ = word.prefix.partition("=")
        if (
            not _NAME.fullmatch(name)
            or not (equals or word.static)
            or not is_harmless_variable(name)
            or word.kind == "multiple"
        ):
            return unknown(f"`{call.name}` of `{name or word.source}`, which can change what programs do")
    return NO_EFFECTS


def _names_only(words: list[Word]) -> CallEffects:
    for word in words:
        if not word.static or not _NAME.fullmatch(word.text) or not is_harmless_variable(word.text):
            return unknown(f"the variable `{word.source}` can change what programs do")
    return NO_EFFECTS


BUILTINS: Mapping[str, ProgramCheck] = {
    **dict.fromkeys(("echo", ":", "true", "false"), _no_effects),
    **dict.fromkeys(("break", "continue", "exit", "return", "shift"), _exit),
    **dict.fromkeys(("test", "["), _test),
    **dict.fromkeys(("export", "local", "declare", "readonly"), _declare),
    "printf": _printf,
    "cd": _cd,
    "set": _set,
    "read": _read,
    "unset": _unset,
}
