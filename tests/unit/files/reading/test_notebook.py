from __future__ import annotations

import json
from typing import Any

import pytest

from wieldy.core.errors import ToolFailure
from wieldy.files.notebooks import MAX_OUTPUT_CHARS, Cell, Notebook, read_notebook


def notebook_of(*cells: dict[str, Any], **more: Any) -> Notebook:
    return read_notebook(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, **more}).encode(), "it")


def outputs_of(*outputs: dict[str, Any]) -> tuple[str, ...]:
    return notebook_of({"cell_type": "code", "source": "", "outputs": list(outputs)}).cells[0].outputs


def test_cells_have_number_id_kind_source_and_outputs() -> None:
    found = notebook_of(
        {"cell_type": "markdown", "id": "intro", "source": ["# Title\n", "text"]},
        {
            "cell_type": "code",
            "source": "print(1)",
            "execution_count": 3,
            "outputs": [{"output_type": "stream", "name": "stdout", "text": ["1\n"]}],
        },
    )
    assert found.cells == (
        Cell(0, "intro", "markdown", "# Title\ntext"),
        Cell(1, "cell-1", "code", "print(1)", ("1",), 3),
    )
    assert str(found) == (
        "<cell 0 id=intro markdown>\n# Title\ntext\n\n<cell 1 id=cell-1 code [3]>\nprint(1)\n<output>\n1\n</output>"
    )


def test_an_error_is_shown_by_its_trace_without_colours() -> None:
    trace = ["\x1b[0;31mValueError\x1b[0m: no", "at line 1"]
    assert outputs_of({"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": trace}) == (
        "ValueError: no\nat line 1",
    )
    assert outputs_of({"output_type": "error", "ename": "KeyError", "evalue": "'x'"}) == ("KeyError: 'x'",)


def test_rich_output_is_shown_as_text_and_pictures_by_name() -> None:
    shown = {"text/plain": ["<Figure>"], "image/png": "aGk="}
    assert outputs_of({"output_type": "display_data", "data": shown}) == ("<Figure>\n[image/png]",)
    assert outputs_of({"output_type": "display_data", "data": {"image/png": "aGk="}}) == ("[image/png]",)


def test_long_output_is_cut_and_says_so() -> None:
    (shown,) = outputs_of({"output_type": "stream", "text": "x" * (MAX_OUTPUT_CHARS + 5)})
    assert shown == "x" * MAX_OUTPUT_CHARS + "… [5 more characters of output]"


def test_the_language_is_the_notebooks_own() -> None:
    assert notebook_of(metadata={"language_info": {"name": "julia"}}).language == "julia"
    assert notebook_of(metadata={"kernelspec": {"language": "R"}}).language == "R"
    assert notebook_of().language == "python"


def test_notebooks_of_the_third_format_are_read_too() -> None:
    old = {"worksheets": [{"cells": [{"cell_type": "code", "input": ["x = 1"], "outputs": []}]}], "nbformat": 3}
    assert read_notebook(json.dumps(old).encode(), "it").cells == (Cell(0, "cell-0", "code", "x = 1"),)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"cells": 3}', b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_notebook_is_refused(data: bytes) -> None:
    with pytest.raises(ToolFailure, match=r"^it is no valid notebook"):
        read_notebook(data, "it")


@pytest.mark.parametrize("cell", [None, 3, {}, {"source": 5, "outputs": [None, {"data": 3}, {"text": None}]}])
def test_odd_cells_do_no_harm(cell: Any) -> None:
    (found,) = notebook_of(cell).cells
    assert found.id == "cell-0"
    assert found.outputs == ()
