"""One cell replaced, inserted or deleted: what that comes to in the bytes of the file."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from wieldy.core.errors import ToolFailure
from wieldy.files.editing.document import Document
from wieldy.files.editing.json_positions import Malformed, Member, Placed, items, members, skip_space
from wieldy.files.editing.matching import Tier
from wieldy.files.editing.revision import Planned, Revision
from wieldy.files.editing.splicing import Splice
from wieldy.files.reading.notebooks import known_as, place_of


class Layout(Struct, frozen=True):
    """`cell` is what stands before a cell and `close` what stands after the last; both are empty in a file on one line.
    `unit` is one step of indentation, `comma` the separator on one line."""

    cell: str
    close: str
    unit: str
    comma: str
    colon: str
    escapes: bool

    @property
    def member(self) -> str:
        """What stands before a member of a cell."""
        return self.cell + self.unit if self.cell else ""

    def string(self, text: str) -> str:
        """A string, quoted."""
        return json.dumps(text, ensure_ascii=self.escapes)

    def named(self, name: str, value: str) -> str:
        """A member."""
        return f'"{name}"{self.colon}{value}'

    def object(self, written: Iterable[str]) -> str:
        """A cell of these members."""
        return "{" + self._joined(written, self.member) + self.cell + "}"

    def array(self, written: Sequence[str]) -> str:
        """The value of a cell's member: an array of these items."""
        if not written:
            return "[]"
        deeper = self.member + self.unit if self.cell else ""
        return "[" + self._joined(written, deeper) + self.member + "]"

    def _joined(self, written: Iterable[str], gap: str) -> str:
        return gap + ("," + gap if gap else self.comma).join(written)


def layout_of(text: str, top: Sequence[Member], cells: Placed) -> Layout:
    """The hand a notebook is written in; `top` are its members, `cells` the array of its cells."""
    first = top[0]
    before = text[text.index("{") + 1 : first.start]
    colon = text[first.named : first.value.start]
    comma = ", "
    if len(top) > 1:
        comma = text[first.value.end : top[1].start]
    break_at = before.rfind("\n")
    if break_at < 0:
        return Layout("", "", "", comma if "\n" not in comma else ", ", colon, _escapes(text))
    newline = "\r\n" if before[:break_at].endswith("\r") else "\n"
    unit = before[break_at + 1 :]
    cell, close = newline + unit * 2, newline + unit
    if cells.value:
        written = text[cells.start + 1 : cells.value[0].start]
        # A file may be indented outside and have its cells on one line each.
        cell = written if "\n" in written else ""
        close = text[cells.value[-1].end : cells.end - 1]
    return Layout(cell, close, unit, ", ", colon, _escapes(text))


def _escapes(text: str) -> bool:
    """Whether the writer escapes all characters beyond ASCII: there are none, but there are escapes of such."""
    if not text.isascii():
        return False
    at = text.find("\\u")
    while at >= 0:
        before = at
        while before and text[before - 1] == "\\":
            before -= 1
        # A backslash that is itself escaped does not begin an escape.
        if (at - before) % 2 == 0 and int(text[at + 2 : at + 6], 16) >= 0x80:
            return True
        at = text.find("\\u", at + 2)
    return False


class Sheet(Struct, frozen=True, dict=True):
    """A notebook of format 4 as text: its top members and the array of its cells."""

    document: Document
    text: str
    top: tuple[Member, ...]
    cells: Placed

    @cached_property
    def layout(self) -> Layout:
        """The hand it is written in."""
        return layout_of(self.text, self.top, self.cells)

    @property
    def placed(self) -> Sequence[Placed]:
        """The cells."""
        found: list[Placed] = self.cells.value
        return found

    @property
    def names(self) -> list[str]:
        """What each cell is called."""
        return [known_as(index, cell.value) for index, cell in enumerate(self.placed)]

    @property
    def has_ids(self) -> bool:
        """Whether cells have ids here: since format 4.5, and not where a writer left them all out."""
        if self._version("nbformat_minor") < 5:
            return False
        return not self.placed or any("id" in cell.value for cell in self.placed)

    def of_cell(self, index: int) -> list[Member]:
        """The members of a cell."""
        return members(self.text, self.placed[index].start)[0]

    def splice(self, start: int, end: int, new: str) -> Splice:
        """A stretch of the text replaced, in bytes."""
        self.document.codec.require(new, "new_source")
        return Splice(self._offset(start), self._offset(end), self.document.codec.encode(new))

    def _offset(self, place: int) -> int:
        if self.text.isascii():
            return self.document.body + place
        return self.document.body + len(self.document.codec.encode(self.text[:place]))

    def _version(self, name: str) -> int:
        found = next((member.value.value for member in reversed(self.top) if member.name == name), 0)
        return found if isinstance(found, int) else 0

    @property
    def format(self) -> int:
        """The major version of the format."""
        return self._version("nbformat")


