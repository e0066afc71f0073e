"""Cells written out in the hand of their notebook: a new one, one of another type, or only a source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from wieldy.notebook.cells import Sheet
from wieldy.notebook.scan import Member, items

CellType: TypeAlias = Literal["code", "markdown", "raw"]

# What only cells of some types may have.
OWN: Mapping[str, tuple[str, ...]] = {
    "code": ("execution_count", "outputs"),
    "markdown": ("attachments",),
    "raw": ("attachments",),
}
# What a cell must have besides its type and source, and how it is written when there is nothing in it.
BLANK = {"metadata": "{}", "execution_count": "null", "outputs": "[]"}


def new_cell(sheet: Sheet, index: int, kind: CellType, source: str, id: str | None) -> str:
    """A cell that becomes number `index`, like those around it in everything that was not said."""
    layout, placed = sheet.layout, sheet.placed
    near: Mapping[str, Any] = placed[max(0, index - 1)].value if placed else {}
    values = {"cell_type": layout.string(kind), **_blanks(kind)}
    as_string = isinstance(near.get("source"), str)
    values["source"] = layout.string(source) if as_string else layout.array(list(map(layout.string, lines_of(source))))
    if id is not None:
        values["id"] = layout.string(id)
    like = next((cell.value for cell in placed if cell.value.get("cell_type") == kind), near)
    return layout.object(layout.named(name, values[name]) for name in _ordered(values, like))


def retyped_cell(sheet: Sheet, index: int, kind: CellType, source: str) -> str:
    """A cell that becomes one of another type: what that may not have goes, what it must have comes."""
    layout, members = sheet.layout, sheet.of_cell(index)
    foreign = {name for names in OWN.values() for name in names} - set(OWN[kind])
    written = {name: layout.named(name, value) for name, value in _blanks(kind).items()}
    written |= {m.name: sheet.text[m.start : m.value.end] for m in members if m.name not in foreign}
    written["cell_type"] = layout.named("cell_type", layout.string(kind))
    written["source"] = layout.named("source", new_source(sheet, source, source_of(members)))
    return layout.object(written[name] for name in _ordered(written, sheet.placed[index].value))


def new_source(sheet: Sheet, source: str, old: Member | None) -> str:
    """A source as the old one was written: one string, or a list of lines in which those that stay keep their bytes."""
    layout = sheet.layout
    if old is not None and not isinstance(old.value.value, list):
        return layout.string(source)
    lines = lines_of(source)
    written = list(map(layout.string, lines))
    if old is not None:
        was = items(sheet.text, old.value.start)[0]
        raw = [sheet.text[item.start : item.end] for item in was]
        values = [item.value for item in was]
        head = _alike(lines, values)
        tail = _alike(lines[head:][::-1], values[head:][::-1])
        written[:head] = raw[:head]
        if tail:
            written[-tail:] = raw[-tail:]
    return layout.array(written)


def source_of(members: Iterable[Member]) -> Member | None:
    """The member that holds the source; of several the last, as readers of JSON have it."""
    return next((member for member in reversed(list(members)) if member.name == "source"), None)


def lines_of(source: str) -> list[str]:
    """The lines of a source, each with its line feed; none for an empty one."""
    *whole, last = source.split("\n")
    return [*(line + "\n" for line in whole), *([last] if last else [])]


def _blanks(kind: CellType) -> dict[str, str]:
    return {name: blank for name, blank in BLANK.items() if name == "metadata" or name in OWN[kind]}


def _alike(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many items two lists begin with alike."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _ordered(names: Iterable[str], like: Mapping[str, Any]) -> list[str]:
    """The names in the order of another cell; what that has not goes behind, and all is sorted where it is sorted."""
    order = list(like)
    if order == sorted(order):
        return sorted(names)
    return sorted(names, key=lambda name: (order.index(name) if name in order else len(order), name))
