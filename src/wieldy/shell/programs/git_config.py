"""Settings by which git runs programs later: writing one is as good as writing a hook."""

from __future__ import annotations

import re

from wieldy.schema.pattern import pattern
from wieldy.shell.programs.judgement import Judgement
from wieldy.shell.programs.options import names
from wieldy.shell.words import Word, plain

_RUNS = pattern(
    r"(alias|pager)\..+|core\.(hookspath|fsmonitor|sshcommand|pager|editor|askpass|gitproxy|alternaterefscommand)"
    r"|sequence\.editor|diff\.external|diff\..+\.(command|textconv)|merge\..+\.driver|filter\..+\.(clean|smudge|process)"
    r"|(.+\.)?(cmd|helper|program|command|uploadpack|receivepack)|interactive\.difffilter|uploadpack\.packobjectshook"
    r"|submodule\..+\.update|include(if\..+)?\.path|init\.templatedir|protocol\.ext\.allow|sendemail\..*(server|cmd)",
    re.IGNORECASE,
)
# Programs that show or edit what they are given, and values that name no program.
_QUIET_VALUES = names("cat less more vi vim nano true false store cache manager osxkeychain checkout merge none")
_FILE_OPTIONS = ("-f", "--file")


def running(args: tuple[Word, ...], folder: Word | None, home: str) -> Judgement | None:
    """The judgement of a `git config` that sets what git will run; None for any other."""
    words, file = _operands(args, folder, home)
    at = next((at for at, word in enumerate(words) if "." in word.stem), len(words))
    key, value = (*words[at : at + 2], None, None)[:2]
    if key is None or value is None or not _RUNS.fullmatch(key.stem) or _is_quiet(key, value):
        return None
    return Judgement(writes=(file,), known=False, changes=True, why=f"`{key.source}` says what git runs")


def _is_quiet(key: Word, value: Word) -> bool:
    if key.stem.lower().startswith("alias."):
        return value.static and not value.text.lstrip().startswith("!")
    return value.static and value.text in _QUIET_VALUES


def _operands(args: tuple[Word, ...], folder: Word | None, home: str) -> tuple[list[Word], Word]:
    """The words that are no options, and the file that is written."""
    file = plain(f"{folder.text}/.git/config" if folder and folder.static else ".git/config")
    words: list[Word] = []
    rest = iter(args)
    for word in rest:
        name, equals, value = word.stem.partition("=")
        if name in _FILE_OPTIONS:
            file = plain(value) if equals else next(rest, file)
        elif name == "--global":
            file = plain(f"{home}/.gitconfig")
        elif name == "--system":
            file = plain("/etc/gitconfig")
        elif words or not name.startswith("-"):
            words.append(word)
    return words, file
