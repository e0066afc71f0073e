"""What flows through a pipe when it is file names: where the named files are, and how each name begins."""

from __future__ import annotations

import re

from msgspec import Struct

from wieldy.core.effects import Reads
from wieldy.shell.policy.command_part import CommandPart
from wieldy.shell.policy.programs.options import names

_GIT_LISTS = {
    "ls-files": names("-m -o -c -d -z --modified --others --cached --deleted --exclude-standard"),
    "diff": names("--name-only --cached --staged -z"),
    "grep": names("-l -i -w -E -F -z --files-with-matches --name-only --ignore-case"),
}
_GIT_NEEDS = {"diff": names("--name-only"), "grep": names("-l --files-with-matches --name-only")}
_FINDS_TEXT = names("-printf -ls")
_NAMING = re.compile(r"-[A-Za-z]*[lL][A-Za-z]*|--files(-with(out)?-match(es)?)?")
_LS_FLAGS = re.compile(r"-[1aAdrtS]+")
_LINE_COUNT = re.compile(r"-\d+|-n\d*|--lines(=\d+)?|\d+")
_WHOLE_LINES = re.compile(r"-[EFGPivwxe]+|--(invert-match|ignore-case|extended-regexp|fixed-strings)")


class Feed(Struct, frozen=True):
    """File names at or below `folders`, each beginning with `stem`; without folders nothing is known."""

    folders: tuple[str, ...] = ()
    prefix: str = ""


UNFED = Feed()


def fed_by(parts: list[CommandPart], feed: Feed, cwds: tuple[str, ...], *, first: bool) -> Feed:
    """What the next stage of a pipeline can expect, after a stage that consists of these parts."""
    if len(parts) != 1 or not all(word.static for word in parts[0].argv):
        return UNFED
    part = parts[0]
    folders = tuple(effect.path for effect in part.effects if isinstance(effect, Reads))
    if first and part.read_only and _lists_files(part):
        if part.program != "find":
            return Feed(tuple(dict.fromkeys((*folders, *cwds))))
        starts = [word.text for word in part.argv[1:2] if not word.text.startswith("-")]
        return Feed(folders, starts[0] if starts else "./")
    return feed if not folders and _passes_whole_lines(part) else UNFED


def _lists_files(part: CommandPart) -> bool:
    """Whether the output is names of files that the part looks at, and no other text."""
    words = [word.text for word in part.argv[1:]]
    flags = [word for word in words if word.startswith("-")]
    match part.program:
        case "find":
            return not _FINDS_TEXT & set(words)
        case "fd" | "fdfind":
            return True
        case "ls":
            return all(_LS_FLAGS.fullmatch(flag) for flag in flags)
        case "grep" | "egrep" | "fgrep" | "rg":
            return any(map(_NAMING.fullmatch, flags)) and not any(flag.startswith("--path") for flag in flags)
        case "git":
            return _git_lists_files(part)
    return False


def _git_lists_files(part: CommandPart) -> bool:
    from wieldy.shell.policy.programs.git import split

    call = split(part.argv[1:])
    given = {word.text for word in call.args if word.text.startswith("-") and word.text != "--"}
    needed = _GIT_NEEDS.get(call.command)
    return (
        given <= _GIT_LISTS.get(call.command, frozenset())
        and call.folder is None
        and not (needed and not needed & given)
    )


def _passes_whole_lines(part: CommandPart) -> bool:
    """Whether each line of the output is a line of the input: a cut one could name another file."""
    words = [word.text for word in part.argv[1:]]
    flags = [word for word in words if word.startswith("-")]
    match part.program:
        case "head" | "tail":
            return all(map(_LINE_COUNT.fullmatch, words))
        case "sort" | "uniq" | "tac":
            return True
        case "grep" | "egrep" | "fgrep":
            return all(map(_WHOLE_LINES.fullmatch, flags))
    return False
