"""Jupyter notebooks: read them as text, and edit one cell, leaving every other byte of the file as it is. No library."""

from __future__ import annotations

import base64
import binascii
import json
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from wieldy.core.errors import ToolFailure
from wieldy.core.outcome import Block, Image, Text
from wieldy.core.schema.json_positions import JsonMember, JsonNode, JsonSyntaxError, parse_json, parse_json_value
from wieldy.core.text import display_path, plural, truncate
from wieldy.core.tool import Output
from wieldy.files.editing.document import Document, Splice, common_prefix, common_suffix
from wieldy.files.editing.matching import Tier
from wieldy.files.editing.read_state import ReadState
from wieldy.files.editing.revision import EditPlan, EditSettings, Revision, edit_text
from wieldy.files.reading.read_file import OpenFile
from wieldy.files.writing.disk import Target

LARGEST_FILE = 256 << 20
MAX_CONTAINERS = 250_000
MAX_VALUES = 1_000_000
"""A list or object takes a hundred bytes and more, another value some forty; plots hold their points as values. The 136
notebooks of a published book had at most 583 and 3 324."""
MAX_CHARS = 40_000
MAX_OUTPUT_CHARS = 10_000
MAX_CELL_OUTPUT_CHARS = 20_000
MAX_IMAGES = 10
MAX_LISTED_CELLS = 200
MAX_LISTED_IDS = 20
IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_STRING_OR_VALUE = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{,]', re.DOTALL)
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
                parts.append(f"<output>… [{plural(more, 'more output')}]</output>")
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
    _check_size(data, name)
    try:
        notebook = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ToolFailure(f"{name} is no valid notebook: {error}.") from None
    cells = _raw_cells(notebook)
    if cells is None:
        raise ToolFailure(f"{name} is no valid notebook: it holds no list of cells.")
    return Notebook(_language(notebook), tuple(_parse_cell(index, cell) for index, cell in enumerate(cells)))


def _check_size(data: bytes, name: str) -> None:
    """Raises `ToolFailure` for a notebook whose values would take far more memory than the file."""
    containers, values = data.count(b"[") + data.count(b"{"), data.count(b",")
    is_utf8 = b"\0" not in data  # else it is not known here what are strings
    if is_utf8 and (containers > MAX_CONTAINERS or values > MAX_VALUES):
        containers = values = 0
        for token in _STRING_OR_VALUE.finditer(data):
            mark = token[0][:1]
            containers, values = containers + (mark in b"[{"), values + (mark == b",")
            if containers > MAX_CONTAINERS or values > MAX_VALUES:
                break
    if containers > MAX_CONTAINERS or values > MAX_VALUES:
        text = f"{name} holds more than {MAX_CONTAINERS:,} lists and objects, or {MAX_VALUES:,} values"
        raise ToolFailure(f"{text}, so it is not read as a notebook.", "Read parts of it with jq or Grep.")


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
    from wieldy.files.reading.media import prepare_image

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


class NotebookStyle(Struct, frozen=True):
    """How a notebook's JSON is formatted: `cell` is the white space before a cell, `close` that after the last one (both
    empty in a file on one line), `unit` one step of indentation, `comma` the separator on one line."""

    cell: str
    close: str
    unit: str
    comma: str
    colon: str
    ascii_only: bool

    @property
    def before_member(self) -> str:
        return self.cell + self.unit if self.cell else ""

    def string(self, text: str) -> str:
        return json.dumps(text, ensure_ascii=self.ascii_only)

    def member(self, name: str, value: str) -> str:
        return f'"{name}"{self.colon}{value}'

    def object(self, members: Iterable[str]) -> str:
        """A cell of these members."""
        return "{" + self._join(members, self.before_member) + self.cell + "}"

    def array(self, items: Sequence[str]) -> str:
        """An array that is the value of a cell's member."""
        if not items:
            return "[]"
        before_item = self.before_member + self.unit if self.cell else ""
        return "[" + self._join(items, before_item) + self.before_member + "]"

    def _join(self, parts: Iterable[str], gap: str) -> str:
        return gap + ("," + gap if gap else self.comma).join(parts)


