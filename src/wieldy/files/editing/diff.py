"""What a change looks like: hunks of lines, as a unified diff for the model and as data for a screen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from io import StringIO
from typing import Any

from msgspec import Struct

from wieldy.files.editing.document import Document, Mark
from wieldy.files.editing.splicing import Splice

CONTEXT = 5
# Beyond this many pairs of lines a stretch is shown as wholly replaced instead of being compared.
COMPARED_AT_MOST = 4_000_000
SHOWN_LINES = 150
MOST_HUNKS = 500
MOST_SPLICES = 2_000
SHOWN_WIDTH = 300


class Hunk(Struct, frozen=True):
    """Lines around one change: each begins with a space, `-` or `+`; a last line without line end is followed by `\\`."""

    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    lines: tuple[str, ...]

    def as_data(self) -> dict[str, Any]:
        """This hunk as the structured patch carries it."""
        return {
            "oldStart": self.old_start,
            "oldLines": self.old_lines,
            "newStart": self.new_start,
            "newLines": self.new_lines,
            "lines": list(self.lines),
        }

    def __str__(self) -> str:
        old, new = _range(self.old_start, self.old_lines), _range(self.new_start, self.new_lines)
        return "\n".join((f"@@ -{old} +{new} @@", *map(_cut, self.lines)))


class Patch(Struct, frozen=True):
    """The hunks of one file, and how many lines came and went; `cut` where there are more than could be of use. `mark` is
    a line before them all."""

    hunks: tuple[Hunk, ...]
    cut: bool = False
    mark: Mark | None = None

    @property
    def added(self) -> int:
        """How many lines came."""
        return self._marked("+")

    @property
    def removed(self) -> int:
        """How many lines went."""
        return self._marked("-")

    def _marked(self, mark: str) -> int:
        return len([1 for hunk in self.hunks for line in hunk.lines if line[0] == mark])

    def snippet(self) -> str:
        """The changed lines as they are now, with their numbers and the lines around them."""
        shown: list[str] = []
        for hunk in self.hunks:
            shown += ("…",) if shown else ()
            kept = [line[1:] for line in hunk.lines if line[0] in " +"]
            shown += [f"{number}\t{_cut(line)}" for number, line in enumerate(kept, start=hunk.new_start)]
        return "\n".join(shown if len(shown) <= SHOWN_LINES else (*shown[:SHOWN_LINES], "…"))

    def unified(self, name: str, *, created: bool = False) -> str:
        """A unified diff, cut after some hundred lines."""
        lines = "\n".join(map(str, self.hunks)).split("\n")
        if len(lines) > SHOWN_LINES:
            lines = [*lines[:SHOWN_LINES], f"… {len(lines) - SHOWN_LINES} more lines of the diff"]
        return "\n".join((f"--- {'/dev/null' if created else name}", f"+++ {name}", *lines))


def patch(before: Document, splices: Sequence[Splice]) -> Patch:
    """The hunks that ascending splices come to, found without comparing the whole file."""
    hunks: list[Hunk] = []
    shift, first, mark = 0, None, None
    for group in _groups(before, splices[:MOST_SPLICES]):
        if len(hunks) >= MOST_HUNKS:
            return Patch(tuple(hunks), True, first)
        window = _Window(before, group)
        # Counted from the last window on, so that many changes cost no more than one.
        mark = Mark(window.begin, before.line_number(window.begin, mark))
        first = first or mark
        hunks += window.hunks(mark.line, shift)
        shift += window.growth
    return Patch(tuple(hunks), len(splices) > MOST_SPLICES, first)


def _groups(document: Document, splices: Sequence[Splice]) -> Iterable[list[Splice]]:
    """Splices whose context would touch, together."""
    group: list[Splice] = []
    for splice in splices:
        if group and splice.start > document.line_end(group[-1].end, 2 * CONTEXT + 1):
            yield group
            group = []
        group.append(splice)
    if group:
        yield group


class _Window:
    """The lines around a group of splices, before and after."""

    def __init__(self, document: Document, splices: list[Splice]) -> None:
        self.begin = begin = document.line_start(splices[0].start, CONTEXT)
        end = document.line_end(splices[-1].end, CONTEXT)
        pieces, at = [], begin
        for splice in splices:
            pieces += [document.data[at : splice.start], splice.new]
            at = splice.end
        pieces.append(document.data[at:end])
        self.old = _lines(document.codec.decode(document.data[begin:end]))
        self.new = _lines(document.codec.decode(b"".join(pieces)))
        self.growth = len(self.new) - len(self.old)

    def hunks(self, line: int, shift: int) -> Iterable[Hunk]:
        """The hunks of a window that begins at a line of the old file, in a new one that is so many lines longer."""
        for group in _grouped(_opcodes(self.old, self.new)):
            _, i, _, k, _ = group[0]
            _, _, j, _, m = group[-1]
            lines: list[str] = []
            for tag, a, b, c, d in group:
                if tag == "equal":
                    lines += _marked(" ", self.old[a:b])
                else:
                    lines += (*_marked("-", self.old[a:b]), *_marked("+", self.new[c:d]))
            start = line + i - (i == j)
            yield Hunk(start, j - i, line + k + shift - (k == m), m - k, tuple(lines))


def _opcodes(old: list[str], new: list[str]) -> list[tuple[str, int, int, int, int]]:
    head, tail, shortest = 0, 0, min(len(old), len(new))
    while head < shortest and old[head] == new[head]:
        head += 1
    while tail < shortest - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    i, k = len(old) - tail, len(new) - tail
    codes: list[tuple[str, int, int, int, int]] = [("equal", 0, head, 0, head)] if head else []
    if (i - head) * (k - head) > COMPARED_AT_MOST:
        codes.append(("replace", head, i, head, k))
    elif i > head or k > head:
        codes += _compared(old[head:i], new[head:k], head)
    return [*codes, ("equal", i, len(old), k, len(new))] if tail else codes


def _compared(old: list[str], new: list[str], shift: int) -> list[tuple[str, int, int, int, int]]:
    """How lines become others, of which neither the first nor the last are the same; places are given shifted."""
    if set(old).isdisjoint(new):
        tag = "replace" if old and new else "delete" if old else "insert"
        return [(tag, shift, shift + len(old), shift, shift + len(new))]
    codes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [(tag, a + shift, b + shift, c + shift, d + shift) for tag, a, b, c, d in codes]


def _grouped(codes: list[tuple[str, int, int, int, int]]) -> Iterable[list[tuple[str, int, int, int, int]]]:
    """Runs of changes with their context, apart where more than twice the context lies between."""
    group: list[tuple[str, int, int, int, int]] = []
    for index, (tag, i, j, k, m) in enumerate(codes):
        if tag != "equal":
            group.append((tag, i, j, k, m))
            continue
        first, last = index == 0, index == len(codes) - 1
        if not first and (last or j - i > 2 * CONTEXT):
            kept = min(CONTEXT, j - i)
            group.append((tag, i, i + kept, k, k + kept))
            yield group
            group = []
        if not last and (first or j - i > 2 * CONTEXT):
            start = max(i, j - CONTEXT)
            group = [(tag, start, j, k + start - i, m)]
        elif not first and not last:
            group.append((tag, i, j, k, m))
    if any(code[0] != "equal" for code in group):
        yield group


def _lines(text: str) -> list[str]:
    """Lines with their line ends, which count when lines are compared."""
    return list(StringIO(text, newline=""))


def _marked(mark: str, lines: list[str]) -> list[str]:
    marked: list[str] = []
    for line in lines:
        bare = line.rstrip("\r\n")
        marked.append(mark + bare)
        if bare == line:
            marked.append("\\ No newline at end of file")
    return marked


def _range(start: int, lines: int) -> str:
    return f"{start}" if lines == 1 else f"{start},{lines}"


def _cut(line: str) -> str:
    return line if len(line) <= SHOWN_WIDTH else f"{line[:SHOWN_WIDTH]}… ({len(line)} characters)"
