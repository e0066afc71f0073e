"""File names that flow through a pipe: which folders the files are in, and how each name begins."""

from __future__ import annotations

import re

from msgspec import Struct

from wieldy.core.effects import Reads
from wieldy.shell.effects.command_part import CommandPart
from wieldy.shell.effects.programs.find import listed_links
from wieldy.shell.effects.programs.git import before_paths, split_git_args
from wieldy.shell.effects.programs.spec import word_set
from wieldy.shell.effects.words import Word

_GIT_LISTING_OPTIONS = {
    "ls-files": word_set("-m -o -c -d -z --modified --others --cached --deleted --exclude-standard"),
    "diff": word_set("--name-only --cached --staged -z"),
    "grep": word_set("-l -i -w -E -F -z --files-with-matches --name-only --ignore-case"),
}
_GIT_REQUIRED_OPTIONS = {"diff": word_set("--name-only"), "grep": word_set("-l --files-with-matches --name-only")}
_FIND_TEXT_ACTIONS = word_set("-printf -ls")
_GREP_NAMES_ONLY = re.compile(r"-[A-Za-z]*[lL][A-Za-z]*|--files(-with(out)?-match(es)?)?")
# Not `-a`, which lists the parent folder.
_LS_FLAGS = re.compile(r"-[1AdrtS]+")
_LINE_COUNT = re.compile(r"-\d+|-n\d*|--lines(=\d+)?|\d+")
_GREP_WHOLE_LINES = re.compile(r"-[EFGPivwxe]+|--(invert-match|ignore-case|extended-regexp|fixed-strings)")


class PipelineInput(Struct, frozen=True):
    """File names at or below `folders`, each beginning with `prefix`; without folders nothing is known of the input.

    `links`: a pattern for the names among them that may be symlinks; None if there are no symlinks. `on_disk`: it is seen on
    disk, before the command runs, that no name is split and none begins with a dash.
    """

    folders: tuple[str, ...] = ()
    prefix: str = ""
    links: str | None = "*"
    on_disk: bool = False


UNKNOWN_INPUT = PipelineInput()


def output_of_stage(
    parts: list[CommandPart], piped: PipelineInput, cwds: tuple[str, ...], *, first: bool
) -> PipelineInput:
    """What a pipeline stage with these parts, reading `piped`, passes to the next one."""
    if len(parts) != 1 or not all(word.kind == "literal" for word in parts[0].argv):
        return UNKNOWN_INPUT
    part = parts[0]
    folders = tuple(effect.path for effect in part.effects if isinstance(effect, Reads))
    if first and part.read_only and _lists_files(part):
        if part.program != "find":
            return PipelineInput(tuple(dict.fromkeys((*folders, *cwds))))
        starts = [word.text for word in part.argv[1:2] if not word.text.startswith("-")]
        return PipelineInput(folders, starts[0] if starts else "./", listed_links(part.argv[1:]))
    return piped if not folders and _passes_whole_lines(part) else UNKNOWN_INPUT


def _lists_files(part: CommandPart) -> bool:
    """Whether the output is names of files that the part looks at, and no other text."""
    words = [word.text for word in part.argv[1:]]
    flags = [word for word in words if word.startswith("-")]
    match part.program:
        case "find":
            return _FIND_TEXT_ACTIONS.isdisjoint(words)
        case "fd" | "fdfind":
            return True
        case "ls":
            return all(map(_LS_FLAGS.fullmatch, flags))
        case "grep" | "egrep" | "fgrep" | "rg":
            # `--label` and `--path-separator` change the names.
            changed = any(flag.startswith(("--path", "--la")) for flag in flags)
            return not changed and any(map(_GREP_NAMES_ONLY.fullmatch, flags))
        case "git":
            call = split_git_args(part.argv[1:])
            options = {word.text for word in call.args if word.text.startswith("-") and word.text != "--"}
            if "-z" not in options and _names_other_commits(call.command, call.args, options):
                return False
            required = _GIT_REQUIRED_OPTIONS.get(call.command)
            return (
                call.command in _GIT_LISTING_OPTIONS
                and options <= _GIT_LISTING_OPTIONS[call.command]
                and call.folder is None
                and not (required and required.isdisjoint(options))
            )
    return False


def _names_other_commits(command: str, args: tuple[Word, ...], options: set[str]) -> bool:
    """Whether a git listing may hold names that are not on disk, so that it cannot be seen how xargs would split them."""
    front = before_paths(args)
    operands = [word for word in front if not word.text.startswith("-")]
    match command:
        case "diff":
            return bool(operands)
        case "grep":
            return len(operands) > 1
    return not options.isdisjoint(("-d", "--deleted"))


def _passes_whole_lines(part: CommandPart) -> bool:
    """Whether each line of the output is a line of the input: a cut one could name another file."""
    words = [word.text for word in part.argv[1:]]
    match part.program:
        case "head" | "tail":
            return all(map(_LINE_COUNT.fullmatch, words))
        case "sort" | "uniq":
            return True
        case "tac":
            return not words
        case "grep" | "egrep" | "fgrep":
            return all(map(_GREP_WHOLE_LINES.fullmatch, [word for word in words if word.startswith("-")]))
    return False
