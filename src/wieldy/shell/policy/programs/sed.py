"""`sed`: parse its script and accept only commands that print, edit the stream or stop."""

from __future__ import annotations

import re

from wieldy.shell.policy.programs.spec import CallEffects, ProgramCall, option_table, parse_args, unknown

_OPTIONS = (
    "-nErsuz -e: -l: -i? --quiet --silent --regexp-extended --separate --unbuffered --null-data --zero-terminated "
    "--expression= --line-length= --posix --sandbox --in-place=? --help --version !--file !--debug !--follow-symlinks"
)
_ADDRESS = re.compile(r"(\d+(~\d+)?|\$|\+\d+|~\d+)")
_SPACE = re.compile(r"[ \t\n;]*")
_PLAIN_COMMANDS = frozenset("=dDgGhHnNpPxzF")
_LABEL = re.compile(r"[ \t]*[\w.-]*")
_NUMBER = re.compile(r"[ \t]*\d*")
_BRACKET = re.compile(r"\\.|\[\^?\]?(?:\[[:.=].*?[:.=]\]|[^\]])*\]", re.DOTALL)
_FLAGS = re.compile(r"[gpiImM0-9]*")


class _RefusedScript(ValueError):
    """The script could do something beyond editing the stream."""


def check_sed(call: ProgramCall) -> CallEffects:
    parsed = parse_args(call.args, option_table(_OPTIONS))
    scripts = parsed.values("-e", "--expression")
    files = parsed.operands
    if not scripts:
        scripts, files = files[:1], files[1:]
    if any(not word.static for word in scripts):
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
    at, end = 0, len(script)
    while at < end:
        at = _skip(_SPACE, script, at)
        if at < end:
            at = _skip_command(script, _skip_addresses(script, at))


def _skip_addresses(script: str, at: int) -> int:
    at = _skip_address(script, at)
    while script[at : at + 1] == ",":
        at = _skip_address(script, _skip_blanks(script, at + 1))
    at = _skip_blanks(script, at)
    while script[at : at + 1] == "!":
        at = _skip_blanks(script, at + 1)
    return at


def _skip_address(script: str, at: int) -> int:
    if match := _ADDRESS.match(script, at):
        return _skip_blanks(script, match.end())
    mark = script[at : at + 1]
    if mark == "\\":
        at, mark = at + 1, script[at + 1 : at + 2]
    elif mark != "/":
        return at
    at = _skip_delimited(script, at + 1, mark)
    while script[at : at + 1] in ("I", "M"):
        at += 1
    return _skip_blanks(script, at)


def _skip_command(script: str, at: int) -> int:
    name = script[at : at + 1]
    if name in ("{", "}"):
        return at + 1
    if name == "#":
        return _line_end(script, at)
    if name and name in _PLAIN_COMMANDS:
        return _expect_end(script, at + 1)
    if name in ("q", "Q", "l", "L"):
        return _expect_end(script, _skip(_NUMBER, script, at + 1))
    if name in (":", "b", "t", "T"):
        return _expect_end(script, _skip(_LABEL, script, at + 1))
    if name in ("a", "i", "c"):
        return _skip_text(script, at + 1)
    if name in ("s", "y"):
        return _skip_substitution(script, at)
    raise _RefusedScript(f"the sed command `{name or script[-10:]}` can write files or run programs, or is not known")


def _skip_substitution(script: str, at: int) -> int:
    mark = script[at + 1 : at + 2]
    if not mark or mark in "\n\\":
        raise _RefusedScript("a sed substitution without a delimiter")
    end = _skip_delimited(script, _skip_delimited(script, at + 2, mark), mark)
    if script[at] == "s":
        end = _skip(_FLAGS, script, end)
    return _expect_end(script, end)


def _skip_delimited(script: str, at: int, mark: str) -> int:
    """Past the next unescaped delimiter. Versions of sed differ on one inside brackets, so that is not accepted."""
    start = at
    while at < len(script):
        if script[at] == "\\":
            at += 2
        elif script[at] == mark:
            if _BRACKET.sub("", script[start:at]).count("["):
                raise _RefusedScript("a sed delimiter inside brackets")
            return at + 1
        else:
            at += 1
    raise _RefusedScript("a sed pattern that is not closed")


def _skip_text(script: str, at: int) -> int:
    while True:
        at = _line_end(script, at)
        if at >= len(script) or script[at - 1] != "\\":
            return at
        at += 1


def _expect_end(script: str, at: int) -> int:
    at = _skip_blanks(script, at)
    if at < len(script) and script[at] not in "\n;}#":
        raise _RefusedScript(f"`{script[at:]}` after a sed command is not known")
    return at


def _line_end(script: str, at: int) -> int:
    end = script.find("\n", at)
    return len(script) if end < 0 else end


def _skip_blanks(script: str, at: int) -> int:
    while script[at : at + 1] in (" ", "\t"):
        at += 1
    return at


def _skip(pattern: re.Pattern[str], script: str, at: int) -> int:
    match = pattern.match(script, at)
    return match.end() if match else at
