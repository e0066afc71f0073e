"""What a text that was not found may have been meant to be: the closest lines of the file, and the first difference."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import islice, zip_longest

from wieldy.core.truncate import truncate
from wieldy.files.editing.document import Document, unix
from wieldy.files.editing.splicing import common_prefix

ANCHORS = 4
RIVALS = 4
COMPARED_WIDTH = 200
COMPARED_LINES = 60
SHOWN_LINES = 14
SHOWN_WIDTH = 160
ALIKE = 45.0
READ_AGAIN = "Read the file again and copy the text exactly."


def closest(document: Document, old: str) -> str:
    """Words on the part of a document that is most like a text that is not in it."""
    sent = unix(old).strip("\n").split("\n")[:COMPARED_LINES]
    lines = document.text.split("\n")
    start, likeness = _nearest(sent, lines)
    if likeness < ALIKE:
        return f"Nothing in it is much like it. {READ_AGAIN}"
    region = lines[start : start + len(sent)]
    first = start + 1
    where = f"line {first}" if len(region) == 1 else f"lines {first}-{first + len(region) - 1}"
    shown = "\n".join(islice(_compared(sent, region), SHOWN_LINES))
    return (
        f"The closest is at {where} ({likeness:.0f} % alike; - is old_string, + is the file):\n{shown}\n"
        f"{_first_difference(sent, region, first)}"
    )


def _nearest(sent: list[str], lines: list[str]) -> tuple[int, float]:
    """The line from which the file is most like what was sent, and how much, in percent."""
    from rapidfuzz import fuzz, process

    keys = [line.strip()[:COMPARED_WIDTH] for line in lines]
    wanted = [line.strip()[:COMPARED_WIDTH] for line in sent]
    longest = sorted((n for n, line in enumerate(wanted) if line), key=lambda n: -len(wanted[n]))[:ANCHORS]
    starts: dict[int, None] = {}
    for anchor_glob in longest:
        rivals = process.extract(wanted[anchor_glob], keys, scorer=fuzz.ratio, limit=RIVALS, score_cutoff=ALIKE)
        starts.update(dict.fromkeys(max(0, index - anchor_glob) for _, _, index in rivals))
    best, likeness = 0, 0.0
    for start in starts:
        pairs = zip_longest(wanted, keys[start : start + len(wanted)], fillvalue="")
        weighed = [(len(a) + 1, fuzz.ratio(a, b)) for a, b in pairs]
        score = sum(weight * ratio for weight, ratio in weighed) / sum(weight for weight, _ in weighed)
        if score > likeness:
            best, likeness = start, score
    return best, likeness


def _compared(sent: list[str], region: list[str]) -> Iterator[str]:
    for tag, i, j, k, m in SequenceMatcher(None, sent, region, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from (f"  {truncate(line, SHOWN_WIDTH)}" for line in region[k:m])
        else:
            yield from (f"- {truncate(line, SHOWN_WIDTH)}" for line in sent[i:j])
            yield from (f"+ {truncate(line, SHOWN_WIDTH)}" for line in region[k:m])


def _first_difference(sent: list[str], region: list[str], first: int) -> str:
    for number, (a, b) in enumerate(zip_longest(sent, region, fillvalue=None), start=first):
        if a == b:
            continue
        if a is None or b is None:
            return f"The {'file' if b is None else 'text sent'} ends there. {READ_AGAIN}"
        there = b.lstrip(" \t") if number == first and not a[:1].isspace() else b
        same = common_prefix(a, there)
        if same == len(a) and number == first + len(sent) - 1:
            continue
        return (
            f"First difference, line {number}, after {same} character{'s' if same != 1 else ''}: "
            f"old_string has {_named(a, same)}, the file has {_named(there, same)}."
        )
    return READ_AGAIN


def _named(line: str, at: int) -> str:
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
    shown = f"{char!r} " if char.isprintable() else ""
    return f"{shown}(U+{ord(char):04X}{' ' + name if name else ''})"
