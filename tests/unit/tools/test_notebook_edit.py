from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from wieldy import Toolbox

pytestmark = pytest.mark.asyncio


def cell(id: str | None, source: Any, kind: str = "code", **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"cell_type": kind, "metadata": {}, "source": source, **more}
    if kind == "code":
        made = {"execution_count": None, "outputs": [], **made}
    return made if id is None else {**made, "id": id}


def write(path: Path, *cells: dict[str, Any], minor: int = 5) -> bytes:
    body = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": minor}
    path.write_text(json.dumps(body, indent=1, sort_keys=True) + "\n")
    return path.read_bytes()


def cells(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_bytes())["cells"]
    return found


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    (tmp_path / "root").mkdir()
    return tmp_path / "root" / "n.ipynb"


@pytest_asyncio.fixture
async def box(book: Path) -> AsyncIterator[Toolbox]:
    async with Toolbox(book.parent, settings={}, mode="bypassPermissions") as toolbox:
        yield toolbox


async def edit(box: Toolbox, **fields: Any) -> Any:
    await box.call("NotebookRead", notebook_path="n.ipynb")
    return await box.call("NotebookEdit", notebook_path="n.ipynb", **fields)


async def test_a_source_is_replaced_by_id_and_nothing_else_is_touched(book: Path, box: Toolbox) -> None:
    before = write(book, cell("aa", ["x = 1\n", "y = 2"]), cell("bb", ["z"]))
    result = await edit(box, cell_id="aa", new_source="x = 1\ny = 3")
    assert not result.is_error
    assert book.read_bytes() == before.replace(b'"y = 2"', b'"y = 3"')
    assert "Replaced the source of cell 0 (id=aa, code)." in result.text
    assert '-    "y = 2"\n+    "y = 3"' in result.text


@pytest.mark.parametrize("name", ["1", "cell-1"])
async def test_cells_without_ids_go_by_their_number(book: Path, box: Toolbox, name: str) -> None:
    write(book, cell(None, ["a"]), cell(None, "b"), minor=4)
    await edit(box, cell_id=name, new_source="B\nC")
    assert [found["source"] for found in cells(book)] == [["a"], "B\nC"]
    assert all("id" not in found for found in cells(book))


async def test_an_insert_goes_behind_the_named_cell_and_without_one_to_the_end(book: Path, box: Toolbox) -> None:
    write(book, cell("aa", ["a"]), cell("bb", ["b"]))
    result = await edit(box, edit_mode="insert", cell_id="aa", new_source="behind a", cell_type="markdown")
    assert "Inserted cell 1 (id=" in result.text
    await edit(box, edit_mode="insert", new_source="last")
    await edit(box, edit_mode="insert_before", cell_id="aa", new_source="first")
    found = cells(book)
    assert ["".join(one["source"]) for one in found] == ["first", "a", "behind a", "b", "last"]
    assert len({one["id"] for one in found}) == 5
    assert found[2]["cell_type"] == "markdown"
    assert "outputs" not in found[2]


async def test_a_deleted_cell_is_gone_and_the_last_one_leaves_an_empty_list(book: Path, box: Toolbox) -> None:
    write(book, cell("aa", ["a"]), cell("bb", ["b"]))
    await edit(box, edit_mode="delete", cell_id="aa")
    assert [found["id"] for found in cells(book)] == ["bb"]
    await edit(box, edit_mode="delete", cell_id="bb")
    assert b'"cells": []' in book.read_bytes()


