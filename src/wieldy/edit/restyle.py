"""New text in the style of the place it goes to: what was only recognised keeps the file's form."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher

from wieldy.edit.fold import DOUBLE_QUOTES, SINGLE_QUOTES, SPACES, fold, plain
from wieldy.edit.indent import Shift

ALIGNED_AT_MOST = 1_000_000
OPENING_AFTER = " \t\n([{<-—–/=" + SPACES


def restyled(old: str, found: str, new: str, shift: Shift | None = None) -> str | None:
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
