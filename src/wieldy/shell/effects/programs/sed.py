"""`sed`: a small grammar of scripts that every sed reads in the same way and that only edit the stream; the rest is unknown.

What matters is where patterns, labels and texts end: a version that ends one elsewhere runs the rest as commands. Comments,
texts with backslashes and delimiters inside brackets are therefore not accepted.
"""

from __future__ import annotations

import re

from wieldy.shell.effects.programs.spec import CallEffects, ProgramCall, option_table, parse_args, unknown

_OPTIONS = (
    "-nErsuz -e: -l: -i? --quiet --silent --regexp-extended --separate --unbuffered --null-data --zero-terminated "
    "--expression= --line-length= --posix --sandbox --in-place=? --help --version !--file !--debug !--follow-symlinks"
)
_SEPARATORS = re.compile(r"[ \t\n;]*")
_BLANKS = re.compile(r"[ \t]*")
_LINE_ADDRESS = re.compile(r"\d+(?:~\d+)?|\$|[+~]\d+")
_DELIMITERS = "/|,:@!%~_+=#"
# Commands without arguments, and those with an optional number, up to their end.
_PLAIN_COMMAND = re.compile(r"(?:[=dDgGhHnNpPxzF]|[qQlL][ \t]*\d*)[ \t]*(?=[;}\n]|\Z)")
# A brace after a label belongs to it in some versions: what follows must begin a new command in both readings.
_LABEL_COMMAND = re.compile(r"(?::[ \t]*[A-Za-z0-9_]+|[btT](?:[ \t]*[A-Za-z0-9_]+)?)[ \t]*(?:\}[ \t]*)*(?=[;\n]|\Z)")
_TEXT_COMMAND = re.compile(r"[aic][ \t]*[^ \t\\\n;}][^\\\n]*(?=\n|\Z)")
_FLAGS = re.compile(r"[gpiImM0-9]*[ \t]*(?=[;}\n]|\Z)")


class _RefusedScript(ValueError):
    """The script could do something beyond editing the stream."""


def check_sed(call: ProgramCall) -> CallEffects:
    parsed = parse_args(call.args, option_table(_OPTIONS))
    if any(not word.text.isdecimal() for word in parsed.values("-l", "--line-length")):
        return unknown("`sed -l` lacks its number, and other versions take the next word for the script")
    # In a suffix `*` is the name of the file, and a slash begins another folder.
    if any(not re.fullmatch(r"[\w.~-]*", word.text) for word in parsed.values("-i", "--in-place")):
        return unknown("the suffix of `sed -i` may name another folder")
    scripts = parsed.values("-e", "--expression")
    files = parsed.operands
    if not scripts:
        scripts, files = files[:1], files[1:]
    if any(word.kind != "literal" for word in scripts):
        return unknown("the sed script is not written out")
    try:
        _check_script("\n".join(word.text for word in scripts))
    except _RefusedScript as error:
        return unknown(str(error))
    if parsed.has("-i", "--in-place"):
        return CallEffects(writes=tuple(files), changes=True)
    return CallEffects(reads=tuple(files))


def _check_script(script: str) -> None:
    """Raise `_RefusedScript` unless every command is accepted; the `_skip` functions return the position after their match."""
    at = 0
    while (at := _skip(_SEPARATORS, script, at)) < len(script):
        at = _skip_command(script, _skip_addresses(script, at))


def _skip_addresses(script: str, at: int) -> int:
    at = _skip_address(script, at)
    if script[at : at + 1] == ",":
        at = _skip_address(script, _skip(_BLANKS, script, at + 1))
    while script[at : at + 1] == "!":
        at = _skip(_BLANKS, script, at + 1)
    return at


def _skip_address(script: str, at: int) -> int:
    if match := _LINE_ADDRESS.match(script, at):
        return _skip(_BLANKS, script, match.end())
    if script[at : at + 1] == "\\":
        at += 1
    elif script[at : at + 1] != "/":
        return at
    at = _skip_pattern(script, at)
    while script[at : at + 1] in ("I", "M"):
        at += 1
    return _skip(_BLANKS, script, at)


def _skip_command(script: str, at: int) -> int:
    name = script[at : at + 1]
    if name in ("{", "}"):
        return at + 1
    for command in (_PLAIN_COMMAND, _LABEL_COMMAND, _TEXT_COMMAND):
        if match := command.match(script, at):
            return match.end()
    if name in ("s", "y"):
        after = _skip_pattern(script, at + 1) if name == "s" else _skip_text(script, at + 2, script[at + 1 : at + 2])
        after = _skip_text(script, after, script[at + 1])
        if match := _FLAGS.match(script, after):
            return match.end()
    shown = script[at : at + 12] or script[-12:]
    raise _RefusedScript(f"the sed command at `{shown}` can write files or run programs, or is not known")


def _skip_pattern(script: str, at: int) -> int:
    """Past a regex and its closing delimiter. A bracket holds no delimiter, and backslashes only before letters."""
    mark = script[at : at + 1]
    if not mark or mark not in _DELIMITERS:
        raise _RefusedScript("a sed pattern with an unusual delimiter")
    mark = re.escape(mark)
    bracket = rf"\[\^?(?:\[:[a-z]+:\]|\\[a-z]|[^\]\[\\\n{mark}])+\]"
    if match := re.compile(rf"{mark}(?:[^\\\n\[{mark}]|\\[^\n]|{bracket})*{mark}").match(script, at):
        return match.end()
    raise _RefusedScript("a sed pattern that is not understood")


def _skip_text(script: str, at: int, mark: str) -> int:
    """Past a replacement and its closing delimiter."""
    if mark and mark in _DELIMITERS:
        mark = re.escape(mark)
        if match := re.compile(rf"(?:[^\\\n{mark}]|\\[^\n])*{mark}").match(script, at):
            return match.end()
    raise _RefusedScript("a sed replacement that is not understood")


def _skip(pattern: re.Pattern[str], script: str, at: int) -> int:
    match = pattern.match(script, at)
    return match.end() if match else at
