"""Find the text that the model wants replaced: exactly, or with differences that cannot change which place is meant.

A tolerant match is restyled: new text gets the indentation, quotes and other typography of the place it goes to. For a text
that is not there, what is closest to it is described.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import cache, cached_property
from itertools import accumulate, islice, pairwise, zip_longest
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct

from wieldy.core.errors import ToolFailure
from wieldy.core.text import plural, truncate
from wieldy.files.editing.document import (
    Document,
    Span,
    Splice,
    SplitsCharacter,
    common_prefix,
    normalize_newlines,
    replace_span,
)

SINGLE_QUOTES = "‘’‚‛′´ʼ"
DOUBLE_QUOTES = "“”„‟″"
DASHES = "‐‑‒–—―−﹣"
SPACES = "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
INVISIBLE = "\u00ad\u200b\u200c\u200d\u2060\ufeff"
# Bytes that did not decode are shown to the model as replacement characters.
UNDECODED = "".join(map(chr, range(0xDC80, 0xDD00)))

PLAIN: dict[int, int] = {
    **{ord(char): ord("'") for char in SINGLE_QUOTES},
    **{ord(char): ord('"') for char in DOUBLE_QUOTES},
    **{ord(char): ord("-") for char in DASHES},
    **{ord(char): ord(" ") for char in SPACES},
    **{ord(char): 0xFFFD for char in UNDECODED},
    **{full: full - 0xFEE0 for full in range(0xFF01, 0xFF5F)},
    ord("。"): ord("."),
    ord("、"): ord(","),
}


class FoldedSegment(Struct, frozen=True):
    """A range whose length folding changes."""

    folded: int
    folded_length: int
    source: int
    source_length: int


class FoldedText(Struct, frozen=True):
    """A folded text, and where positions in it are in the source. Positions inside a range that was folded as one are None."""

    text: str
    segments: tuple[FoldedSegment, ...] = ()

    def source_start(self, position: int) -> int | None:
        """Where a range that begins here begins in the source."""
        index = bisect_right(self.segments, position, key=lambda segment: segment.folded) - 1
        if index < 0:
            return position
        segment = self.segments[index]
        if position == segment.folded and segment.folded_length:
            return segment.source
        return _source_after(segment, position)

    def source_end(self, position: int) -> int | None:
        """Where a range that ends here ends in the source."""
        index = bisect_left(self.segments, position, key=lambda segment: segment.folded)
        if index < len(self.segments) and self.segments[index].folded == position:
            return self.segments[index].source
        return _source_after(self.segments[index - 1], position) if index else position

    def folded_position(self, source: int) -> int | None:
        """Where a position of the source is in the folded text."""
        index = bisect_right(self.segments, source, key=lambda segment: segment.source) - 1
        if index < 0:
            return source
        segment = self.segments[index]
        if source == segment.source:
            return segment.folded
        rest = source - segment.source - segment.source_length
        return None if rest < 0 else segment.folded + segment.folded_length + rest


def fold(text: str) -> FoldedText:
    """Fold a text, keeping the positions in the source."""
    if text.isascii():
        return FoldedText(text)
    pieces: list[str] = []
    segments: list[FoldedSegment] = []
    source = folded = 0
    for match in _length_changes(unicodedata.is_normalized("NFC", text)).finditer(text):
        old = match.group()
        new = "..." if old == "…" else "" if old in INVISIBLE else unicodedata.normalize("NFC", old)
        if len(old) == len(new) == 1:
            continue
        pieces += (text[source : match.start()], new)
        folded += match.start() - source
        segments.append(FoldedSegment(folded, len(new), match.start(), len(old)))
        folded, source = folded + len(new), match.end()
    pieces.append(text[source:])
    return FoldedText("".join(pieces).translate(PLAIN), tuple(segments))


def fold_text(text: str) -> str:
    """The folded form of a text, without the positions in the source."""
    return text if text.isascii() else fold(text).text


def _source_after(segment: FoldedSegment, position: int) -> int | None:
    rest = position - segment.folded - segment.folded_length
    return None if rest < 0 else segment.source + segment.source_length + rest


@cache
def _length_changes(composed: bool) -> re.Pattern[str]:
    """Matches what folding may change in length; in composed (NFC) text there are no combining sequences to look for."""
    simple = f"…|[{INVISIBLE}]"
    if composed:
        return re.compile(simple)
    marks = "".join(char for char in map(chr, range(0x300, 0x1F000)) if unicodedata.combining(char))
    return re.compile(f"[^\n…{INVISIBLE}][{marks}]+|[\u1100-\u1112][\u1161-\u1175][\u11a8-\u11c2]?|{simple}")


TAB_WIDTHS = (4, 2, 8, 3)
# Beyond this many pairs of lines or characters two texts are not compared.
MAX_COMPARISONS = 1_000_000
BEFORE_OPENING_QUOTE = " \t\n([{<-—–/=" + SPACES


def indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


class IndentShift(Struct, frozen=True):
    """Turns an indentation as sent into the file's: convert tabs or spaces, then add or remove a part."""

    width: int = 0
    to_tabs: bool = False
    added: str = ""
    removed: str = ""

    def apply(self, line: str) -> str | None:
        """The line with the file's indentation; None where there is not enough indentation to take away."""
        indent = indent_of(line)
        rest = line[len(indent) :]
        if not rest:
            return line
        converted = self.convert(indent)
        if not converted.startswith(self.removed):
            return None
        return self.added + converted[len(self.removed) :] + rest

    def convert(self, indent: str) -> str:
        if not self.width:
            return indent
        if not self.to_tabs:
            return indent.expandtabs(self.width)
        columns = len(indent.expandtabs(self.width))
        return "\t" * (columns // self.width) + " " * (columns % self.width)

    @property
    def description(self) -> str:
        """What is different in the file."""
        if self.width:
            return f"{'tabs' if self.to_tabs else 'spaces'} instead of {'spaces' if self.to_tabs else 'tabs'}"
        return f"{_count(self.added)} more" if self.added else f"{_count(self.removed)} less"


def shift_between(sent: Sequence[str], file_lines: Sequence[str]) -> IndentShift | None:
    """The one shift that turns every line's indentation as sent into that of the file, if there is one."""
    pairs = [
        (indent_of(a), indent_of(b)) for a, b in zip(sent, file_lines, strict=True) if a.strip(" \t") and b.strip(" \t")
    ]
    if not pairs:
        return None
    candidates = [shift for shift in _candidates(pairs) if shift is not None]
    return min(candidates, key=lambda shift: len(shift.added) + len(shift.removed), default=None)


def _candidates(pairs: list[tuple[str, str]]) -> Iterable[IndentShift | None]:
    yield _offset(pairs, IndentShift())
    sent, in_file = "".join(a for a, _ in pairs), "".join(b for _, b in pairs)
    if "\t" not in sent and "\t" in in_file and " " not in in_file:
        for width in TAB_WIDTHS:
            if all(len(a) % width == 0 for a, _ in pairs):
                yield _offset(pairs, IndentShift(width, to_tabs=True))
    if "\t" in sent and " " not in sent and "\t" not in in_file:
        for width in TAB_WIDTHS:
            yield _offset(pairs, IndentShift(width))


def _offset(pairs: list[tuple[str, str]], base: IndentShift) -> IndentShift | None:
    converted = [(base.convert(a), b) for a, b in pairs]
    first, other = converted[0]
    if other.endswith(first):
        added = other[: len(other) - len(first)]
        return IndentShift(base.width, base.to_tabs, added) if all(b == added + a for a, b in converted) else None
    if first.endswith(other):
        removed = first[: len(first) - len(other)]
        fits = all(a == removed + b for a, b in converted)
        return IndentShift(base.width, base.to_tabs, removed=removed) if fits else None
    return None


def _count(indent: str) -> str:
    kind = "tab" if set(indent) == {"\t"} else "space" if set(indent) == {" "} else "character"
    return plural(len(indent), kind)


def restyle(old: str, file_text: str, new: str, shift: IndentShift | None = None) -> str | None:
    """`new` in the style of the file, given that `old` was sent for what the file has as `file_text`; the two correspond line
    by line. None where the shift cannot be applied to `new`."""
    old_lines, file_lines, new_lines = old.split("\n"), file_text.split("\n"), new.split("\n")
    # What follows a last line end is not a line but the beginning of the next one, which does not matter here.
    ended = old.endswith("\n") and file_text.endswith("\n")
    if ended:
        old_lines.pop(), file_lines.pop()
    last = new_lines.pop() if ended or not new_lines[-1] else None
    typography = _typography(old, file_text)
    lines: list[str | None] = []
    for tag, i, j, k, m in _opcodes(old_lines, new_lines):
        if tag == "equal":
            lines += file_lines[i:j]
            continue
        for n, line in enumerate(new_lines[k:m], start=i):
            corresponds = n < j and fold_text(old_lines[n]) == fold_text(file_lines[n])
            styled = _restyle_line(old_lines[n], file_lines[n], line, typography) if corresponds else line
            lines.append(styled if shift is None else shift.apply(styled))
    if last is not None:
        lines.append(shift.apply(last) if shift is not None and last else last)
    return None if None in lines else "\n".join(line for line in lines if line is not None)


def _opcodes(one: list[str] | str, other: list[str] | str) -> Sequence[tuple[str, int, int, int, int]]:
    if len(one) * len(other) > MAX_COMPARISONS:
        return [("replace", 0, len(one), 0, len(other))]
    return SequenceMatcher(None, one, other, autojunk=False).get_opcodes()


def _restyle_line(old: str, file_line: str, new: str, typography: Mapping[str, str]) -> str:
    """Unchanged parts of a line are taken from the file, new ones get its typography."""
    if old == file_line:
        return new
    old_folded, file_folded = fold(old), fold(file_line)
    composed = unicodedata.is_normalized("NFC", file_line) or not unicodedata.is_normalized("NFC", old)
    pieces: list[str] = []
    for tag, i, j, k, m in _opcodes(old, new):
        start, end = old_folded.folded_position(i), old_folded.folded_position(j)
        if tag == "equal" and start is not None and end is not None:
            first, last = file_folded.source_start(start), file_folded.source_end(end)
            if first is not None and last is not None:
                pieces.append(file_line[first:last])
                continue
        piece = "".join(_typeset(new, at, typography) for at in range(k, m))
        pieces.append(piece if composed else unicodedata.normalize("NFD", piece))
    return "".join(pieces)


def _typography(old: str, file_text: str) -> dict[str, str]:
    """For each plain character the one (or the pair of quotes) that the file always has in its place."""
    if file_text.isascii() or len(fold_text(old)) != len(fold_text(file_text)):
        return {}
    forms_of: defaultdict[str, set[str]] = defaultdict(set)
    for plain, form in _corresponding(old, file_text):
        forms_of[plain].add(form)
    typography: dict[str, str] = {}
    for plain, forms in forms_of.items():
        if plain in SPACES or plain in {" ", "\ufffd"} or plain in forms:
            continue
        if forms <= set(DOUBLE_QUOTES[:2]):
            typography[plain] = DOUBLE_QUOTES[:2]
        elif len(forms) == 1 or forms <= set(SINGLE_QUOTES[:2]):
            typography[plain] = "".join(sorted(forms))
    return typography


def _corresponding(old: str, file_text: str) -> Iterator[tuple[str, str]]:
    """Pairs of characters that folding maps one to one."""
    old_folded, file_folded = fold(old), fold(file_text)
    for position in range(len(old_folded.text)):
        i, j = old_folded.source_start(position), old_folded.source_end(position + 1)
        k, m = file_folded.source_start(position), file_folded.source_end(position + 1)
        if i is not None and k is not None and j == i + 1 and m == k + 1:
            yield old[i], file_text[k]


def _typeset(text: str, at: int, typography: Mapping[str, str]) -> str:
    forms = typography.get(text[at])
    if forms is None:
        return text[at]
    if len(forms) == 1:
        return forms
    return forms[0] if at == 0 or text[at - 1] in BEFORE_OPENING_QUOTE else forms[1]


# The longest lines sent are looked for, each with so many candidates.
ANCHORS = 4
CANDIDATES = 4
COMPARED_WIDTH = 200
COMPARED_LINES = 60
MAX_LINES = 14
MAX_WIDTH = 160
MIN_SCORE = 45.0
READ_AGAIN = "Read the file again and copy the text exactly."


def describe_closest(document: Document, old: str) -> str:
    """Describe the part of a document that is most like a text that is not in it."""
    old = document.normalize(old)
    sent = old.strip("\n").split("\n")[:COMPARED_LINES]
    lines = document.text.split("\n")
    start, score = _find_closest(sent, lines)
    if score < MIN_SCORE:
        return f"Nothing in it is much like it. {READ_AGAIN}"
    region = lines[start : start + len(sent)]
    first = start + 1
    where = f"line {first}" if len(region) == 1 else f"lines {first}-{first + len(region) - 1}"
    comparison = "\n".join(islice(_compare(sent, region), MAX_LINES))
    difference = _first_difference(sent, region, first) or _line_break_difference(old, lines, start, len(sent))
    return (
        f"The closest is at {where} ({score:.0f} % alike; - is old_string, + is the file):\n{comparison}\n"
        f"{difference or READ_AGAIN}"
    )


def _find_closest(sent: list[str], lines: list[str]) -> tuple[int, float]:
    """The line from which the file is most like what was sent, and how much, in percent."""
    from rapidfuzz import fuzz, process

    keys = [line.strip()[:COMPARED_WIDTH] for line in lines]
    sent_keys = [line.strip()[:COMPARED_WIDTH] for line in sent]
    longest = sorted((n for n, line in enumerate(sent_keys) if line), key=lambda n: -len(sent_keys[n]))[:ANCHORS]
    starts: dict[int, None] = {}
    for anchor in longest:
        candidates = process.extract(
            sent_keys[anchor], keys, scorer=fuzz.ratio, limit=CANDIDATES, score_cutoff=MIN_SCORE
        )
        starts.update(dict.fromkeys(max(0, index - anchor) for _, _, index in candidates))
    best, best_score = 0, 0.0
    for start in starts:
        pairs = zip_longest(sent_keys, keys[start : start + len(sent_keys)], fillvalue="")
        weighted = [(len(a) + 1, fuzz.ratio(a, b)) for a, b in pairs]
        score = sum(weight * ratio for weight, ratio in weighted) / sum(weight for weight, _ in weighted)
        if score > best_score:
            best, best_score = start, score
    return best, best_score


def _compare(sent: list[str], region: list[str]) -> Iterator[str]:
    for tag, i, j, k, m in SequenceMatcher(None, sent, region, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from (f"  {truncate(line, MAX_WIDTH)}" for line in region[k:m])
        else:
            yield from (f"- {truncate(line, MAX_WIDTH)}" for line in sent[i:j])
            yield from (f"+ {truncate(line, MAX_WIDTH)}" for line in region[k:m])


def _first_difference(sent: list[str], region: list[str], first: int) -> str:
    for number, (a, b) in enumerate(zip_longest(sent, region, fillvalue=None), start=first):
        if a == b:
            continue
        if a is None or b is None:
            return f"The {'file' if b is None else 'text sent'} ends there. {READ_AGAIN}"
        file_line = b.lstrip(" \t") if number == first and not a[:1].isspace() else b
        same = common_prefix(a, file_line)
        if same == len(a) and (a == file_line or number == first + len(sent) - 1):
            continue
        return (
            f"First difference, line {number}, after {plural(same, 'character')}: "
            f"old_string has {_describe(a, same)}, the file has {_describe(file_line, same)}."
        )
    return ""


def _line_break_difference(old: str, lines: list[str], start: int, count: int) -> str:
    """Compare the line breaks around the text sent with those around the lines that it equals."""
    above, below = (
        "".join(f"{line}\n" for line in lines[:start]),
        "".join(f"\n{line}" for line in lines[start + count :]),
    )
    sides = (
        ("before", len(old) - len(old.lstrip("\n")), len(above) - len(above.rstrip("\n"))),
        ("after", len(old) - len(old.rstrip("\n")), len(below) - len(below.lstrip("\n"))),
    )
    for side, sent, present in sides:
        if sent > present:
            return (
                f"The difference is in the line breaks {side} this text: old_string has {sent}, the file has {present}."
            )
    return ""


def _describe(line: str, at: int) -> str:
    if at >= len(line):
        return "the end of the line"
    char = line[at]
    run = len(line[at:]) - len(line[at:].lstrip(char))
    if char in " \t":
        kind = "tab" if char == "\t" else "space"
        return f"a {kind}" if run == 1 else f"{run} {kind}s"
    if "!" <= char <= "~":
        return f"`{char}`"
    name = unicodedata.name(char, "")
    printed = f"{char!r} " if char.isprintable() else ""
    return f"{printed}(U+{ord(char):04X}{' ' + name if name else ''})"


Tier: TypeAlias = Literal["exact", "typography", "trailing-space", "indentation"]
TIERS: tuple[Tier, ...] = get_args(Tier)
TIER_DIFFERENCES = {
    "typography": "quotes, dashes, spaces or Unicode forms written differently",
    "trailing-space": "different white space at line ends",
    "indentation": "a different indentation",
}
LARGEST_TOLERANT = 4_000_000
MAX_COUNTED = 10_000
MAX_LISTED = 12
_LINE_NUMBER = re.compile(r"^[ \t]*\d+(?:\t|→)")


NOT_FOUND = "the text to replace is not in the file"


class NotFound(ToolFailure):
    """The text is not in the file."""


class WrongCount(ToolFailure):
    """The text is in the file, but not as often as expected."""


class Replacement(Struct, frozen=True):
    """A request of the model: `old` becomes `new`, so many times or everywhere."""

    old: str
    new: str
    expected: int = 1
    everywhere: bool = False


class TextMatches(Struct, frozen=True):
    """The splices that carry out a replacement, where the old text was, and the tier that found it."""

    splices: tuple[Splice, ...]
    spans: tuple[Span, ...]
    tier: Tier
    note: str = ""


def parse_tolerance(setting: Any) -> tuple[Tier, ...]:
    """The tiers that the setting `edit.tolerance` allows: `all`, `exact`, or a list; exact matching is always on."""
    if setting in (None, "all"):
        return TIERS
    names = list(setting) if isinstance(setting, list | tuple) else [setting]
    unknown = [name for name in names if name not in TIERS]
    if unknown:
        raise ToolFailure(
            f'The setting edit.tolerance names {unknown[0]!r}; it can be "all", "exact" or a list of '
            f"{', '.join(TIERS[1:])}."
        )
    return tuple(tier for tier in TIERS if tier == "exact" or tier in names)


def find_text(document: Document, replacement: Replacement, tiers: Sequence[Tier] = TIERS) -> TextMatches:
    """The splices that carry out a replacement. Raises `NotFound` or `WrongCount`; never guesses."""
    document.codec.require(document.with_returns(replacement.new))
    old = document.normalize(replacement.old)
    try:
        spans = _find_exact(document, old, replacement)
        if spans:
            splices = tuple(replace_span(document, span, replacement.new) for span in spans)
            return TextMatches(splices, tuple(spans), "exact")
        _refuse_line_numbers(document, replacement)
        return _find_by_tiers(document, old, replacement, tiers)
    except SplitsCharacter:
        raise NotFound(
            "old_string begins or ends inside a character of the file.", "Include the whole character."
        ) from None


def _find_exact(document: Document, old: str, replacement: Replacement) -> list[Span]:
    spans = list(islice(document.find(old, overlapping=True), MAX_COUNTED))
    if not spans or (replacement.everywhere and replacement.expected == 1):
        return list(document.find(old)) if spans else []
    _require_count(document, spans, replacement)
    if len(spans) > 1 and any(one.end > other.start for one, other in pairwise(spans)):
        raise WrongCount("Places where old_string occurs overlap.", "Send a longer old_string that tells them apart.")
    return spans


def _find_by_tiers(document: Document, old: str, replacement: Replacement, tiers: Sequence[Tier]) -> TextMatches:
    if len(document.data) > LARGEST_TOLERANT:
        raise NotFound(
            "old_string was not found. The file is over 4 MB, so only exact matches are looked for.",
            "Read the part you want to change again.",
            person=NOT_FOUND,
        )
    for tier in tiers:
        matches = [] if tier == "exact" else find_tolerant(document, old, tier, tiers)
        if not matches:
            continue
        if tier == "typography" and replacement.everywhere and replacement.expected == 1:
            # It looks the same everywhere; looser matches must be asked for by their number.
            matches = _without_overlaps(matches)
        else:
            how = f" if one overlooks {TIER_DIFFERENCES[tier]}"
            _require_count(document, [match.span for match in matches], replacement, how)
        splices = [splice for match in matches if (splice := _splice_match(document, match, replacement.new))]
        if len(splices) == len(matches):
            spans = tuple(match.span for match in matches)
            return TextMatches(tuple(splices), spans, tier, _tolerance_note(document, tier, matches))
    raise NotFound(f"old_string was not found in the file. {describe_closest(document, old)}", person=NOT_FOUND)


class TolerantMatch(Struct, frozen=True):
    """Where a text was found but for some differences: its bytes, its form in the file and as sent, and the tiers that
    overlooked the differences. `at_end`: a final line end was sent where the file has none."""

    span: Span
    file_text: str
    sent_text: str
    overlooked: tuple[Tier, ...]
    shift: IndentShift | None = None
    at_end: bool = False


def find_tolerant(document: Document, old: str, tier: Tier, allowed: Sequence[Tier] = TIERS) -> list[TolerantMatch]:
    """Every place that is `old` but for what a tier overlooks and, if need be, what the stricter allowed tiers do."""
    if tier == "typography":
        return list(_find_folded(document, old))
    search = _LineSearch(document, old, tier, "trailing-space" in allowed)
    matches = list(search.matches(folding=False))
    if not matches and "typography" in allowed and not (document.text.isascii() and old.isascii()):
        matches = list(search.matches(folding=True))
    return matches


def _find_folded(document: Document, old: str) -> Iterator[TolerantMatch]:
    if document.text.isascii() and old.isascii():
        return
    folded, needle = fold(document.text), fold_text(old)
    at = folded.text.find(needle) if needle else -1
    while at >= 0:
        start, end = folded.source_start(at), folded.source_end(at + len(needle))
        if start is not None and end is not None:
            yield TolerantMatch(document.byte_span(start, end), document.text[start:end], old, ("typography",))
        at = folded.text.find(needle, at + 1)


class _LineSearch:
    """Finds whole lines, ignoring white space at their ends or their indentation."""

    def __init__(self, document: Document, old: str, tier: Tier, trailing: bool) -> None:
        self.document = document
        self.old = old
        self.tier = tier
        self.trailing = trailing
        self.lines = document.text.split("\n")
        self.sent = (old[:-1] if old.endswith("\n") else old).split("\n")

    def matches(self, *, folding: bool) -> Iterator[TolerantMatch]:
        """Every match, comparing lines as they are or folded."""
        if not any(line.strip() for line in self.sent):
            return
        overlooked: tuple[Tier, ...] = ("typography", self.tier) if folding else (self.tier,)
        lines = fold_text(self.document.text).split("\n") if folding else self.lines
        sent = [fold_text(line) for line in self.sent] if folding else self.sent
        if self.trailing:
            lines, sent = [line.rstrip(" \t") for line in lines], [line.rstrip(" \t") for line in sent]
        if self.tier == "trailing-space":
            candidates = self._by_trailing_space(sent, lines, within=not folding)
        else:
            candidates = self._by_indentation(
                [line.lstrip(" \t") for line in sent], [line.lstrip(" \t") for line in lines]
            )
        for index, offset, shift in candidates:
            match = self._match(index, offset, shift, overlooked)
            if self.trailing or not match.at_end:
                yield match

    def _by_trailing_space(
        self, sent: list[str], lines: list[str], *, within: bool
    ) -> Iterator[tuple[int, int, IndentShift | None]]:
        """The first line may begin within a line of the file, the others are whole."""
        first, rest = sent[0], sent[1:]
        for index in (at - 1 for at in _find_lines(rest, lines) if at) if rest else range(len(lines)):
            if lines[index] == first:
                yield index, 0, None
            elif within and first and lines[index].endswith(first):
                yield index, len(lines[index]) - len(first), None

    def _by_indentation(self, sent: list[str], lines: list[str]) -> Iterator[tuple[int, int, IndentShift | None]]:
        for index in _find_lines(sent, lines):
            shift = shift_between(self.sent, self.lines[index : index + len(sent)])
            if shift is not None and shift != IndentShift():
                yield index, 0, shift

    @cached_property
    def _starts(self) -> list[int]:
        return list(accumulate((len(line) + 1 for line in self.lines), initial=0))

    def _match(self, index: int, offset: int, shift: IndentShift | None, overlooked: tuple[Tier, ...]) -> TolerantMatch:
        text = self.document.text
        start, end = self._starts[index] + offset, self._starts[index + len(self.sent)]
        ends_line = self.old.endswith("\n")
        at_end = ends_line and end > len(text)
        if not ends_line or at_end:
            end -= 1
        sent = self.old[:-1] if at_end else self.old
        return TolerantMatch(self.document.byte_span(start, end), text[start:end], sent, overlooked, shift, at_end)


def _find_lines(needle: list[str], lines: list[str]) -> Iterator[int]:
    """Every index at which consecutive lines are those of `needle`."""
    if len(lines) >= sys.maxunicode:
        return
    # Each different line becomes one character, so that a search for lines is a search for a substring.
    ids: dict[str, str] = {}
    text = "".join([ids.setdefault(line, chr(len(ids) + 1)) for line in lines])
    pattern = "".join([ids.get(line, "\0") for line in needle])
    at = text.find(pattern)
    while at >= 0:
        yield at
        at = text.find(pattern, at + 1)


def _without_overlaps(matches: list[TolerantMatch]) -> list[TolerantMatch]:
    separate: list[TolerantMatch] = []
    for match in matches:
        if not separate or match.span.start >= separate[-1].span.end:
            separate.append(match)
    return separate


def _splice_match(document: Document, match: TolerantMatch, new: str) -> Splice | None:
    new = new.replace("\r\n", "\n")
    if match.at_end and new.endswith("\n"):
        new = new[:-1]
    styled = restyle(match.sent_text, match.file_text, new, match.shift)
    return None if styled is None else replace_span(document, match.span, styled)


def _tolerance_note(document: Document, tier: Tier, matches: list[TolerantMatch]) -> str:
    where = _list_lines([document.line_number(match.span.start) for match in matches])
    first = matches[0]
    differences = [TIER_DIFFERENCES[name] for name in first.overlooked]
    if first.shift is not None:
        differences[-1] = f"{differences[-1]} (the file has {first.shift.description})"
    if first.at_end and first.sent_text == first.file_text:
        differences[-1] = "the missing line end at the end of the file"
    style = "unchanged lines keep theirs" if tier == "trailing-space" else "new_string was given the file's style"
    return f"old_string matched only when overlooking {' and '.join(differences)} ({where}); {style}."


def _require_count(document: Document, spans: list[Span], replacement: Replacement, how: str = "") -> None:
    count, expected = len(spans), replacement.expected
    if count == expected:
        return
    where = _list_lines([document.line_number(span.start) for span in spans[: MAX_LISTED + 1]])
    times = "once" if count == 1 else f"at least {count} times" if count == MAX_COUNTED else f"{count} times"
    if expected != 1:
        raise WrongCount(
            f"old_string occurs {times}{how} ({where}), but expected_replacements is {expected}. Nothing was changed.",
            "Correct the number, or old_string.",
            person=f"the text to replace occurs {times}, {expected} were expected",
        )
    advice = "Add surrounding lines to old_string to name one place"
    every = f", or set expected_replacements to {count} to change all of them" if count < MAX_COUNTED else ""
    raise WrongCount(
        f"old_string occurs {times}{how} ({where}), not once. Nothing was changed.",
        f"{advice}{every}.",
        person=f"the text to replace occurs {times} ({where}), not once",
    )


def _list_lines(numbers: list[int]) -> str:
    listed = [str(number) for number in dict.fromkeys(numbers[:MAX_LISTED])]
    more = " …" if len(numbers) > MAX_LISTED else ""
    return f"line{'s' if len(listed) > 1 else ''} {', '.join(listed)}{more}"


def _refuse_line_numbers(document: Document, replacement: Replacement) -> None:
    cleaned = without_line_numbers(replacement.old)
    if cleaned is None:
        return
    reason = "old_string contains the line numbers of Read's output, which are not part of the file."
    count = len(list(islice(document.find(cleaned), MAX_COUNTED)))
    if count == 0 and len(document.data) <= LARGEST_TOLERANT:
        closest = describe_closest(document, cleaned)
        raise NotFound(f"{reason} Without them it was not found either. {closest}", person=NOT_FOUND)
    if count != 1:
        more = f" and with surrounding lines, for it occurs {count} times" if count else ""
        raise NotFound(reason, f"Send it without them{more}:\n{cleaned}", person=NOT_FOUND)
    new = without_line_numbers(replacement.new)
    with_new = f"\nnew_string:\n{new}" if new is not None else ""
    next_step = f"Without them it occurs exactly once; send\nold_string:\n{cleaned}{with_new}"
    raise NotFound(reason, next_step, person=NOT_FOUND)


def without_line_numbers(text: str) -> str | None:
    """A text without the line numbers before its lines; None where not every line has one."""
    lines = normalize_newlines(text).split("\n")
    last = lines.pop() if lines[-1] == "" and len(lines) > 1 else None
    if not all(_LINE_NUMBER.match(line) for line in lines):
        return None
    cleaned = "\n".join(_LINE_NUMBER.sub("", line, count=1) for line in lines)
    return cleaned if last is None else cleaned + "\n"
