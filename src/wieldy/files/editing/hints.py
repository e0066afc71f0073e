"""Describe what is closest to a text that was not found: the lines of the file, and the first difference."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import islice, zip_longest

from wieldy.core.truncate import truncate
from wieldy.files.editing.document import Document
from wieldy.files.editing.splicing import common_prefix

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
            f"First difference, line {number}, after {same} character{'s' if same != 1 else ''}: "
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