async def test_the_type_changes_only_on_request_and_with_it_what_such_a_cell_may_have(book: Path, box: Toolbox) -> None:
    output = {"output_type": "stream", "name": "stdout", "text": ["1\n"]}
    write(book, cell("aa", ["a"], outputs=[output], execution_count=1))
    kept = await edit(box, cell_id="aa", new_source="b")
    assert "Its outputs are still those of the old source." in kept.text
    assert cells(book)[0]["outputs"] == [output]
    await edit(box, cell_id="aa", new_source="# b", cell_type="markdown")
    assert cells(book) == [{"cell_type": "markdown", "id": "aa", "metadata": {}, "source": ["# b"]}]
    await edit(box, cell_id="aa", new_source="b", cell_type="code")
    assert cells(book) == [cell("aa", ["b"])]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"cell_id": "made-up", "new_source": "x"}, "There is no cell `made-up`. The cells are 0 (id=aa), 1 (id=bb)"),
        ({"cell_id": "2", "new_source": "x"}, "There is no cell `2`."),
        ({"cell_id": "cell--1", "new_source": "x"}, "There is no cell `cell--1`."),
        ({"new_source": "x"}, "cell_id is missing. Say which cell to replace"),
        ({"edit_mode": "delete"}, "cell_id is missing. Say which cell to delete"),
        ({"edit_mode": "insert_before", "new_source": "x"}, "cell_id is missing. Say before which cell to insert."),
        ({"cell_id": "aa"}, "new_source is missing: replace needs the whole source"),
        ({"cell_id": "aa", "new_source": "a"}, "Nothing to change: cell 0 (id=aa, code) has exactly this source."),
        ({"cell_id": "aa", "new_source": "\ud800"}, "half of a surrogate pair is no character"),
    ],
)
async def test_what_cannot_be_done_is_refused_and_nothing_is_written(
    book: Path, box: Toolbox, fields: dict[str, Any], said: str
) -> None:
    before = write(book, cell("aa", ["a"]), cell("bb", ["b"]))
    result = await edit(box, **fields)
    assert result.is_error
    assert said in result.text
    assert book.read_bytes() == before


async def test_two_cells_of_one_id_must_be_told_apart_by_number(book: Path, box: Toolbox) -> None:
    write(book, cell("aa", ["a"]), cell("aa", ["b"]))
    assert "Several cells have the id `aa`: cells 0, 1." in (await edit(box, cell_id="aa", new_source="x")).text
    await edit(box, cell_id="1", new_source="x")
    assert [found["source"] for found in cells(book)] == [["a"], ["x"]]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"not json", "no valid notebook: line 1, column 1"),
        (b'{"a": 1}', "it holds no list of cells"),
        (b'{"cells": [], "nbformat": 4} x', "behind the end of the value"),
        (b'{"cells": [3], "nbformat": 4}', "cell 0 is no object"),
        (b'{"worksheets": [], "nbformat": 3}', "only format 4 can be edited"),
        ('{"cells": [], "nbformat": 4, "x": "é"}'.encode("utf-16"), "kept in utf-16-le; a notebook is UTF-8"),
    ],
)
async def test_what_is_no_notebook_is_left_alone(book: Path, box: Toolbox, content: bytes, said: str) -> None:
    book.write_bytes(content)
    await box.call("Read", file_path="n.ipynb")
    result = await box.call("NotebookEdit", path="n.ipynb", edit_mode="insert", new_source="x")
    assert result.is_error
    assert said in result.text
    assert book.read_bytes() == content


async def test_a_notebook_must_have_been_read(book: Path, box: Toolbox) -> None:
    write(book, cell("aa", ["a"]))
    result = await box.call("NotebookEdit", notebook_path="n.ipynb", cell_id="aa", new_source="x")
    assert "must be read first" in result.text
    await box.call("NotebookRead", notebook_path="n.ipynb", cell_id="aa")
    assert not (await box.call("NotebookEdit", notebook_path="n.ipynb", cell_id="aa", new_source="x")).is_error
    assert not (await box.call("NotebookEdit", notebook_path="n.ipynb", cell_id="aa", new_source="y")).is_error


async def test_a_change_from_outside_is_merged_where_another_cell_was_changed(book: Path, box: Toolbox) -> None:
    filler = [cell(f"m{n}", [f"{n}"]) for n in range(3)]
    before = write(book, cell("aa", ["a"]), *filler, cell("bb", ["b"]))
    await box.call("NotebookRead", notebook_path="n.ipynb")
    book.write_bytes(before.replace(b'"b"', b'"b2"'))
    result = await box.call("NotebookEdit", notebook_path="n.ipynb", cell_id="aa", new_source="a2")
    assert "merged with that change" in result.text
    assert book.read_bytes() == before.replace(b'"b"', b'"b2"').replace(b'"a"', b'"a2"')


