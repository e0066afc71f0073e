"""The path pattern inside `Read(…)` and `Edit(…)`: an anchor, then gitignore syntax."""

from __future__ import annotations

import os
import re
from functools import lru_cache

from wieldy.core.decision import Behavior
from wieldy.core.record import record
from wieldy.permissions.paths import key
from wieldy.schema.pattern import pattern

_MAGIC = pattern(r"(?<!\\)[*?\[]")
_SPECIAL = pattern(r"([\\*?\[\]!#])")


@record
class PathPattern:
    """Everything below `folder` whose path from there matches. With no `rest`, `folder` itself and all below it.

    `floating` patterns match a name at any depth below the folder.
    """

    folder: str
    rest: str
    floating: bool = False

    @property
    def literal(self) -> str | None:
        """The one path this pattern names, where it names just one."""
        return self.folder if not self.rest else None

    @property
    def plain_name(self) -> str | None:
        """The name a floating pattern looks for, where that is a plain one."""
        return _unescape(self.rest) if self.floating and not _MAGIC.search(self.rest) else None

    @property
    def needle(self) -> str:
        """The longest piece of text in every path that matches."""
        runs = re.split(r"\[[^\]]*\]?|[*?/]+", self.rest)
        return max((_unescape(run) for run in runs), key=len, default="")

    def matches_below(self, relative: str, fold: bool = False) -> bool:
        """Whether the path from the folder to a file, with no slash in front, matches."""
        if not self.rest:
            return True
        return _compiled(self.rest, self.floating, fold).fullmatch(relative) is not None


def resolve(specifier: str, behavior: Behavior, *, cwd: str, home: str, folder: str | None) -> PathPattern:
    """The pattern a specifier stands for: `//p` from the root, `~/p` from home, `/p` from its settings' folder, `p` from cwd."""
    specifier = key(specifier)
    if specifier.startswith("//"):
        return _anchored("/", specifier.lstrip("/"))
    if specifier == "~" or specifier.startswith("~/"):
        return _anchored(home, specifier[2:])
    if specifier.startswith("/"):
        return _anchored(folder or cwd, specifier[1:])
    here = specifier.startswith("./")
    pattern, start = specifier.removeprefix("./"), cwd
    while pattern == ".." or pattern.startswith("../"):
        start, pattern, here = os.path.dirname(start), pattern[3:], True
    name = pattern.removesuffix("/")
    if behavior != "allow" and name.endswith("/**") and "/" not in name[:-3]:
        # `dir/**` forbids at any depth and allows only where it stands.
        return PathPattern(start, name, floating=True)
    if name not in ("", ".", "**") and "/" not in name and not (here and behavior == "allow"):
        return PathPattern(start, name, floating=True)
    return _anchored(start, pattern)


def _anchored(start: str, pattern: str) -> PathPattern:
    segments = [segment for segment in pattern.split("/") if segment not in ("", ".")]
    if ".." not in segments and "\\" not in pattern and not _MAGIC.search(pattern):
        return PathPattern("/".join((start.rstrip("/"), *segments)) or "/", "")
    folder = start
    while segments and not _MAGIC.search(segments[0]):
        name = _unescape(segments.pop(0))
        folder = os.path.dirname(folder) if name == ".." else os.path.join(folder, name)
    return PathPattern(folder, "/".join(segments))


@lru_cache(maxsize=4096)
def _compiled(rest: str, floating: bool, fold: bool) -> re.Pattern[str]:
    segments = rest.split("/")
    return re.compile(
        _translate(["**", *segments] if floating else segments), re.DOTALL | (re.IGNORECASE if fold else 0)
    )


def _translate(segments: list[str]) -> str:
    """The runs of segments between `**`, each found as early as it can be and never given back, which keeps it linear."""
    runs: list[list[str]] = [[]]
    for segment in segments:
        if segment == "**":
            runs.append([])
        else:
            runs[-1].append(_segment(segment))
    open_end = not runs[-1]
    texts = ["/".join(run) for run in runs if run]
    if not texts:
        return ".+"
    anchored = bool(runs[0])
    out = [f"{texts[0]}" if anchored else _somewhere(texts[0]), *(f"/{_somewhere(text)}" for text in texts[1:])]
    # What matches a folder matches all that is in it.
    return "".join(out) + ("/.+" if open_end else "(?:/.*)?")


def _somewhere(run: str) -> str:
    return f"(?>(?:[^/]+/)*?{run}(?=/|\\Z))"


def _segment(segment: str) -> str:
    pieces = [""]
    position = 0
    while position < len(segment):
        letter = segment[position]
        position += 1
        if letter == "*":
            pieces.append("")
        elif letter == "?":
            pieces[-1] += "[^/]"
        elif letter == "[":
            text, position = _character_class(segment, position)
            pieces[-1] += text
        elif letter == "\\" and position < len(segment):
            pieces[-1] += re.escape(segment[position])
            position += 1
        else:
            pieces[-1] += re.escape(letter)
    if len(pieces) == 1:
        return pieces[0]
    # Between two stars the leftmost match is always good enough; never giving it back keeps the search linear.
    between = "".join(f"(?>[^/]*?{piece})" for piece in pieces[1:-1] if piece)
    return f"{pieces[0]}{between}[^/]*{pieces[-1]}"


def _character_class(segment: str, start: int) -> tuple[str, int]:
    negated = segment[start : start + 1] in ("!", "^")
    end = segment.find("]", start + negated + 1)
    if end < 0:
        return r"\[", start
    inner = segment[start + negated : end].replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^")
    inner = inner.replace("&&", "&\\&").replace("~~", "~\\~").replace("||", "|\\|").replace("--", "-\\-")
    try:
        re.compile(f"[{inner}]")
    except re.error:
        return r"(?!)", end + 1
    return f"(?!/)[{'^' if negated else ''}{inner}]", end + 1


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def escaped(path: str) -> str:
    """A path as a pattern that matches it alone."""
    return _SPECIAL.sub(r"\\\1", path)
