"""Jupyter notebooks as text: each cell with its number, id, source and what it printed. Plain JSON, no library."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wieldy.core.failure import ToolFailure

LARGEST_FILE = 64 << 20
OUTPUT_CHARS = 10_000
# Traces and progress bars bring terminal colours; a model has no use for them.
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell. `id` is the notebook's own where it has one, else `cell-<index>`."""

    index: int
    id: str
    kind: str
    source: str
    outputs: tuple[str, ...] = ()
    executed: int | None = None

    def __str__(self) -> str:
        run = f" [{self.executed}]" if self.executed is not None else ""
        parts = [f"<cell {self.index} id={self.id} {self.kind}{run}>", self.source]
        parts += [f"<output>\n{output}\n</output>" for output in self.outputs]
        return "\n".join(parts)


@dataclass(frozen=True, slots=True)
class Notebook:
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
        id=str(cell.get("id") or f"cell-{index}"),
        kind=str(cell.get("cell_type", "unknown")),
        source=_text(cell.get("source", cell.get("input"))),
        outputs=tuple(filter(None, map(_output, outputs))) if isinstance(outputs, list) else (),
        executed=count if isinstance(count, int) else None,
    )


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
