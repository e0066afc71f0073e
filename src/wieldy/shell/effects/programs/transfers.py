"""Files that a command writes without naming them: the content of a copied folder, or of an archive."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from glob import has_magic, iglob
from itertools import islice
from typing import TYPE_CHECKING

from wieldy.core.effects import Writes
from wieldy.core.filesystem import LOCAL_FILES, FileSystem
from wieldy.shell.effects.programs.profiles import profile_of

if TYPE_CHECKING:
    from wieldy.shell.effects.command_part import CommandPart
    from wieldy.shell.effects.words import Word

UNPACKING = frozenset({"cp", "mv", "rsync", "tar", "bsdtar", "unzip", "7z", "7za", "7zz", "cpio"})
MAX_GLOB_MATCHES = 1_000
_EXTRACTS = re.compile(r"-?[A-Za-z]*x[A-Za-z]*|--extract|--get")
_LISTS_ONLY = re.compile(r"-[A-Za-z]*[ltpvZ][A-Za-z]*")
_RECURSIVE = re.compile(r"-[A-Za-z]*[rRa][A-Za-z]*|--recursive|--archive")
_AS_TARGET = re.compile(r"-[A-Za-z]*T[A-Za-z]*|--no-target-directory")
_COPY_AS_LINK = re.compile(r"-[A-Za-z]*[ls][A-Za-z]*|--link|--symbolic-link")
_REMOTE = re.compile(r"[^/]*:.*")


def written_patterns(part: CommandPart) -> Iterator[str]:
    """Yield the globs for files that a part writes: targets of redirections, and arguments of a writing program."""
    yield from part.redirects.patterns
    if any(isinstance(effect, Writes) and effect not in part.redirects.effects for effect in part.effects):
        for word in part.argv[1:]:
            if word.kind == "glob":
                yield from (os.path.normpath(os.path.join(cwd, word.text)) for cwd in part.cwds)


def overwritten(part: CommandPart, files: FileSystem) -> Iterator[str]:
    """Yield what globs match that a writing part is given, and the operands of programs that change files in place."""
    writes = any(isinstance(effect, Writes) for effect in part.effects)
    in_place = not part.known and changes_in_place(part)
    for word in part.argv[1:] if writes or in_place else ():
        for cwd in part.cwds:
            path = os.path.join(cwd, word.text)
            if word.kind == "glob":
                yield from islice(_glob(path.replace("[^", "[!"), files), MAX_GLOB_MATCHES)
            elif in_place and word.kind == "literal" and not word.text.startswith("-"):
                yield os.path.normpath(path)


def changes_in_place(part: CommandPart) -> bool:
    """Whether a part changes the files it is given."""
    option = profile_of(os.path.basename(part.program or "").rstrip("0123456789.")).in_place
    return option is not None and (not option or any(re.match(option, word.text) for word in part.argv[1:]))


def linked_paths(part: CommandPart, files: FileSystem) -> Iterator[str]:
    """Yield what the links lead to that a part makes. A relative symlink starts at the folder that it is in."""
    texts = [word.text for word in part.argv[1:]]
    if part.program == "cp" and not any(map(_COPY_AS_LINK.fullmatch, texts)):
        return
    if part.program not in ("ln", "link", "cp"):
        return
    operands = [word for word in part.argv[1:] if not word.prefix.startswith("-")]
    target = _option_value(texts, "-t", "--target-directory", default="")
    if not target and len(operands) > 1:
        target = operands.pop().text
    for cwd in part.cwds:
        link = os.path.join(cwd, target)
        for word in operands:
            for folder in dict.fromkeys((cwd, os.path.dirname(link), link)):
                path = os.path.normpath(os.path.join(folder, word.text))
                if word.kind == "literal" and files.exists(path):
                    yield path


def list_folder(source: str | None, files: FileSystem) -> list[str] | None:
    try:
        return [entry.name for entry in files.list_folder(source)] if source is not None else None
    except OSError:
        return None


def _glob(pattern: str, files: FileSystem) -> Iterator[str]:
    """The paths that a glob matches, hidden ones too."""
    if files is LOCAL_FILES:
        yield from iglob(pattern, include_hidden=True)
        return
    folders = ["/"]
    *above, last = [name for name in pattern.split("/") if name] or [""]
    for name in above:
        matches = [path for folder in folders for path in _matching(folder, name, files)]
        folders = [path for path in matches[:MAX_GLOB_MATCHES] if files.is_folder(path)]
    for folder in folders:
        yield from _matching(folder, last, files)


def _matching(folder: str, pattern: str, files: FileSystem) -> list[str]:
    if not has_magic(pattern):
        path = os.path.join(folder, pattern)
        return [path] if files.exists(path) else []
    names = list_folder(folder, files) or []
    return [os.path.join(folder, name) for name in names if fnmatchcase(name, pattern)]


def transfers(part: CommandPart) -> Iterator[tuple[str, str | None]]:
    """Yield each folder that is filled and the folder it is filled from, None where that is not known."""
    if part.program not in UNPACKING:
        return
    for target, source in _parse_transfers(part):
        for cwd in part.cwds:
            absolute = None if source is None else os.path.join(cwd, source)
            yield os.path.normpath(os.path.join(cwd, target)), absolute


def _parse_transfers(part: CommandPart) -> Iterator[tuple[str, str | None]]:
    words = part.argv[1:]
    texts = [word.text for word in words]
    match part.program:
        case "tar" | "bsdtar" if any(map(_EXTRACTS.fullmatch, texts[:1] + [t for t in texts if t[:1] == "-"])):
            yield _option_value(texts, "-C", "--directory"), None
        case "unzip" if not any(map(_LISTS_ONLY.fullmatch, texts)):
            yield _option_value(texts, "-d"), None
        case "7z" | "7za" | "7zz" if texts[:1] in (["x"], ["e"]):
            yield _option_value(texts, "-o"), None
        case "cpio" if any(text[:2] == "-i" or text == "--extract" for text in texts):
            yield _option_value(texts, "-D", "--directory"), None
        case "cp" | "mv" | "rsync":
            yield from _parse_copy(part.program, words, texts)


def _parse_copy(program: str, words: tuple[Word, ...], texts: list[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the sources of a copy whose content arrives, not they themselves: `folder/.`, or hidden files by a glob."""
    operands = [word for word in words if not word.prefix.startswith("-")]
    target_option = _option_value(texts, "-t", "--target-directory", default="") if program != "rsync" else ""
    target = target_option or (operands.pop().text if operands else "")
    if not target or _REMOTE.fullmatch(target):
        return
    is_recursive = program == "rsync" or any(map(_RECURSIVE.fullmatch, texts))
    replaces_target = any(map(_AS_TARGET.fullmatch, texts))
    for word in operands:
        last = word.text.rpartition("/")[2]
        if word.kind == "glob":
            if last.startswith("."):
                yield target, None
        elif is_recursive and (last in (".", "..") or (program == "rsync" and not last) or replaces_target):
            yield target, None if _REMOTE.fullmatch(word.text) or word.kind != "literal" else word.text


def _option_value(texts: list[str], *options: str, default: str = ".") -> str:
    """The last value of an option, behind it or joined to it."""
    value = default
    for index, text in enumerate(texts):
        for option in options:
            if text == option and index + 1 < len(texts):
                value = texts[index + 1]
            elif text.startswith(option) and text != option:
                value = text[len(option) :].removeprefix("=")
    return value
