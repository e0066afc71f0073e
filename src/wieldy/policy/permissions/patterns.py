"""What the specifiers of permission rules match: commands, paths (as gitignore patterns) and domains, all in linear time."""

from __future__ import annotations

import os
import re
from functools import lru_cache

from wieldy.core.decision import Behavior
from wieldy.files.search.patterns import translate_rule
from wieldy.policy.permissions.paths import is_below, path_key

_UNESCAPED_STAR = re.compile(r"(?<!\\)\*")
_GLOB_CHARACTER = re.compile(r"(?<!\\)[*?\[]")
_SPECIAL_CHARACTER = re.compile(r"([\\*?\[\]!#])")
_WORD_ENDS = " \t\n"


class CommandPattern:
    """A command specifier. `\\*` is an asterisk, `*` any text, a last `:*` or ` *` any further words."""

    __slots__ = ("_is_open", "_pieces", "literal", "program")

    def __init__(self, specifier: str) -> None:
        is_open = specifier.endswith((":*", " *"))
        pieces = _split_at_stars((specifier[:-2] if is_open else specifier).strip(" "))
        # The one command that a specifier without any pattern names.
        self.literal = pieces[0] if len(pieces) == 1 and not is_open else None
        # The first word, unless it is empty or continues with a `*`.
        word = re.split(r"[ \t]", pieces[0], maxsplit=1)[0]
        is_cut = len(pieces) > 1 and len(word) == len(pieces[0])
        self.program = None if is_cut or not word else word
        self._pieces, self._is_open = pieces, is_open

    def matches(self, command: str) -> bool:
        """Return whether the pattern covers the whole command text."""
        return _matches(self._pieces, command, self._is_open)


@lru_cache(maxsize=4096)
def compile_command(specifier: str) -> CommandPattern:
    return CommandPattern(specifier)


def wildcard(pattern: str, text: str) -> bool:
    """Return whether a text matches a pattern in which `*` is any text and `\\*` an asterisk."""
    return _matches(_split_at_stars(pattern), text)


def escape_command(command: str) -> str:
    """Return the specifier that matches exactly this command."""
    return command.replace("*", r"\*")


def _split_at_stars(pattern: str) -> tuple[str, ...]:
    return tuple(piece.replace(r"\*", "*") for piece in _UNESCAPED_STAR.split(pattern))


def _matches(pieces: tuple[str, ...], text: str, is_open: bool = False) -> bool:
    """Whether a text has the pieces in order, the first at its beginning, the last at its end, or if `is_open` that of a word.

    Each is taken at its first place: no pattern takes long, and none is compiled, which costs more than to look for it.
    """
    first, *others = pieces
    if not text.startswith(first):
        return False
    at = len(first)
    for piece in others[:-1]:
        at = text.find(piece, at) + len(piece)
        if at < len(piece):
            return False
    if not others:
        return at == len(text) or (is_open and text[at] in _WORD_ENDS)
    last = others[-1]
    if at + len(last) <= len(text) and text.endswith(last):
        return True
    return is_open and any(text.find(last + end, at) >= 0 for end in _WORD_ENDS)


class PathPattern:
    """Matches what is below `folder` and fits the gitignore pattern `rest`; without `rest`, the folder and all below it.

    A `floating` pattern matches at any depth.
    """

    __slots__ = ("floating", "folder", "plain_name", "rest")

    def __init__(self, folder: str, rest: str, floating: bool = False) -> None:
        self.folder = folder
        self.rest = rest
        self.floating = floating
        # The file name that a floating pattern without wildcards looks for.
        self.plain_name = _unescape(rest) if floating and not _GLOB_CHARACTER.search(rest) else None

    @property
    def literal(self) -> str | None:
        """The path of a pattern that names just one."""
        return self.folder if not self.rest else None

    @property
    def named(self) -> str | None:
        """The path below which all is covered, if the pattern names one; of those at any depth, the one right in `folder`."""
        head = self.rest.removesuffix("**").removesuffix("/")
        if _GLOB_CHARACTER.search(head) or (self.rest not in ("", "**") and not self.floating):
            return None
        return os.path.join(self.folder, _unescape(head)) if head else self.folder

    def matches(self, path: str, folds_case: bool = False) -> bool:
        """Return whether the pattern covers an absolute path, given as `path_key` spells it."""
        if not is_below(path, self.folder, folds_case):
            return False
        if not self.rest:
            return True
        relative = path[len(path_key(self.folder, folds_case)) :].lstrip("/")
        if self.plain_name is not None:
            return path_key(self.plain_name, folds_case) in relative.split("/")
        return bool(relative) and _compile_path(self.rest, self.floating, folds_case).fullmatch(relative) is not None