class EditableNotebook(Struct, frozen=True, dict=True):
    """A notebook of format 4 with the positions of its members and cells in the text."""

    document: Document
    text: str
    root: JsonNode
    cell_array: JsonNode

    @property
    def cells(self) -> Sequence[JsonNode]:
        return self.cell_array.items

    @property
    def cell_ids(self) -> list[str]:
        """What each cell is called: its id, or `cell-<index>`."""
        return [cell_label(index, cell.value) for index, cell in enumerate(self.cells)]

    @property
    def has_ids(self) -> bool:
        """Whether cells have ids here: since format 4.5, and not where a writer left them all out."""
        if _version(self.root, "nbformat_minor") < 5:
            return False
        return not self.cells or any("id" in cell.value for cell in self.cells)

    @cached_property
    def style(self) -> NotebookStyle:
        return _detect_style(self.text, self.root.members, self.cell_array)

    def cell(self, index: int) -> JsonNode:
        """A cell with the positions of its members and of the lines of its source."""
        return parse_json_value(self.text, self.cells[index].start, depth=2)

    def splice(self, start: int, end: int, new: str) -> Splice:
        """The splice of the file's bytes that replaces a range of the text."""
        self.document.codec.require(new, "new_source")
        return Splice(self._offset(start), self._offset(end), self.document.codec.encode(new))

    def _offset(self, position: int) -> int:
        if self.text.isascii():
            return self.document.body + position
        return self.document.body + len(self.document.codec.encode(self.text[:position]))


def parse_notebook(document: Document) -> EditableNotebook:
    """Parse a document as a notebook; raises `ToolFailure` for anything else."""
    if document.encoding.name != "utf-8":
        raise ToolFailure(f"The file is kept in {document.encoding.name}; a notebook is UTF-8.", "Convert it first.")
    _check_size(document.data, "The file")
    text = document.codec.decode(document.data[document.body :])
    try:
        root = parse_json(text, depth=2).root
    except JsonSyntaxError as error:
        raise ToolFailure(f"This is no valid notebook: {error}.", "Read it and mend it with Edit.") from None
    version = _version(root, "nbformat")
    if version in (1, 2, 3):
        raise ToolFailure(
            f"This notebook is of format {version}; only format 4 can be edited.",
            "Convert it first: jupyter nbconvert --to notebook --inplace FILE",
        )
    cells = root.member("cells")
    if cells is None or not isinstance(cells.node.value, list):
        raise ToolFailure("This is no valid notebook: it holds no list of cells.")
    for index, cell in enumerate(cells.node.value):
        if not isinstance(cell, dict):
            raise ToolFailure(f"This is no valid notebook: cell {index} is no object.")
    return EditableNotebook(document, text, root, cells.node)


def _version(root: JsonNode, name: str) -> int:
    member = root.member(name)
    return member.node.value if member is not None and isinstance(member.node.value, int) else 0


def _detect_style(text: str, members: Sequence[JsonMember], cells: JsonNode) -> NotebookStyle:
    first = members[0]
    before = text[text.index("{") + 1 : first.start]
    colon = text[first.name_end : first.node.start]
    comma = text[first.node.end : members[1].start] if len(members) > 1 else ", "
    break_at = before.rfind("\n")
    if break_at < 0:
        return NotebookStyle("", "", "", comma if "\n" not in comma else ", ", colon, _is_ascii_escaped(text))
    newline = "\r\n" if before[:break_at].endswith("\r") else "\n"
    unit = before[break_at + 1 :]
    before_cell, close = newline + unit * 2, newline + unit
    if cells.items:
        space = text[cells.start + 1 : cells.items[0].start]
        # A file may be indented outside and have its cells on one line each.
        before_cell = space if "\n" in space else ""
        close = text[cells.items[-1].end : cells.end - 1]
    return NotebookStyle(before_cell, close, unit, ", ", colon, _is_ascii_escaped(text))


def _is_ascii_escaped(text: str) -> bool:
    """Whether the writer escaped all characters beyond ASCII: there are none, but there are escapes of such."""
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


CellType: TypeAlias = Literal["code", "markdown", "raw"]

# Members that only cells of some types may have.
TYPE_MEMBERS: Mapping[str, tuple[str, ...]] = {
    "code": ("execution_count", "outputs"),
    "markdown": ("attachments",),
    "raw": ("attachments",),
}
# Members a cell must have besides its type and source, and their empty values.
EMPTY_VALUES = {"metadata": "{}", "execution_count": "null", "outputs": "[]"}


