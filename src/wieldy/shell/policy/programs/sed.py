"""`sed`: its script is read command by command; only those that print, edit the stream or stop are accepted."""

from __future__ import annotations

import re

from wieldy.shell.policy.programs.options import Parsed, read, table
from wieldy.shell.policy.programs.tables import Call, Judgement, unknown
from wieldy.shell.policy.words import Word

_SPEC = (
    "-nErsuz -e: -l: -i? --quiet --silent --regexp-extended --separate --unbuffered --null-data --zero-terminated "
    "--expression= --line-length= --posix --sandbox --in-place=? --help --version !--file !--debug "
    "!--follow-symlinks"
)
_ADDRESS = re.compile(r"(\d+(~\d+)?|\$|\+\d+|~\d+)")
_SPACE = re.compile(r"[ \t\n;]*")
_LONE = frozenset("=dDgGhHnNpPxzF")
_LABEL = re.compile(r"[ \t]*[\w.-]*")
_NUMBER = re.compile(r"[ \t]*\d*")
_BRACKET = re.compile(r"\\.|\[\^?\]?(?:\[[:.=].*?[:.=]\]|[^\]])*\]", re.DOTALL)
_FLAGS = re.compile(r"[gpiImM0-9]*")


class NotAccepted(ValueError):
    """The script does something beyond editing the stream."""


def judge(call: Call) -> Judgement:
    """Judge one call of sed."""
    parsed = read(call.args, table(_SPEC))
    if parsed.problem:
        return unknown(parsed.problem)
    scripts = [*_values(parsed, "-e"), *_values(parsed, "--expression")]
    files = parsed.operands
    if not scripts:
        scripts, files = files[:1], files[1:]
    if any(not word.static for word in scripts):
        return unknown("the sed script is not written out")
    try:
        _check("\n".join(word.text for word in scripts))
    except NotAccepted as error:
        return unknown(str(error))
    if parsed.has("-i", "--in-place"):
        return Judgement(writes=tuple(files), changes=True)
    return Judgement(reads=tuple(files))


def _values(parsed: Parsed, name: str) -> list[Word]:
    return [word for word in parsed.found.get(name, []) if word is not None]


def _check(script: str) -> None:
    at, end = 0, len(script)
    while at < end:
        at = _matched(_SPACE, script, at)
        if at < end:
            at = _command(script, _addresses(script, at))


def _addresses(script: str, at: int) -> int:
    at = _address(script, at)
    while script[at : at + 1] == ",":
        at = _address(script, _blanks(script, at + 1))
    at = _blanks(script, at)
    while script[at : at + 1] == "!":
        at = _blanks(script, at + 1)
    return at


def _address(script: str, at: int) -> int:
    if found := _ADDRESS.match(script, at):
        return _blanks(script, found.end())
    mark = script[at : at + 1]
    if mark == "\\":
        at, mark = at + 1, script[at + 1 : at + 2]
    elif mark != "/":
        return at
    at = _delimited(script, at + 1, mark)
    while script[at : at + 1] in ("I", "M") and script[at : at + 1]:
        at += 1
    return _blanks(script, at)


def _command(script: str, at: int) -> int:
    name = script[at : at + 1]
    if name in ("{", "}"):
        return at + 1
    if name == "#":
        return _line_end(script, at)
    if name and name in _LONE:
        return _ended(script, at + 1)
    if name in ("q", "Q", "l", "L") and name:
        return _ended(script, _matched(_NUMBER, script, at + 1))
    if name in (":", "b", "t", "T") and name:
        return _ended(script, _matched(_LABEL, script, at + 1))
    if name in ("a", "i", "c") and name:
        return _text(script, at + 1)
    if name in ("s", "y") and name:
        return _substitute(script, at)
    raise NotAccepted(f"the sed command `{name or script[-10:]}` can write files or run programs, or is not known")


def _substitute(script: str, at: int) -> int:
    mark = script[at + 1 : at + 2]
    if not mark or mark in "\n\\":
        raise NotAccepted("a sed substitution without a delimiter")
    behind = _delimited(script, _delimited(script, at + 2, mark), mark)
    if script[at] == "s":
        behind = _matched(_FLAGS, script, behind)
    return _ended(script, behind)


def _delimited(script: str, at: int, mark: str) -> int:
    """Past the next unescaped delimiter. Versions of sed differ on one inside brackets, so that is not accepted."""
    start = at
    while at < len(script):
        if script[at] == "\\":
            at += 2
        elif script[at] == mark:
            if _BRACKET.sub("", script[start:at]).count("["):
                raise NotAccepted("a sed delimiter inside brackets")
            return at + 1
        else:
            at += 1
    raise NotAccepted("a sed pattern that is not closed")


def _text(script: str, at: int) -> int:
    while True:
        at = _line_end(script, at)
        if at >= len(script) or script[at - 1] != "\\":
            return at
        at += 1


def _ended(script: str, at: int) -> int:
    at = _blanks(script, at)
    if at < len(script) and script[at] not in "\n;}#":
        raise NotAccepted(f"`{script[at:]}` after a sed command is not known")
    return at


def _line_end(script: str, at: int) -> int:
    end = script.find("\n", at)
    return len(script) if end < 0 else end


def _blanks(script: str, at: int) -> int:
    while script[at : at + 1] in (" ", "\t"):
        at += 1
    return at


def _matched(pattern: re.Pattern[str], script: str, at: int) -> int:
    found = pattern.match(script, at)
    return found.end() if found else at