@lru_cache(maxsize=4096)
def resolve_path_pattern(
    specifier: str, behavior: Behavior, *, cwd: str, home: str, settings_folder: str | None
) -> PathPattern:
    """Resolve `//p` from the root, `~/p` from home, `/p` from the folder of its settings, and `p` from cwd."""
    specifier = path_key(specifier)
    if specifier.startswith("//"):
        return _anchored("/", specifier.lstrip("/"))
    if specifier == "~" or specifier.startswith("~/"):
        return _anchored(home, specifier[2:])
    if specifier.startswith("/"):
        return _anchored(settings_folder or cwd, specifier[1:])
    is_anchored = specifier.startswith("./")
    rest, start = specifier.removeprefix("./"), cwd
    while rest == ".." or rest.startswith("../"):
        start, rest, is_anchored = os.path.dirname(start), rest[3:], True
    name = rest.removesuffix("/")
    if behavior != "allow" and name.endswith("/**") and "/" not in name[:-3]:
        # `dir/**` forbids at any depth, and allows only directly below cwd.
        return PathPattern(start, name, floating=True)
    if name not in ("", ".", "**") and "/" not in name and not (is_anchored and behavior == "allow"):
        return PathPattern(start, name, floating=True)
    return _anchored(start, rest)


def escape_path(path: str) -> str:
    """Return the pattern that matches this path alone."""
    return _SPECIAL_CHARACTER.sub(r"\\\1", path)


def _anchored(start: str, pattern: str) -> PathPattern:
    """Move the leading segments without wildcards into the folder."""
    folder = start
    segments = [segment for segment in pattern.split("/") if segment not in ("", ".")]
    while segments and not _GLOB_CHARACTER.search(segments[0]):
        name = _unescape(segments.pop(0))
        folder = os.path.dirname(folder) if name == ".." else os.path.join(folder, name)
    return PathPattern(folder, "/".join(segments))


@lru_cache(maxsize=4096)
def _compile_path(rest: str, floating: bool, folds_case: bool) -> re.Pattern[str]:
    return re.compile(
        translate_rule(f"**/{rest}" if floating else rest), re.DOTALL | (re.IGNORECASE if folds_case else 0)
    )


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


@lru_cache(maxsize=256)
def host_of(url: str) -> str | None:
    """Return the host of a URL in lower case, as ASCII, without a final dot; None where there is none."""
    from urllib.parse import urlsplit

    if any(letter <= " " or letter == "\\" for letter in url.strip()):
        return None
    try:
        host = urlsplit(url.strip() if "//" in url else f"//{url.strip()}").hostname
        return host.rstrip(".").encode("idna").decode().lower() or None if host else None
    except ValueError:
        return None


def domain_matches(specifier: str, host: str) -> bool:
    """Return whether `domain:…` covers a host: `*.h` any depth of sub-domain but not `h`, any other `*` within one label."""
    try:
        pattern = _domain_labels(specifier)
    except UnicodeError:
        return False
    labels = host.split(".")
    if pattern[0] == "*" and len(pattern) > 1:
        pattern = pattern[1:]
        if len(labels) <= len(pattern):
            return False
        labels = labels[-len(pattern) :]
    return len(labels) == len(pattern) and all(map(wildcard, pattern, labels))


@lru_cache(maxsize=1024)
def _domain_labels(specifier: str) -> tuple[str, ...]:
    text = specifier.removeprefix("domain:").strip().rstrip(".").lower()
    if text.isascii():
        return tuple(text.split("."))
    return tuple(label if "*" in label else label.encode("idna").decode() for label in text.split("."))
