"""Which looks at a repository show what is in files that are not named: differences, searches, objects."""

from __future__ import annotations

from wieldy.schema.pattern import pattern
from wieldy.shell.programs.options import names
from wieldy.shell.words import Word

_ALWAYS = names("grep range-diff")
_UNLESS_NAMES = names("diff show whatchanged diff-index diff-files")
_WITH_PATCH = names("log reflog stash rev-list diff-tree")
_NAMES = names(
    "--name-only --name-status --stat --numstat --shortstat --dirstat --summary --compact-summary --raw --quiet --no-patch -s"
)
_PATCH = names(
    "--patch --unified --patch-with-raw --patch-with-stat --cc --diff-merges --remerge-diff --dd --word-diff "
    "--word-diff-regex --color-words --function-context --binary --text --check"
)
_SHORT_PATCH = pattern(r"-[A-Za-z]*[puUcmLW]")
_OBJECT_NAMED = pattern(r"[^:]*:.+")
_ABOUT_OBJECTS = names("-t -s -e --batch-check")


def shows_content(command: str, args: tuple[Word, ...]) -> bool:
    """Whether the content of files may be shown, and not only their names."""
    flags = {word.text.partition("=")[0] for word in _before_paths(args) if word.stem.startswith("-")}
    patch = bool(flags & _PATCH) or any(map(_SHORT_PATCH.match, (flag for flag in flags if flag[:2] != "--")))
    if command in _ALWAYS or (command == "cat-file" and not flags & _ABOUT_OBJECTS):
        return True
    return (command in _UNLESS_NAMES and (patch or not flags & _NAMES)) or (command in _WITH_PATCH and patch)


def names_files(command: str, args: tuple[Word, ...]) -> bool:
    """Whether what is shown is told file by file: paths behind `--`, or nothing but `revision:path`."""
    front = _before_paths(args)
    behind = args[len(front) + 1 :]
    if behind:
        # A pathspec may begin with magic, which can mean everything.
        return all(word.static and word.text and not word.text.startswith(":") for word in behind)
    operands = [word for word in front if not word.stem.startswith("-")]
    return (
        command in ("show", "cat-file")
        and bool(operands)
        and all(word.static and _OBJECT_NAMED.fullmatch(word.text) for word in operands)
    )


def _before_paths(args: tuple[Word, ...]) -> tuple[Word, ...]:
    end = next((index for index, word in enumerate(args) if word.static and word.text == "--"), len(args))
    return args[:end]