def _new_cell(notebook: EditableNotebook, index: int, kind: CellType, source: str, id: str | None) -> str:
    """The JSON of a cell that becomes number `index`, formatted like those around it."""
    style, cells = notebook.style, notebook.cells
    neighbor: Mapping[str, Any] = cells[max(0, index - 1)].value if cells else {}
    values = {"cell_type": style.string(kind), **_required_members(kind)}
    if isinstance(neighbor.get("source"), str):
        values["source"] = style.string(source)
    else:
        values["source"] = style.array(list(map(style.string, _source_lines(source))))
    if id is not None:
        values["id"] = style.string(id)
    template = next((cell.value for cell in cells if cell.value.get("cell_type") == kind), neighbor)
    return style.object(style.member(name, values[name]) for name in _ordered(values, template))


def _converted_cell(notebook: EditableNotebook, index: int, kind: CellType, source: str) -> str:
    """The JSON of a cell that becomes one of another type: members that may not have are dropped, required ones added."""
    style, cell = notebook.style, notebook.cell(index)
    foreign = {name for names in TYPE_MEMBERS.values() for name in names} - set(TYPE_MEMBERS[kind])
    members = {name: style.member(name, value) for name, value in _required_members(kind).items()}
    members |= {m.name: notebook.text[m.start : m.node.end] for m in cell.members if m.name not in foreign}
    members["cell_type"] = style.member("cell_type", style.string(kind))
    members["source"] = style.member("source", _new_source(notebook, source, cell.member("source")))
    return style.object(members[name] for name in _ordered(members, cell.value))


def _new_source(notebook: EditableNotebook, source: str, old: JsonMember | None) -> str:
    """The JSON of a source in the form of the old one: a string, or a list in which unchanged lines keep their bytes."""
    style = notebook.style
    if old is not None and not isinstance(old.node.value, list):
        return style.string(source)
    lines = _source_lines(source)
    items = list(map(style.string, lines))
    if old is not None:
        old_items = [notebook.text[item.start : item.end] for item in old.node.items]
        old_lines = old.node.value
        head = common_prefix(lines, old_lines)
        tail = common_suffix(lines[head:], old_lines[head:])
        items[:head] = old_items[:head]
        if tail:
            items[-tail:] = old_items[-tail:]
    return style.array(items)


def _source_lines(source: str) -> list[str]:
    """The lines of a source, each with its line feed; none for an empty one."""
    *lines, last = source.split("\n")
    return [*(line + "\n" for line in lines), *([last] if last else [])]


def _required_members(kind: CellType) -> dict[str, str]:
    return {name: value for name, value in EMPTY_VALUES.items() if name == "metadata" or name in TYPE_MEMBERS[kind]}


def _ordered(names: Iterable[str], template: Mapping[str, Any]) -> list[str]:
    """The names in the order of another cell, those it lacks last; all sorted where the other cell is sorted."""
    order = list(template)
    if order == sorted(order):
        return sorted(names)
    return sorted(names, key=lambda name: (order.index(name) if name in order else len(order), name))


EditMode: TypeAlias = Literal["replace", "insert", "insert_before", "delete"]


