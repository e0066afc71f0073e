"""Brace expansion: `a{b,c}` and `{1..3}`."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Literal, TypeAlias

from wieldy.schema.pattern import pattern

How: TypeAlias = Literal["bare", "quoted", "one", "many", "scoped"]
Atom: TypeAlias = tuple[str, How]
MAX_FIELDS = 64
MAX_OPENED = 16
_RANGE = pattern(r"(-?\d{1,6})\.\.(-?\d{1,6})(?:\.\.(-?\d{1,6}))?|([A-Za-z])\.\.([A-Za-z])")


def expand_braces(atoms: list[Atom]) -> list[list[Atom]] | None:
    """The fields that these atoms become; None when there would be too many to look at."""
    opened = atoms.count(("{", "bare"))
    if not opened or ("}", "bare") not in atoms:
        return [atoms]
    if opened > MAX_OPENED:
        return None
    for start, atom in enumerate(atoms):
        if atom == ("{", "bare") and (found := _alternatives(atoms, start)):
            return _join(atoms[:start], *found)
    return [atoms]


def _join(front: list[Atom], choices: list[list[Atom]], behind: list[Atom]) -> list[list[Atom]] | None:
    tails = expand_braces(behind)
    if tails is None:
        return None
    fields: list[list[Atom]] = []
    for choice in choices:
        middles = expand_braces(choice)
        if middles is None:
            return None
        fields.extend(front + middle + tail for middle in middles for tail in tails)
        if len(fields) > MAX_FIELDS:
            return None
    return fields


def _alternatives(atoms: list[Atom], start: int) -> tuple[list[list[Atom]], list[Atom]] | None:
    depth, commas = 0, []
    for index in range(start, len(atoms)):
        value, how = atoms[index]
        if how != "bare":
            continue
        if value == "{":
            depth += 1
        elif value == "," and depth == 1:
            commas.append(index)
        elif value == "}":
            depth -= 1
            if depth == 0:
                inside = atoms[start + 1 : index]
                if commas:
                    edges = [start, *commas, index]
                    choices = [atoms[a + 1 : b] for a, b in pairwise(edges)]
                    return choices, atoms[index + 1 :]
                choices = _range(inside)
                return (choices, atoms[index + 1 :]) if choices else None
    return None


def _range(inside: list[Atom]) -> list[list[Atom]]:
    if any(how != "bare" for _, how in inside):
        return []
    found = _RANGE.fullmatch("".join(value for value, _ in inside))
    if found is None:
        return []
    if found.group(4):
        first, last, step = ord(found.group(4)), ord(found.group(5)), 1
    else:
        first, last, step = int(found.group(1)), int(found.group(2)), abs(int(found.group(3) or 1)) or 1
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    width = max(len(end) for end in found.group(1, 2) if end) if _padded(found) else 0
    if found.group(4):
        return [[(chr(number), "quoted")] for number in numbers[: MAX_FIELDS + 1]]
    return [[(str(number).zfill(width), "quoted")] for number in numbers[: MAX_FIELDS + 1]]


def _padded(found: re.Match[str]) -> bool:
    return any(end and re.match(r"-?0\d", end) for end in found.group(1, 2))
