"""A notebook's text with its cells in their places."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from wieldy.core.failure import ToolFailure
from wieldy.core.record import record
from wieldy.edit.document import Document
from wieldy.edit.splice import Splice
from wieldy.notebook.layout import Layout, layout_of
from wieldy.notebook.scan import Malformed, Member, Placed, members, skip_space
from wieldy.reading.notebook import known_as


@record
class Sheet:
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
