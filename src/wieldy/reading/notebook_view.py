"""A notebook within bounds: cells as text, pictures as pictures, and for what does not fit a line that says where it is."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import TYPE_CHECKING

from wieldy.core.content import Block, Image, Text
from wieldy.core.failure import ToolFailure
from wieldy.core.tool import Output
from wieldy.reading.notebook import Cell, Notebook, place_of
from wieldy.reading.opened import Opened, shown

if TYPE_CHECKING:
    from wieldy.edit.readstate import ReadState

CHARS = 40_000
MOST_PICTURES = 10
MOST_NAMED = 200


def show_notebook(file: Opened, data: bytes, notebook: Notebook, seen: ReadState, cell_id: str | None = None) -> Output:
    """The notebook, or one cell of it, as a result; what was shown is remembered."""
    cells = notebook.cells
    if cell_id:
        cells = (cells[place_of(cell_id, [cell.id for cell in cells])],)
    fitting = 1 if cell_id else _fitting(cells)
    whole = fitting == len(notebook.cells)
    seen.saw(file.path, data=data, stat=file.stat, first=1, last=0, complete=whole)
    about = {"filePath": shown(file.path), "language": notebook.language, "numCells": len(notebook.cells)}
    data_cells = [cell.as_data() for cell in cells[:fitting]]
    content = tuple(_blocks(cells, fitting))
    return Output(content, {"type": "notebook", "file": {**about, "cells": data_cells}})


def _fitting(cells: tuple[Cell, ...]) -> int:
    """How many cells, from the first on, are shown in full."""
    left = CHARS
    for count, cell in enumerate(cells):
        left -= len(str(cell)) + 2
        if left < 0 and count:
            return count
    return len(cells)


def _blocks(cells: tuple[Cell, ...], fitting: int) -> Iterator[Block]:
    if not cells:
        yield Text("<system-reminder>The notebook has no cells.</system-reminder>")
    said: list[str] = []
    pictures = 0
    for cell in cells[:fitting]:
        said.append(str(cell))
        images: list[Image] = []
        for number, picture in enumerate(cell.pictures, start=1):
            if pictures == MOST_PICTURES:
                said.append(f"[further pictures of this cell are not shown; read it alone with cell_id={cell.id}]")
                break
            image = _image(picture, f"picture {number} of cell {cell.index}")
            pictures += isinstance(image, Image)
            if isinstance(image, Image):
                images.append(image)
            else:
                said.append(f"[{image}]")
        if images:
            yield Text("\n\n".join(said))
            yield from images
            said = []
    if fitting < len(cells):
        said.append(_rest(cells[fitting:]))
    if said:
        yield Text("\n\n".join(said))


def _image(encoded: str, name: str) -> Image | str:
    """A picture fit to be sent, or why it is not."""
    from wieldy.reading.image import picture

    try:
        return picture(base64.b64decode("".join(encoded.split()), validate=True), name).block
    except ToolFailure as failure:
        return failure.message
    except (binascii.Error, ValueError):
        return f"{name} is damaged: it is no base64."


def _rest(cells: tuple[Cell, ...]) -> str:
    named = [f"{cell.heading} {_first_line(cell.source)}".rstrip() for cell in cells[:MOST_NAMED]]
    if len(cells) > MOST_NAMED:
        named.append(f"… and {len(cells) - MOST_NAMED} more cells, up to number {cells[-1].index}")
    lines = "\n".join(named)
    return f"<system-reminder>These cells did not fit. NotebookRead shows one with cell_id.\n{lines}</system-reminder>"


def _first_line(source: str) -> str:
    line = next((line.strip() for line in source.splitlines() if line.strip()), "")
    return line if len(line) <= 80 else line[:80] + "…"
