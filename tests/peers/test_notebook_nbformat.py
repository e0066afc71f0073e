"""What we leave behind, in the eyes of the `nbformat` library: valid, and written exactly as it would write it itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.files.editing.document import Document, apply_splices
from wieldy.files.notebooks import CellEdit

nbformat = pytest.importorskip("nbformat")
v4 = pytest.importorskip("nbformat.v4")

pytestmark = pytest.mark.peer

SOURCES = st.text(st.sampled_from('ab \n\t"\\é表'), max_size=20)
KINDS = st.sampled_from(["code", "markdown", "raw"])
EDITS = st.lists(
    st.tuples(st.sampled_from(["replace", "insert", "insert_before", "delete"]), SOURCES, KINDS), max_size=4
)


@st.composite
def notebooks(draw: st.DrawFn) -> tuple[bytes, int]:
    minor = draw(st.sampled_from([0, 2, 4, 5]))
    book = v4.new_notebook(metadata={"language_info": {"name": "python"}})
    for kind, source in draw(st.lists(st.tuples(KINDS, SOURCES), max_size=4)):
        cell = getattr(v4, f"new_{kind}_cell")(source)
        if kind == "code" and draw(st.booleans()):
            cell.outputs = [
                v4.new_output("stream", text="1\né\n"),
                v4.new_output("error", ename="E", evalue="v", traceback=["\x1b[31mE\x1b[0m", "v"]),
                v4.new_output("display_data", {"image/png": "aGk=\n", "text/plain": "<Figure>"}),
            ]
        if minor < 5:
            cell.pop("id")
        book.cells.append(cell)
    book.nbformat_minor = minor
    return nbformat.writes(book).encode() + draw(st.sampled_from([b"", b"\n"])), minor


def after(data: bytes, edit: CellEdit) -> bytes:
    return apply_splices(data, edit.plan(Document.of(data)).splices)


@given(notebooks(), EDITS, st.data())
@settings(max_examples=120, deadline=None)
def test_after_any_edits_the_notebook_is_valid_and_written_as_the_library_writes(
    made: tuple[bytes, int], edits: list[tuple[Any, str, Any]], draw: st.DataObject
) -> None:
    data, minor = made
    end = b"\n" if data.endswith(b"\n") else b""
    for mode, source, kind in edits:
        book = nbformat.reads(data.decode(), as_version=4)
        if not book.cells:
            data = after(data, CellEdit("insert", None, source, kind))
            continue
        index = draw.draw(st.integers(0, len(book.cells) - 1))
        old = book.cells[index]
        if mode == "replace" and (old.source, old.cell_type) == (source, kind):
            continue
        data = after(data, CellEdit(mode, str(index), None if mode == "delete" else source, kind))
    found = nbformat.reads(data.decode(), as_version=4)
    nbformat.validate(found)
    assert found.nbformat_minor == minor
    assert nbformat.writes(found).encode() + end == data
