"""Read Jupyter notebooks as text: each cell with its number, id, source and outputs. Plain JSON, no library."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from wieldy.core.errors import ToolFailure
from wieldy.core.outcome import Block, Image, Text
from wieldy.core.tool import Output
from wieldy.core.truncate import truncate
from wieldy.files.reading.opening import OpenFile
from wieldy.files.search.format import display_path

if TYPE_CHECKING:
    from wieldy.files.editing.read_state import ReadState


LARGEST_FILE = 256 << 20
MAX_CHARS = 40_000
MAX_OUTPUT_CHARS = 10_000
MAX_CELL_OUTPUT_CHARS = 20_000
MAX_IMAGES = 10
MAX_LISTED_CELLS = 200
MAX_LISTED_IDS = 20
IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
# Traces and progress bars contain terminal colors, which are of no use to a model.
_COLORS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


class Cell(Struct, frozen=True):
    """One cell. `id` is the notebook's own where it has one, else `cell-<index>`; `images` are in base64."""

    index: int
    id: str
    kind: str
    source: str
    outputs: tuple[str, ...] = ()
    executed: int | None = None
    images: tuple[str, ...] = ()

    @property
    def heading(self) -> str:
        run = f" [{self.executed}]" if self.executed is not None else ""
        return f"<cell {self.index} id={self.id} {self.kind}{run}>"

    def as_data(self) -> dict[str, Any]:
        """The cell for a caller; images are blocks of the content and only counted here."""
        return {
            "index": self.index,
            "id": self.id,
            "kind": self.kind,
            "source": self.source,
            "outputs": list(self.outputs),
            "executed": self.executed,
            "pictures": len(self.images),
        }

    def __str__(self) -> str:
        parts, left = [self.heading, self.source], MAX_CELL_OUTPUT_CHARS
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
    """Parse a notebook; `name` is for error messages."""
    try:
        notebook = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ToolFailure(f"{name} is no valid notebook: {error}.") from None
    cells = _raw_cells(notebook)
    if cells is None:
        raise ToolFailure(f"{name} is no valid notebook: it holds no list of cells.")
    return Notebook(_language(notebook), tuple(_parse_cell(index, cell) for index, cell in enumerate(cells)))


def cell_label(index: int, cell: Mapping[str, Any]) -> str:
    """What a cell is called: its id, or `cell-<index>` where it has none."""
    return str(cell.get("id") or f"cell-{index}")


def find_cell(name: str, ids: Sequence[str]) -> int:
    """The index of the cell named by its id, or by a number such as `3` or `cell-3`."""
    matches = [index for index, id in enumerate(ids) if id == name]
    if len(matches) > 1:
        numbers = ", ".join(map(str, matches))
        raise ToolFailure(
            f"Several cells have the id `{name}`: cells {numbers}.", "Send the number of the one you mean."
        )
    if matches:
        return matches[0]
    number = name.strip().removeprefix("cell-")
    if number.isascii() and number.isdigit() and len(number) < 9 and int(number) < len(ids):
        return int(number)
    if not ids:
        raise ToolFailure(f"There is no cell `{name}`: the notebook has no cells.")
    known = ", ".join(f"{index} (id={id})" for index, id in enumerate(ids[:MAX_LISTED_IDS]))
    more = f" and {len(ids) - MAX_LISTED_IDS} more" if len(ids) > MAX_LISTED_IDS else ""
    raise ToolFailure(f"There is no cell `{name}`. The cells are {known}{more}.", "Name one by its id or its number.")


def _raw_cells(notebook: Any) -> list[Any] | None:
    """The cells; before format 4 they were in worksheets."""
    if not isinstance(notebook, dict):
        return None
    cells = notebook.get("cells")
    if cells is None and isinstance(notebook.get("worksheets"), list):
        cells = [cell for sheet in notebook["worksheets"] if isinstance(sheet, dict) for cell in sheet.get("cells", ())]
    return cells if isinstance(cells, list) else None


def _language(notebook: Mapping[str, Any]) -> str:
    metadata = _mapping(notebook.get("metadata"))
    for section, key in (("language_info", "name"), ("kernelspec", "language")):
        if isinstance(language := _mapping(metadata.get(section)).get(key), str):
            return language
    return "python"


def _parse_cell(index: int, raw: Any) -> Cell:
    cell = _mapping(raw)
    outputs = cell.get("outputs")
    outputs = outputs if isinstance(outputs, list) else []
    count = cell.get("execution_count")
    return Cell(
        index=index,
        id=cell_label(index, cell),
        kind=str(cell.get("cell_type", "unknown")),
        source=_text(cell.get("source", cell.get("input"))),
        outputs=tuple(filter(None, map(_output_text, outputs))),
        executed=count if isinstance(count, int) else None,
        images=tuple(_output_images(outputs)),
    )


