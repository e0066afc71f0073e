"""New text in the style of the place it goes to: what was only recognised keeps the file's form."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher

from msgspec import Struct

from wieldy.files.editing.folding import DOUBLE_QUOTES, SINGLE_QUOTES, SPACES, fold, plain

WIDTHS = (4, 2, 8, 3)


def indent_of(line: str) -> str:
    """The tabs and spaces a line begins with."""
    return line[: len(line) - len(line.lstrip(" \t"))]


class IndentShift(Struct, frozen=True):
    """Turns an indentation as sent into the file's: tabs and spaces converted, then a part added or taken away."""

    width: int = 0
    to_tabs: bool = False
    added: str = ""
    removed: str = ""

    def moved(self, line: str) -> str | None:
        """The line with the file's indentation; None where there is not enough indentation to take away."""
        indent = indent_of(line)
        rest = line[len(indent) :]
        if not rest:
            return line
        converted = self._converted(indent)
        if not converted.startswith(self.removed):
            return None
        return self.added + converted[len(self.removed) :] + rest

    def _converted(self, indent: str) -> str:
        if not self.width:
            return indent
        if not self.to_tabs:
            return indent.expandtabs(self.width)
        columns = len(indent.expandtabs(self.width))
        return "\t" * (columns // self.width) + " " * (columns % self.width)

    @property
    def words(self) -> str:
        """What was different, for the result."""
        if self.width:
            return f"{'tabs' if self.to_tabs else 'spaces'} instead of {'spaces' if self.to_tabs else 'tabs'}"
        return f"{_named(self.added)} more" if self.added else f"{_named(self.removed)} less"


def shift_between(sent: Sequence[str], found: Sequence[str]) -> IndentShift | None:
    """The one shift that turns every line's indentation as sent into the one found, if there is one."""
    pairs = [
        (indent_of(a), indent_of(b)) for a, b in zip(sent, found, strict=True) if a.strip(" \t") and b.strip(" \t")
    ]
    if not pairs:
        return None
    fitting = [shift for shift in _candidates(pairs) if shift is not None]
    return min(fitting, key=lambda shift: len(shift.added) + len(shift.removed), default=None)


def _candidates(pairs: list[tuple[str, str]]) -> Iterable[IndentShift | None]:
    yield _offset(pairs, IndentShift())
    sent, found = "".join(a for a, _ in pairs), "".join(b for _, b in pairs)
    if "\t" not in sent and "\t" in found and " " not in found:
        for width in WIDTHS:
            if all(len(a) % width == 0 for a, _ in pairs):
                yield _offset(pairs, IndentShift(width, to_tabs=True))
    if "\t" in sent and " " not in sent and "\t" not in found:
        for width in WIDTHS:
            yield _offset(pairs, IndentShift(width))


def _offset(pairs: list[tuple[str, str]], base: IndentShift) -> IndentShift | None:
    converted = [(base._converted(a), b) for a, b in pairs]
    first, other = converted[0]
    if other.endswith(first):
        added = other[: len(other) - len(first)]
        return IndentShift(base.width, base.to_tabs, added) if all(b == added + a for a, b in converted) else None
    if first.endswith(other):
        removed = first[: len(first) - len(other)]
        fits = all(a == removed + b for a, b in converted)
        return IndentShift(base.width, base.to_tabs, removed=removed) if fits else None
    return None


def _named(indent: str) -> str:
    kind = "tab" if set(indent) == {"\t"} else "space" if set(indent) == {" "} else "character"
    return f"{len(indent)} {kind}{'s' if len(indent) != 1 else ''}"


ALIGNED_AT_MOST = 1_000_000
OPENING_AFTER = " \t\n([{<-—–/=" + SPACES


def restyled(old: str, found: str, new: str, shift: IndentShift | None = None) -> str | None:
    """`new` as it should stand where `found` stood, given that the model called `found` `old`; line by line the two
    correspond. None where the shift cannot be applied to `new`."""
    sent, there, wanted = old.split("\n"), found.split("\n"), new.split("\n")
    # What follows a last line end is no line but the beginning of the next one, which is not looked at.
    ended = old.endswith("\n") and found.endswith("\n")
    if ended:
        sent.pop(), there.pop()
    last = wanted.pop() if ended or not wanted[-1] else None
    voice = _voice(old, found)
    lines: list[str | None] = []
    for tag, i, j, k, m in _opcodes(sent, wanted):
        if tag == "equal":
            lines += there[i:j]
            continue
        for n, line in enumerate(wanted[k:m], start=i):
            known = n < j and plain(sent[n]) == plain(there[n])
            styled = _line_in_style(sent[n], there[n], line, voice) if known else line
            lines.append(styled if shift is None else shift.moved(styled))
    if last is not None:
        lines.append(shift.moved(last) if shift is not None and last else last)
    return None if None in lines else "\n".join(line for line in lines if line is not None)


def _opcodes(one: list[str] | str, other: list[str] | str) -> Sequence[tuple[str, int, int, int, int]]:
    if len(one) * len(other) > ALIGNED_AT_MOST:
        return [("replace", 0, len(one), 0, len(other))]
    return SequenceMatcher(None, one, other, autojunk=False).get_opcodes()


def _line_in_style(sent: str, there: str, wanted: str, voice: Mapping[str, str]) -> str:
    if sent == there:
        return wanted
    sent_folded, there_folded = fold(sent), fold(there)
    composed = unicodedata.is_normalized("NFC", there) or not unicodedata.is_normalized("NFC", sent)
    pieces: list[str] = []
    for tag, i, j, k, m in _opcodes(sent, wanted):
        start, end = sent_folded.folded_place(i), sent_folded.folded_place(j)
        if tag == "equal" and start is not None and end is not None:
            first, last = there_folded.source_start(start), there_folded.source_end(end)
            if first is not None and last is not None:
                pieces.append(there[first:last])
                continue
        piece = "".join(_spoken(wanted, at, voice) for at in range(k, m))
        pieces.append(piece if composed else unicodedata.normalize("NFD", piece))
    return "".join(pieces)


def _voice(old: str, found: str) -> dict[str, str]:
    """For each plain character the one (or the pair of quotes) that always stands for it in the file."""
    if found.isascii() or len(fold(old).text) != len(fold(found).text):
        return {}
    used: defaultdict[str, set[str]] = defaultdict(set)
    for sent, there in _corresponding(old, found):
        used[sent].add(there)
    voice: dict[str, str] = {}
    for sent, forms in used.items():
        if sent in SPACES or sent in {" ", "\ufffd"} or sent in forms:
            continue
        if forms <= set(DOUBLE_QUOTES[:2]):
            voice[sent] = DOUBLE_QUOTES[:2]
        elif len(forms) == 1 or forms <= set(SINGLE_QUOTES[:2]):
            voice[sent] = "".join(sorted(forms))
    return voice


def _corresponding(old: str, found: str) -> Iterator[tuple[str, str]]:
    """Pairs of characters that folding maps one to one."""
    old_folded, found_folded = fold(old), fold(found)
    if not old_folded.segments and not found_folded.segments:
        yield from zip(old, found, strict=True)
        return
    for place in range(len(old_folded.text)):
        i, j = old_folded.source_start(place), old_folded.source_end(place + 1)
        k, m = found_folded.source_start(place), found_folded.source_end(place + 1)
        if i is not None and k is not None and j == i + 1 and m == k + 1:
            yield old[i], found[k]


def _spoken(text: str, at: int, voice: Mapping[str, str]) -> str:
    forms = voice.get(text[at])
    if forms is None:
        return text[at]
    if len(forms) == 1:
        return forms
    return forms[0] if at == 0 or text[at - 1] in OPENING_AFTER else forms[1]


_ENDED = re.compile(r"([^\r\n]*)(\r\n|\n|\r)")
ALIGNED_AT_MOST_ENDINGS = 1_000_000


def with_endings(new: str, old: str, neighbour: str) -> str:
    """`new`, with `\\n` ends, as it belongs in place of `old`, whose line ends are as in the file."""
    if "\n" not in new:
        return new
    lines = _ENDED.findall(old)
    kinds = {end for _, end in lines}
    if len(kinds) > 1:
        pieces = new.split("\n")
        ends = _kept_apart(pieces, _aligned([text for text, _ in lines], [end for _, end in lines], pieces[:-1]))
        return "".join(map("".join, zip(pieces, ends, strict=False))) + pieces[-1]
    end = kinds.pop() if kinds else neighbour
    return new if end == "\n" else new.replace("\n", end)


def _kept_apart(lines: list[str], ends: Iterable[str]) -> Iterator[str]:
    """The line ends, none of which makes one with the end of the line before: an empty line ends as that does."""
    last = ""
    for line, end in zip(lines, ends, strict=False):
        last = "\r" if not line and last == "\r" and end == "\n" else end
        yield last


def _aligned(old: list[str], ends: list[str], new: list[str]) -> Iterator[str]:
    """One line end for each new line: of the line it equals or stands for, else of the one before."""
    if len(old) * len(new) > ALIGNED_AT_MOST_ENDINGS:
        yield from (ends[min(i, len(ends) - 1)] for i in range(len(new)))
        return
    last = ends[0]
    for _, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        for n in range(m - k):
            if i + n < j:
                last = ends[i + n]
            yield last
