"""Gitignore-style path patterns: `*`, `?`, `[a-z]`, `**` and, where asked for, `{a,b}`, translated to regular expressions.

The expressions match in linear time: a run of segments between two `**`, and a piece between two `*`, takes its first match
and never backtracks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeAlias

# Tests a path relative to the folder a pattern belongs to.
PathTest: TypeAlias = Callable[[str], object]

MAX_ALTERNATIVES = 1_000
_WILDCARDS = frozenset("*?[{\\")
_ANY_WITH_SUFFIX = re.compile(r"\*\*/\*([\w.+-]+)")


class BadGlob(ValueError):
    """A pattern that cannot be read; the message says why."""


def compile_glob(glob: str) -> PathTest:
    """A test of whole relative paths. A pattern without a slash names files in any folder."""
    anchored = anchor_glob(glob)
    if match := _ANY_WITH_SUFFIX.fullmatch(anchored):
        suffix = match[1]
        return lambda path: path.endswith(suffix)
    return re.compile(translate_glob(anchored), re.DOTALL).fullmatch


def compile_globs(globs: Iterable[str]) -> PathTest | None:
    """A test that holds when one of the patterns matches; None when there are none."""
    tests = [compile_glob(glob) for glob in globs]
    if len(tests) < 2:
        return tests[0] if tests else None
    return lambda path: any(test(path) for test in tests)


def anchor_glob(glob: str) -> str:
    """The pattern with `**/` before a bare name; `/` or `./` in front anchors it at the top."""
    bare = glob
    while bare.startswith("./"):
        bare = bare[2:]
    if bare != glob or bare.startswith("/"):
        return bare.lstrip("/")
    return bare if "/" in bare.rstrip("/") else f"**/{bare}"


def split_globs(text: str) -> list[str]:
    """Split a list of patterns at commas and blanks, except in braces or after a backslash."""
    globs, current, depth, escaped = [], "", 0, False
    for char in text:
        if depth == 0 and not escaped and char in ", \t\n":
            globs.append(current)
            current = ""
            continue
        depth += (char == "{") - (char == "}") if not escaped else 0
        escaped = char == "\\" and not escaped
        current += char
    return [glob for glob in (*globs, current) if glob]


def literal_prefix(glob: str) -> tuple[str, str]:
    """The leading folders without wildcards, and the rest of the pattern."""
    parts = glob.split("/")
    count = 0
    while count < len(parts) - 1 and not _WILDCARDS & set(parts[count]):
        count += 1
    return "/".join(parts[:count]), "/".join(parts[count:])


def translate_glob(glob: str) -> str:
    """The regular expression of a pattern, for whole paths relative to where the pattern belongs. Raises `BadGlob`."""
    return "|".join(_join_segments(_split_segments(one), below=False) for one in _expand_braces(glob))


def translate_rule(pattern: str) -> str:
    """Like `translate_glob`, but the contents of a folder that matches also match, braces are literal, and so is what cannot
    be read: a rule always means something."""
    return _join_segments(
        [None if part == "**" else _segment(part, lenient=True) for part in pattern.split("/")], below=True
    )


def _join_segments(segments: list[str | None], *, below: bool) -> str:
    """Join translated segments; None stands for `**`."""
    runs: list[list[str]] = [[]]
    for segment in segments:
        if segment is None:
            runs.append([])
        else:
            runs[-1].append(segment)
    texts = ["/".join(run) for run in runs if run]
    if not texts:
        return ".+"
    open_end = not runs[-1]
    ending = "/.+" if open_end else "(?:/.*)?" if below else ""
    # A last run that must reach the end of the path is not the first one found, so it may backtrack.
    last = None if ending else len(texts) - 1
    out = ""
    for index, text in enumerate(texts):
        slash = "/" if index else ""
        if index == 0 and runs[0]:
            out += text
        elif index == last:
            out += f"{slash}(?:.*/)?{text}"
        else:
            out += f"{slash}(?>(?:[^/]+/)*?{text}(?=/|\\Z))"
    return out + ending


def _split_segments(glob: str) -> list[str | None]:
    """The translated segments of a pattern; a slash in a character class does not separate."""
    parts = [""]
    at = 0
    while at < len(glob):
        width = 1
        if glob[at] == "\\":
            if at + 1 == len(glob):
                raise BadGlob("a `\\` at the end escapes nothing; write `\\\\` for the character")
            width = 2
        elif glob[at] == "[":
            width = _class_end(glob, at) - at
        if glob[at : at + width] in ("/", "\\/"):
            parts.append("")
        else:
            parts[-1] += glob[at : at + width]
        at += width
    return [None if part == "**" else _segment(part) for part in parts]


def _segment(segment: str, *, lenient: bool = False) -> str:
    pieces = [""]
    at = 0
    while at < len(segment):
        char = segment[at]
        at += 1
        if char == "*":
            pieces.append("")
        elif char == "?":
            pieces[-1] += "[^/]"
        elif char == "[":
            end = _class_end(segment, at - 1, lenient=lenient)
            pieces[-1] += _character_class(segment[at : end - 1], lenient=lenient) if end > at else r"\["
            at = end
        elif char == "\\" and at < len(segment):
            pieces[-1] += re.escape(segment[at])
            at += 1
        else:
            pieces[-1] += re.escape(char)
    if len(pieces) == 1:
        return pieces[0]
    between = "".join(f"(?>[^/]*?{piece})" for piece in pieces[1:-1] if piece)
    return f"{pieces[0]}{between}[^/]*{pieces[-1]}"


def _class_end(glob: str, start: int, *, lenient: bool = False) -> int:
    """Where the character class that begins at `start` ends. A `]` right at its beginning is a member. An unclosed bracket
    is a character by itself if `lenient`."""
    negated = glob[start + 1 : start + 2] in ("!", "^")
    end = glob.find("]", start + 2 + negated)
    if end < 0 and not lenient:
        raise BadGlob("a `[` without its `]`; write `\\[` for the character")
    return end + 1 or start + 1


def _character_class(body: str, *, lenient: bool) -> str:
    """A class of a file glob may name the slash, as in ripgrep; one of a rule does not match it, as in git."""
    negated = body[:1] in ("!", "^")
    members = ""
    for part in re.findall(r".-.|.", body[negated:], re.DOTALL):
        if len(part) == 3 and part[0] > part[2]:
            if lenient:
                return "(?!)"
            raise BadGlob(f"the range `{part}` runs backwards")
        members += f"{re.escape(part[0])}-{re.escape(part[2])}" if len(part) == 3 else re.escape(part)
    no_slash = "(?!/)" if negated or lenient else ""
    return f"{no_slash}[{'^' if negated else ''}{members}]"


def _expand_braces(glob: str) -> list[str]:
    """The patterns without braces that a pattern stands for."""
    expanded, at = _alternatives(glob, 0, nested=False)
    if at < len(glob):
        raise BadGlob("a `}` without its `{`; write `\\}` for the character")
    return expanded


def _alternatives(glob: str, at: int, *, nested: bool) -> tuple[list[str], int]:
    """Expand up to the closing brace, or the end; in braces a comma separates."""
    closed: list[str] = []
    current = [""]
    while at < len(glob) and glob[at] != "}":
        if glob[at] == "{":
            inner, at = _alternatives(glob, at + 1, nested=True)
            if at == len(glob):
                raise BadGlob("a `{` without its `}`; write `\\{` for the character")
            at += 1
            current = [head + tail for head in current for tail in inner]
        elif glob[at] == "," and nested:
            closed, current, at = closed + current, [""], at + 1
        else:
            end = _class_end(glob, at) if glob[at] == "[" else at + 2 if glob[at] == "\\" else at + 1
            current, at = [head + glob[at:end] for head in current], min(end, len(glob))
        if len(closed) + len(current) > MAX_ALTERNATIVES:
            raise BadGlob(f"more than {MAX_ALTERNATIVES} alternatives in braces")
    return closed + current, at