def sheet_of(document: Document) -> Sheet:
    """The notebook a document is. Raises `ToolFailure` for anything else."""
    if document.encoding.name != "utf-8":
        raise ToolFailure(f"The file is kept in {document.encoding.name}; a notebook is UTF-8. Convert it first.")
    text = document.codec.decode(document.data[document.body :])
    try:
        top, end = members(text, skip_space(text, 0), spread="cells")
        if skip_space(text, end) != len(text):
            raise Malformed(f"more text follows the notebook at character {end}")
    except Malformed as error:
        raise ToolFailure(f"This is no valid notebook: {error}. Read it and mend it with Edit.") from None
    cells: Any = next((member.value for member in reversed(top) if member.name == "cells"), None)
    sheet = Sheet(document, text, tuple(top), cells)
    if top and sheet.format in (1, 2, 3):
        raise ToolFailure(
            f"This notebook is of format {sheet.format}; only format 4 can be edited. Convert it first: "
            "jupyter nbconvert --to notebook --inplace FILE"
        )
    if cells is None or not isinstance(cells.value, list):
        raise ToolFailure("This is no valid notebook: it holds no list of cells.")
    for index, cell in enumerate(cells.value):
        if not isinstance(cell.value, dict):
            raise ToolFailure(f"This is no valid notebook: cell {index} is no object.")
    return sheet


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


EditMode: TypeAlias = Literal["replace", "insert", "insert_before", "delete"]


class CellEdit(Struct, frozen=True):
    """What is asked for."""

    mode: EditMode
    cell_id: str | None = None
    source: str | None = None
    kind: CellType | None = None

    def plan(self, document: Document, tiers: Sequence[Tier] = ()) -> Planned:
        """The splice that makes the edit. Raises `ToolFailure` where it cannot be made."""
        sheet = sheet_of(document)
        if self.mode == "delete":
            splice, note = _deleted(sheet, self._cell(sheet))
        elif self.source is None:
            raise ToolFailure(f"new_source is missing: {self.mode} needs the whole source of the cell.")
        elif self.mode == "replace":
            splice, note = _replaced(sheet, self._cell(sheet), self.source, self.kind)
        else:
            splice, note = _inserted(sheet, self._gap(sheet), self.source, self.kind or "code")
        return Planned((splice,), 0, (note,))

    def _cell(self, sheet: Sheet) -> int:
        if not self.cell_id:
            raise ToolFailure(f"cell_id is missing: say which cell to {self.mode}. NotebookRead shows their ids.")
        return place_of(self.cell_id, sheet.names)

    def _gap(self, sheet: Sheet) -> int:
        """The number the new cell will have."""
        if self.cell_id:
            return place_of(self.cell_id, sheet.names) + (self.mode == "insert")
        if self.mode == "insert_before":
            raise ToolFailure("cell_id is missing: say before which cell to insert.")
        return len(sheet.placed)


def require_notebook(revision: Revision) -> None:
    """Refuse a merge with somebody else's change that did not leave a notebook, or left two cells of one id."""
    try:
        names = sheet_of(Document.of(revision.after)).names
        if len(set(names)) == len(names):
            return
    except ToolFailure:
        pass
    raise ToolFailure(
        f"{revision.path} was changed on disk since you read it, and the changes cannot be merged. Nothing was "
        "written. Read it again, then send an edit that fits what is there now."
    )


def _deleted(sheet: Sheet, index: int) -> tuple[Splice, str]:
    placed = sheet.placed
    if index > 0:
        start, end = placed[index - 1].end, placed[index].end
    elif len(placed) > 1:
        start, end = placed[0].start, placed[1].start
    else:
        start, end = sheet.cells.start + 1, sheet.cells.end - 1
    moved = "" if index == len(placed) - 1 else "; the cells behind it have moved up by one"
    return sheet.splice(start, end, ""), f"Deleted {_called(sheet, index)}{moved}."


def _inserted(sheet: Sheet, index: int, source: str, kind: CellType) -> tuple[Splice, str]:
    layout, placed = sheet.layout, sheet.placed
    id = _fresh_id(sheet.names) if sheet.has_ids else None
    written = new_cell(sheet, index, kind, source, id)
    moved = "" if index == len(placed) else "; the cells behind it have moved down by one"
    note = f"Inserted cell {index} (id={id or f'cell-{index}'}, {kind}){moved}."
    between = "," + layout.cell if layout.cell else layout.comma
    if not placed:
        start, end = sheet.cells.start + 1, sheet.cells.end - 1
        return sheet.splice(start, end, layout.cell + written + layout.close), note
    if index == 0:
        return sheet.splice(placed[0].start, placed[0].start, written + between), note
    at = placed[index - 1].end
    return sheet.splice(at, at, between + written), note


def _replaced(sheet: Sheet, index: int, source: str, kind: CellType | None) -> tuple[Splice, str]:
    cell = sheet.placed[index]
    had, old = cell.value.get("cell_type"), source_of(sheet.of_cell(index))
    if kind is not None and kind != had:
        text = retyped_cell(sheet, index, kind, source)
        return sheet.splice(cell.start, cell.end, text), f"Replaced {_called(sheet, index)}: it is a {kind} cell now."
    if old is None:
        raise ToolFailure(f"There is no source in {_called(sheet, index)}. Delete it and insert another.")
    if (was := old.value.value) == source or (isinstance(was, list) and "".join(map(str, was)) == source):
        raise ToolFailure(f"Nothing to change: {_called(sheet, index)} has exactly this source.")
    note = f"Replaced the source of {_called(sheet, index)}."
    if cell.value.get("outputs"):
        note += " Its outputs are still those of the old source."
    return sheet.splice(old.value.start, old.value.end, new_source(sheet, source, old)), note


def _fresh_id(names: Sequence[str]) -> str:
    while (id := secrets.token_hex(4)) in names:
        continue
    return id


def _called(sheet: Sheet, index: int) -> str:
    cell = sheet.placed[index].value
    return f"cell {index} (id={sheet.names[index]}, {cell.get('cell_type', 'of no type')})"
