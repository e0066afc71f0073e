"""One cell replaced, inserted or deleted: what that comes to in the bytes of the file."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Literal, TypeAlias

from wieldy.core.failure import ToolFailure
from wieldy.core.record import record
from wieldy.edit.document import Document
from wieldy.edit.revision import Planned, Revision
from wieldy.edit.splice import Splice
from wieldy.edit.tolerance import Tier
from wieldy.notebook.cells import Sheet, sheet_of
from wieldy.notebook.compose import CellType, new_cell, new_source, retyped_cell, source_of
from wieldy.reading.notebook import place_of

EditMode: TypeAlias = Literal["replace", "insert", "insert_before", "delete"]


@record
class CellEdit:
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
