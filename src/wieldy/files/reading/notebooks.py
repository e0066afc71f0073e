"""Jupyter notebooks as text: each cell with its number, id, source and what it printed. Plain JSON, no library."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from wieldy.core.content import Block, Image, Text
from wieldy.core.errors import ToolFailure
from wieldy.core.tool import Output
from wieldy.files.reading.opening import OpenFile, shown

if TYPE_CHECKING:
    from wieldy.files.editing.read_state import ReadState


LARGEST_FILE = 256 << 20
OUTPUT_CHARS = 10_000
CELL_OUTPUT_CHARS = 20_000
NAMED_AT_MOST = 20
RASTERS = ("image/png", "image/jpeg", "image/gif", "image/webp")
# Traces and progress bars bring terminal colours; a model has no use for them.
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


class Cell(Struct, frozen=True):
    """One cell. `id` is the notebook's own where it has one, else `cell-<index>`."""

    index: int
    id: str
    kind: str
    source: str
    outputs: tuple[str, ...] = ()
    executed: int | None = None
    pictures: tuple[str, ...] = ()

    @property
    def heading(self) -> str:
        """The line above a cell."""
        run = f" [{self.executed}]" if self.executed is not None else ""
        return f"<cell {self.index} id={self.id} {self.kind}{run}>"

    def as_data(self) -> dict[str, Any]:
        """The cell for a caller; pictures are blocks of the content and only counted here."""
        return {
            "index": self.index,
            "id": self.id,
            "kind": self.kind,
            "source": self.source,
            "outputs": list(self.outputs),
            "executed": self.executed,
            "pictures": len(self.pictures),
        }

    def __str__(self) -> str:
        parts, left = [self.heading, self.source], CELL_OUTPUT_CHARS
        for count, output in enumerate(self.outputs):
            left -= len(output)
            if left < 0 and count:
                more = len(self.outputs) - count
                parts.append(f"<output>… [{more} more output{'s' if more != 1 else ''}]</output>")
                break
            parts.append(f"<output>\n{output}\n</output>")
        return "\n".join(parts)


class Notebook(Struct, frozen=True):
    """The cells of a notebook and the language they are in."""

    language: str
    cells: tuple[Cell, ...]

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.cells))


def read_notebook(data: bytes, name: str) -> Notebook:
    """The notebook in `data`; `name` is what errors call it."""
    try:
        notebook = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ToolFailure(f"{name} is no valid notebook: {error}.") from None
    cells = _cells_of(notebook)
    if cells is None:
        raise ToolFailure(f"{name} is no valid notebook: it holds no list of cells.")
    return Notebook(_language(notebook), tuple(_cell(index, cell) for index, cell in enumerate(cells)))


def cell_label(index: int, cell: Mapping[str, Any]) -> str:
    """What a cell is called: by the id it has, else by its number."""
    return str(cell.get("id") or f"cell-{index}")


def find_cell(name: str, ids: Sequence[str]) -> int:
    """The index of the cell named by its id, or by a number such as `3` or `cell-3`."""
    matches = [index for index, id in enumerate(ids) if id == name]
    if len(matches) > 1:
        numbers = ", ".join(map(str, matches))
        raise ToolFailure(f"Several cells have the id `{name}`: cells {numbers}. Send the number of the one you mean.")
    if matches:
        return matches[0]
    number = name.strip().removeprefix("cell-")
    if number.isascii() and number.isdigit() and len(number) < 9 and int(number) < len(ids):
        return int(number)
    if not ids:
        raise ToolFailure(f"There is no cell `{name}`: the notebook has no cells.")
    known = ", ".join(f"{index} (id={id})" for index, id in enumerate(ids[:NAMED_AT_MOST]))
    more = f" and {len(ids) - NAMED_AT_MOST} more" if len(ids) > NAMED_AT_MOST else ""
    raise ToolFailure(f"There is no cell `{name}`. The cells are {known}{more}; name one by its id or its number.")


def _cells_of(notebook: Any) -> list[Any] | None:
    """The raw cells; before format 4 they stood in worksheets."""
    if not isinstance(notebook, dict):
        return None
    cells = notebook.get("cells")
    if cells is None and isinstance(notebook.get("worksheets"), list):
        cells = [cell for sheet in notebook["worksheets"] if isinstance(sheet, dict) for cell in sheet.get("cells", ())]
    return cells if isinstance(cells, list) else None


def _language(notebook: Mapping[str, Any]) -> str:
    metadata = _mapping(notebook.get("metadata"))
    for place, key in (("language_info", "name"), ("kernelspec", "language")):
        if isinstance(named := _mapping(metadata.get(place)).get(key), str):
            return named
    return "python"


def _cell(index: int, raw: Any) -> Cell:
    cell = _mapping(raw)
    outputs = cell.get("outputs")
    count = cell.get("execution_count")
    return Cell(
        index=index,
        id=cell_label(index, cell),
        kind=str(cell.get("cell_type", "unknown")),
        source=_text(cell.get("source", cell.get("input"))),
        outputs=tuple(filter(None, map(_output, outputs))) if isinstance(outputs, list) else (),
        executed=count if isinstance(count, int) else None,
        pictures=tuple(_pictures(outputs)) if isinstance(outputs, list) else (),
    )


def _pictures(outputs: Sequence[Any]) -> Iterator[str]:
    """The pictures among the outputs, in base64 as they are kept."""
    for output in outputs:
        shown = _mapping(_mapping(output).get("data"))
        best = next((kind for kind in RASTERS if kind in shown), None)
        if best is not None:
            yield _text(shown[best])


def _output(raw: Any) -> str:
    output = _mapping(raw)
    if output.get("output_type") == "error" or "traceback" in output:
        trace = output.get("traceback")
        lines = "\n".join(map(_text, trace)) if isinstance(trace, list) else ""
        return _capped(lines or f"{output.get('ename')}: {output.get('evalue')}")
    if "text" in output:
        return _capped(_text(output["text"]))
    shown = _mapping(output.get("data"))
    for kind in ("text/markdown", "text/plain", "text/html"):
        if kind in shown:
            pictures = [other for other in shown if other.startswith("image/")]
            return _capped("\n".join([_text(shown[kind]), *(f"[{other}]" for other in pictures)]))
    return "\n".join(f"[{kind}]" for kind in shown)


def _capped(text: str) -> str:
    text = _COLOURS.sub("", text).strip("\n")
    beyond = len(text) - OUTPUT_CHARS
    return f"{text[:OUTPUT_CHARS]}… [{beyond} more characters of output]" if beyond > 0 else text


def _text(value: Any) -> str:
    """Notebooks keep text as one string or as a list of lines."""
    if isinstance(value, list):
        return "".join(map(str, value))
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


CHARS = 40_000
MOST_PICTURES = 10
MOST_NAMED = 200


def show_notebook(
    file: OpenFile, data: bytes, notebook: Notebook, seen: ReadState, cell_id: str | None = None
) -> Output:
    """The notebook, or one cell of it, as a result; what was shown is remembered."""
    cells = notebook.cells
    if cell_id:
        cells = (cells[find_cell(cell_id, [cell.id for cell in cells])],)
    fitting = 1 if cell_id else _fitting(cells)
    whole = fitting == len(notebook.cells)
    seen.record_read(file.path, data=data, stat=file.stat, first=1, last=0, complete=whole)
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
    from wieldy.files.reading.images import picture

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
