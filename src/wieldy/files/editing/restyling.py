"""Give new text the style of the place it goes to: the file's indentation, quotes and other typography."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher

from msgspec import Struct

from wieldy.files.editing.folding import DOUBLE_QUOTES, SINGLE_QUOTES, SPACES, fold, fold_text

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
    return f"{len(indent)} {kind}{'s' if len(indent) != 1 else ''}"


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
