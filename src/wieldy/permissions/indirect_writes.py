"""What comes into a folder without being named in the command: the content of another folder, or of an archive."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from wieldy.core.decision import Reason
from wieldy.core.effects import Reads, Writes
from wieldy.permissions.files import FilePolicy
from wieldy.permissions.findings import Finding

if TYPE_CHECKING:
    from wieldy.shell.policy.command_part import CommandPart
    from wieldy.shell.policy.words import Word


_EXTRACTS = re.compile(r"-?[A-Za-z]*x[A-Za-z]*|--extract|--get")
_LOOKS = re.compile(r"-[A-Za-z]*[ltpvZ][A-Za-z]*")
_RECURSIVE = re.compile(r"-[A-Za-z]*[rRa][A-Za-z]*|--recursive|--archive")
_AS_TARGET = re.compile(r"-[A-Za-z]*T[A-Za-z]*|--no-target-directory")
_ELSEWHERE = re.compile(r"[^/]*:.*")
FILLING = frozenset({"cp", "mv", "rsync", "tar", "bsdtar", "unzip", "7z", "7za", "7zz", "cpio"})


class Filling(Struct, frozen=True):
    """A folder and what it is filled from; without a source, nobody can tell what comes."""

    folder: str
    source: str | None = None


def possible(part: CommandPart) -> bool:
    """Whether anything could arrive: what reads nothing or writes nothing brings nothing along."""
    return len(part.effects) > 1 or part.program in FILLING


def named(part: CommandPart, files: FilePolicy) -> Iterator[Writes]:
    """What comes into being in a folder by the name it had elsewhere, as when a file is copied into it."""
    sources = [effect.path for effect in part.effects if isinstance(effect, Reads)]
    for effect in part.effects if sources else ():
        if isinstance(effect, Writes) and files.is_folder(effect.path):
            yield from (Writes(os.path.join(effect.path, os.path.basename(source))) for source in sources)
    for folder, source in _places(part) if part.program in FILLING else ():
        yield from (Writes(os.path.join(folder, name)) for name in _content(source) or ())


def untold(part: CommandPart, files: FilePolicy) -> Iterator[Finding]:
    """The question that is left where protected files may come into a folder that has some."""
    for folder, source in _places(part):
        if _content(source) is None and files.guards_something_in(folder):
            text = f"what comes into {folder} cannot be told, and protected files may be among it"
            yield Finding(Reason("guard", "ask", text, part=part.text))
            return


def _places(part: CommandPart) -> Iterator[tuple[str, str | None]]:
    for filling in _fillings(part):
        for cwd in part.cwds:
            source = None if filling.source is None else os.path.join(cwd, filling.source)
            yield os.path.normpath(os.path.join(cwd, filling.folder)), source


def _content(source: str | None) -> list[str] | None:
    """The names in a folder that is there."""
    try:
        return os.listdir(source) if source is not None else None
    except OSError:
        return None


def _fillings(part: CommandPart) -> Iterator[Filling]:
    words = part.argv[1:]
    texts = [word.text for word in words]
    match part.program:
        case "tar" | "bsdtar" if any(map(_EXTRACTS.fullmatch, texts[:1] + [t for t in texts if t[:1] == "-"])):
            yield Filling(_value(texts, "-C", "--directory"))
        case "unzip" if not any(map(_LOOKS.fullmatch, texts)):
            yield Filling(_value(texts, "-d"))
        case "7z" | "7za" | "7zz" if texts[:1] in (["x"], ["e"]):
            yield Filling(_value(texts, "-o"))
        case "cpio" if any(text[:2] == "-i" or text == "--extract" for text in texts):
            yield Filling(_value(texts, "-D", "--directory"))
        case "cp" | "mv" | "rsync":
            yield from _copied(part.program, words, texts)


def _copied(program: str, words: tuple[Word, ...], texts: list[str]) -> Iterator[Filling]:
    """The sources of a copy whose content arrives, not they themselves: a folder written with its dot, or hidden files."""
    operands = [word for word in words if not word.prefix.startswith("-")]
    given = _value(texts, "-t", "--target-directory", missing="") if program != "rsync" else ""
    target = given or (operands.pop().text if operands else "")
    if not target or _ELSEWHERE.fullmatch(target):
        return
    whole = program == "rsync" or any(map(_RECURSIVE.fullmatch, texts))
    for word in operands:
        last = word.text.rpartition("/")[2]
        if word.kind == "glob":
            if last.startswith("."):
                yield Filling(target)
        elif whole and (
            last in (".", "..") or (program == "rsync" and not last) or any(map(_AS_TARGET.fullmatch, texts))
        ):
            yield Filling(target, None if _ELSEWHERE.fullmatch(word.text) or not word.static else word.text)


def _value(texts: list[str], *options: str, missing: str = ".") -> str:
    """The last value of an option, behind it or joined to it."""
    found = missing
    for at, text in enumerate(texts):
        for option in options:
            if text == option and at + 1 < len(texts):
                found = texts[at + 1]
            elif text.startswith(option) and text != option:
                found = text[len(option) :].removeprefix("=")
    return found