class CellEdit(Struct, frozen=True):
    """A request to replace, insert or delete one cell."""

    mode: EditMode
    cell_id: str | None = None
    source: str | None = None
    kind: CellType | None = None

    def revise(self, target: Target, state: ReadState, settings: EditSettings) -> Revision:
        """Make the edit; a merge with another program's change must leave a valid notebook."""
        if settings.on_external_change == "markers":
            settings = replace(settings, on_external_change="merge")  # conflict markers would not be JSON
        revision = edit_text(self, target, state, settings)
        if revision.merged:
            _require_notebook(revision)
        return revision

    def plan(self, document: Document, tiers: Sequence[Tier] = ()) -> EditPlan:
        """The splice that makes the edit. Raises `ToolFailure` where it cannot be made."""
        notebook = parse_notebook(document)
        if self.mode == "delete":
            splice, note = _delete(notebook, self._cell_index(notebook))
        elif self.source is None:
            raise ToolFailure(f"new_source is missing: {self.mode} needs the whole source of the cell.")
        elif self.mode == "replace":
            splice, note = _replace(notebook, self._cell_index(notebook), self.source, self.kind)
        else:
            splice, note = _insert(notebook, self._insertion_index(notebook), self.source, self.kind or "code")
        return EditPlan((splice,), 0, (note,))

    def _cell_index(self, notebook: EditableNotebook) -> int:
        if not self.cell_id:
            raise ToolFailure("cell_id is missing.", f"Say which cell to {self.mode}: NotebookRead shows their ids.")
        return find_cell(self.cell_id, notebook.cell_ids)

    def _insertion_index(self, notebook: EditableNotebook) -> int:
        if self.cell_id:
            return find_cell(self.cell_id, notebook.cell_ids) + (self.mode == "insert")
        if self.mode == "insert_before":
            raise ToolFailure("cell_id is missing.", "Say before which cell to insert.")
        return len(notebook.cells)


def _require_notebook(revision: Revision) -> None:
    """Refuse a merge with another program's change that did not leave a notebook, or left two cells of one id."""
    try:
        ids = parse_notebook(Document.of(revision.after)).cell_ids
        if len(set(ids)) == len(ids):
            return
    except ToolFailure:
        pass
    raise ToolFailure(
        f"{revision.path} was changed on disk since it was read, and the changes cannot be merged. Nothing was "
        "written.",
        "Read it again, then send an edit that fits what is there now.",
    )


def _delete(notebook: EditableNotebook, index: int) -> tuple[Splice, str]:
    cells = notebook.cells
    if index > 0:
        start, end = cells[index - 1].end, cells[index].end
    elif len(cells) > 1:
        start, end = cells[0].start, cells[1].start
    else:
        start, end = notebook.cell_array.start + 1, notebook.cell_array.end - 1
    moved = "" if index == len(cells) - 1 else "; the cells behind it have moved up by one"
    return notebook.splice(start, end, ""), f"Deleted {_description(notebook, index)}{moved}."


def _insert(notebook: EditableNotebook, index: int, source: str, kind: CellType) -> tuple[Splice, str]:
    style, cells = notebook.style, notebook.cells
    id = _fresh_id(notebook.cell_ids) if notebook.has_ids else None
    cell = _new_cell(notebook, index, kind, source, id)
    moved = "" if index == len(cells) else "; the cells behind it have moved down by one"
    note = f"Inserted cell {index} (id={id or f'cell-{index}'}, {kind}){moved}."
    separator = "," + style.cell if style.cell else style.comma
    if not cells:
        start, end = notebook.cell_array.start + 1, notebook.cell_array.end - 1
        return notebook.splice(start, end, style.cell + cell + style.close), note
    if index == 0:
        return notebook.splice(cells[0].start, cells[0].start, cell + separator), note
    at = cells[index - 1].end
    return notebook.splice(at, at, separator + cell), note


def _replace(notebook: EditableNotebook, index: int, source: str, kind: CellType | None) -> tuple[Splice, str]:
    cell = notebook.cell(index)
    description = _description(notebook, index)
    if kind is not None and kind != cell.value.get("cell_type"):
        text = _converted_cell(notebook, index, kind, source)
        return notebook.splice(cell.start, cell.end, text), f"Replaced {description}: it is a {kind} cell now."
    old = cell.member("source")
    if old is None:
        raise ToolFailure(f"There is no source in {description}.", "Delete it and insert another.")
    old_source = old.node.value
    if old_source == source or (isinstance(old_source, list) and "".join(map(str, old_source)) == source):
        raise ToolFailure(f"Nothing to change: {description} has exactly this source.")
    note = f"Replaced the source of {description}."
    if cell.value.get("outputs"):
        note += " Its outputs are still those of the old source."
    return notebook.splice(old.node.start, old.node.end, _new_source(notebook, source, old)), note


def _fresh_id(ids: Sequence[str]) -> str:
    while (id := secrets.token_hex(4)) in ids:
        continue
    return id


def _description(notebook: EditableNotebook, index: int) -> str:
    cell = notebook.cells[index].value
    return f"cell {index} (id={notebook.cell_ids[index]}, {cell.get('cell_type', 'of no type')})"