@pytest.mark.parametrize("on_change", ["merge", "markers", "error"])
async def test_a_change_of_the_same_cell_is_a_conflict_and_never_leaves_markers(book: Path, on_change: str) -> None:
    before = write(book, cell("aa", ["a"]))
    settings = {"edit": {"onExternalChange": on_change}}
    async with Toolbox(book.parent, settings=settings, mode="bypassPermissions") as box:
        await box.call("NotebookRead", notebook_path="n.ipynb")
        book.write_bytes(before.replace(b'"a"', b'"theirs"'))
        result = await box.call("NotebookEdit", notebook_path="n.ipynb", cell_id="aa", new_source="ours")
    assert result.is_error
    assert book.read_bytes() == before.replace(b'"a"', b'"theirs"')


async def test_an_edit_can_be_undone(book: Path, box: Toolbox) -> None:
    before = write(book, cell("aa", ["a"]), cell("bb", ["b"]))
    await box.call("NotebookRead", notebook_path="n.ipynb")
    await box.call_many(
        [
            ("NotebookEdit", {"notebook_path": "n.ipynb", "cell_id": "aa", "new_source": "x"}),
            ("NotebookEdit", {"notebook_path": "n.ipynb", "cell_id": "bb", "edit_mode": "delete"}),
        ]
    )
    assert [found["source"] for found in cells(book)] == [["x"]]
    await box.undo(turn=True)
    assert book.read_bytes() == before


async def test_a_link_is_followed_to_the_file_that_was_judged(book: Path, box: Toolbox) -> None:
    real = book.with_name("real.ipynb")
    write(real, cell("aa", ["a"]))
    os.symlink("real.ipynb", book)
    assert not (await edit(box, cell_id="aa", new_source="x")).is_error
    assert book.is_symlink()
    assert cells(real)[0]["source"] == ["x"]


async def test_what_is_swapped_in_while_the_person_is_asked_is_neither_read_nor_written(book: Path) -> None:
    other = book.parent.parent / "other.ipynb"
    elsewhere = write(other, cell("aa", ["secret"]))
    before = write(book, cell("aa", ["a"]))
    moved = book.with_name("moved.ipynb")

    def swap(question: object) -> bool:
        book.rename(moved)
        book.symlink_to(other)
        return True

    async with Toolbox(book.parent, settings={}, ask=swap) as box:
        result = await edit(box, cell_id="aa", new_source="x")
    assert result.is_error
    assert "secret" not in result.text
    assert (other.read_bytes(), moved.read_bytes()) == (elsewhere, before)


async def test_a_file_with_escapes_stays_in_escapes(book: Path, box: Toolbox) -> None:
    write(book, cell("aa", ["é"]), cell("bb", ["\u2028"]))
    await edit(box, cell_id="aa", new_source="ü")
    assert rb'"\u00fc"' in book.read_bytes()
    text = book.read_text().replace(r"\u00fc", "ü").replace(r"\u2028", "-")
    book.write_text(text, encoding="utf-8")
    await edit(box, cell_id="aa", new_source="ö")
    assert '"ö"'.encode() in book.read_bytes()


async def test_many_edits_at_once_of_one_notebook_all_arrive(book: Path, box: Toolbox) -> None:
    write(book, *(cell(f"c{n}", [str(n)]) for n in range(8)))
    await box.call("NotebookRead", notebook_path="n.ipynb")
    calls = (box.call("NotebookEdit", notebook_path="n.ipynb", cell_id=f"c{n}", new_source=f"x{n}") for n in range(8))
    assert not [result.text for result in await asyncio.gather(*calls) if result.is_error]
    assert ["".join(found["source"]) for found in cells(book)] == [f"x{n}" for n in range(8)]