def _output_images(outputs: Sequence[Any]) -> Iterator[str]:
    for output in outputs:
        data = _mapping(_mapping(output).get("data"))
        media_type = next((kind for kind in IMAGE_TYPES if kind in data), None)
        if media_type is not None:
            yield _text(data[media_type])


def _output_text(raw: Any) -> str:
    output = _mapping(raw)
    if output.get("output_type") == "error" or "traceback" in output:
        trace = output.get("traceback")
        lines = "\n".join(map(_text, trace)) if isinstance(trace, list) else ""
        return _clean(lines or f"{output.get('ename')}: {output.get('evalue')}")
    if "text" in output:
        return _clean(_text(output["text"]))
    data = _mapping(output.get("data"))
    for kind in ("text/markdown", "text/plain", "text/html"):
        if kind in data:
            images = [f"[{other}]" for other in data if other.startswith("image/")]
            return _clean("\n".join([_text(data[kind]), *images]))
    return "\n".join(f"[{kind}]" for kind in data)


def _clean(text: str) -> str:
    text = _COLORS.sub("", text).strip("\n")
    beyond = len(text) - MAX_OUTPUT_CHARS
    return f"{text[:MAX_OUTPUT_CHARS]}… [{beyond} more characters of output]" if beyond > 0 else text


def _text(value: Any) -> str:
    """Notebooks keep text as one string or as a list of lines."""
    if isinstance(value, list):
        return "".join(map(str, value))
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def show_notebook(
    file: OpenFile, data: bytes, notebook: Notebook, state: ReadState, cell_id: str | None = None
) -> Output:
    """The notebook, or one cell of it, as a result; what is shown is recorded as read."""
    cells = notebook.cells
    if cell_id:
        cells = (cells[find_cell(cell_id, [cell.id for cell in cells])],)
    fitting = 1 if cell_id else _count_fitting(cells)
    complete = fitting == len(notebook.cells)
    state.record_read(file.real, data=data, stat=file.stat, first=1, last=0, complete=complete)
    about = {"filePath": display_path(file.path), "language": notebook.language, "numCells": len(notebook.cells)}
    data_cells = [cell.as_data() for cell in cells[:fitting]]
    content = tuple(_blocks(cells, fitting))
    return Output(content, {"type": "notebook", "file": {**about, "cells": data_cells}})


def _count_fitting(cells: tuple[Cell, ...]) -> int:
    """How many cells, from the first on, are shown in full."""
    left = MAX_CHARS
    for count, cell in enumerate(cells):
        left -= len(str(cell)) + 2
        if left < 0 and count:
            return count
    return len(cells)


def _blocks(cells: tuple[Cell, ...], fitting: int) -> Iterator[Block]:
    if not cells:
        yield Text("<system-reminder>The notebook has no cells.</system-reminder>")
    texts: list[str] = []
    image_count = 0
    for cell in cells[:fitting]:
        texts.append(str(cell))
        images: list[Image] = []
        for number, encoded in enumerate(cell.images, start=1):
            if image_count == MAX_IMAGES:
                texts.append(f"[further pictures of this cell are not shown; read it alone with cell_id={cell.id}]")
                break
            image = _image_or_problem(encoded, f"picture {number} of cell {cell.index}")
            if isinstance(image, Image):
                images.append(image)
                image_count += 1
            else:
                texts.append(f"[{image}]")
        if images:
            yield Text("\n\n".join(texts))
            yield from images
            texts = []
    if fitting < len(cells):
        texts.append(_list_remaining(cells[fitting:]))
    if texts:
        yield Text("\n\n".join(texts))


def _image_or_problem(encoded: str, name: str) -> Image | str:
    from wieldy.files.reading.images import prepare_image

    try:
        return prepare_image(base64.b64decode("".join(encoded.split()), validate=True), name).block
    except ToolFailure as failure:
        return failure.message
    except (binascii.Error, ValueError):
        return f"{name} is damaged: it is no base64."


def _list_remaining(cells: tuple[Cell, ...]) -> str:
    lines = [f"{cell.heading} {_first_line(cell.source)}".rstrip() for cell in cells[:MAX_LISTED_CELLS]]
    if len(cells) > MAX_LISTED_CELLS:
        lines.append(f"… and {len(cells) - MAX_LISTED_CELLS} more cells, up to number {cells[-1].index}")
    listing = "\n".join(lines)
    return (
        f"<system-reminder>These cells did not fit. NotebookRead shows one with cell_id.\n{listing}</system-reminder>"
    )


def _first_line(source: str) -> str:
    return truncate(next((line.strip() for line in source.splitlines() if line.strip()), ""), 80)
