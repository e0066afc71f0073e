"""For any notebook, however it is written: an edit changes the cell it names, every other byte stays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.files.editing.document import Document, apply_splices
from wieldy.files.notebooks import CellEdit, parse_notebook

SOURCES = st.text(st.sampled_from('ab \n\r\t"\\é表😀\x1b\u2028'), max_size=20)
WRITERS = st.fixed_dictionaries(
    {
        "indent": st.sampled_from([None, 0, 1, 2, 4, "\t"]),
        "ensure_ascii": st.booleans(),
        "sort_keys": st.booleans(),
        "tight": st.booleans(),
        "end": st.sampled_from(["", "\n"]),
        "crlf": st.booleans(),
        "bom": st.booleans(),
        "lists": st.booleans(),
    }
)


@st.composite
def cells(draw: st.DrawFn, ids: bool, lists: bool) -> dict[str, Any]:
    kind = draw(st.sampled_from(["code", "markdown", "raw"]))
    source = draw(SOURCES)
    cell: dict[str, Any] = {
        "cell_type": kind,
        "metadata": {"tags": ["x"]} if draw(st.booleans()) else {},
        "source": source.splitlines(keepends=True) if lists else source,
    }
    if kind == "code":
        stream = {"output_type": "stream", "name": "stdout", "text": ["1é\n"]}
        cell |= {"execution_count": draw(st.none() | st.just(3)), "outputs": [stream] if draw(st.booleans()) else []}
    if ids:
        cell["id"] = draw(st.text("abcdef0123456789", min_size=6, max_size=8))
    return cell


@st.composite
def notebooks(draw: st.DrawFn) -> tuple[bytes, Mapping[str, Any], dict[str, Any]]:
    hand: dict[str, Any] = draw(WRITERS)
    ids = draw(st.booleans())
    body = {
        "cells": draw(st.lists(cells(ids, hand["lists"]), max_size=4, unique_by=lambda cell: cell.get("id", id(cell)))),
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5 if ids else 4,
    }
    return written(body, hand), body, hand


def written(body: Mapping[str, Any], hand: dict[str, Any]) -> bytes:
    tight = (",", ":") if hand["tight"] and hand["indent"] is None else None
    text = json.dumps(
        body,
        indent=hand["indent"],
        ensure_ascii=hand["ensure_ascii"],
        sort_keys=hand["sort_keys"],
        separators=tight,
    )
    text = f"{text}{hand['end']}".replace("\n", "\r\n" if hand["crlf"] else "\n")
    return (b"\xef\xbb\xbf" if hand["bom"] else b"") + text.encode()


def after(data: bytes, edit: CellEdit) -> bytes:
    return apply_splices(data, edit.plan(Document.of(data)).splices)


def raw_cells(data: bytes) -> list[str]:
    notebook = parse_notebook(Document.of(data))
    return [notebook.text[cell.start : cell.end] for cell in notebook.cells]


@given(notebooks(), st.data(), SOURCES, st.sampled_from([None, "code", "markdown", "raw"]))
@settings(max_examples=150, deadline=None)
def test_a_replacement_changes_one_cell_and_only_its_source_and_type(
    made: tuple[bytes, Mapping[str, Any], dict[str, Any]], draw: st.DataObject, source: str, kind: Any
) -> None:
    data, body, _ = made
    if not body["cells"]:
        return
    index = draw.draw(st.integers(0, len(body["cells"]) - 1))
    old = body["cells"][index]
    if "".join(old["source"]) == source and kind in (None, old["cell_type"]):
        return
    new = after(data, CellEdit("replace", str(index), source, kind))
    assert raw_cells(new)[:index] == raw_cells(data)[:index]
    assert raw_cells(new)[index + 1 :] == raw_cells(data)[index + 1 :]
    found = json.loads(new.decode("utf-8-sig"))
    changed = found["cells"].pop(index)
    assert "".join(changed["source"]) == source
    assert isinstance(changed["source"], list) == isinstance(old["source"], list)
    assert changed["cell_type"] == (kind or old["cell_type"])
    assert {k: v for k, v in changed.items() if k in ("id", "metadata")} == {
        k: v for k, v in old.items() if k in ("id", "metadata")
    }
    assert found == {**body, "cells": body["cells"][:index] + body["cells"][index + 1 :]}


@given(notebooks(), st.data(), SOURCES, st.sampled_from([None, "code", "markdown", "raw"]))
@settings(max_examples=150, deadline=None)
def test_what_is_inserted_and_deleted_again_leaves_every_byte_as_it_was(
    made: tuple[bytes, Mapping[str, Any], dict[str, Any]], draw: st.DataObject, source: str, kind: Any
) -> None:
    data, body, _ = made
    count = len(body["cells"])
    where = draw.draw(st.integers(0, count))
    if where == count:
        edit = CellEdit("insert", None, source, kind)
    elif draw.draw(st.booleans()) and where:
        edit = CellEdit("insert", str(where - 1), source, kind)
    else:
        edit = CellEdit("insert_before", str(where), source, kind)
    new = after(data, edit)
    cells = json.loads(new.decode("utf-8-sig"))["cells"]
    assert cells[:where] + cells[where + 1 :] == body["cells"]
    assert "".join(cells[where]["source"]) == source
    assert cells[where]["cell_type"] == (kind or "code")
    assert ("id" in cells[where]) == (body["nbformat_minor"] == 5)
    assert after(new, CellEdit("delete", str(where))) == data


@given(notebooks(), st.data(), st.text(st.sampled_from('ab \n\t"\\'), max_size=20))
@settings(max_examples=200, deadline=None)
def test_what_is_written_is_what_the_files_own_writer_would_have_written(
    made: tuple[bytes, Mapping[str, Any], dict[str, Any]], draw: st.DataObject, source: str
) -> None:
    data, body, hand = made
    if not body["cells"]:
        return
    index = draw.draw(st.integers(0, len(body["cells"]) - 1))
    lines = source.splitlines(keepends=True) if hand["lists"] else source
    old = body["cells"][index]
    if "".join(old["source"]) != source:
        cells = [*body["cells"][:index], {**old, "source": lines}, *body["cells"][index + 1 :]]
        assert after(data, CellEdit("replace", str(index), source)) == written({**body, "cells": cells}, hand)
    new = after(data, CellEdit("insert", str(index), source, old["cell_type"]))
    id = {"id": json.loads(new.decode("utf-8-sig"))["cells"][index + 1]["id"]} if "id" in old else {}
    blank: dict[str, Any] = {"execution_count": None, "outputs": []} if old["cell_type"] == "code" else {}
    fresh = {**old, "metadata": {}, "source": lines, **blank, **id}
    cells = [*body["cells"][: index + 1], fresh, *body["cells"][index + 1 :]]
    assert new == written({**body, "cells": cells}, hand)
